//go:build linux

package faultstest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/faults/faultstest"
	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/process"
)

func TestMain(m *testing.M) {
	logging.Disable()
	if len(os.Args) == 4 && os.Args[1] == "harness" {
		if err := harness(os.Args[2], os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1) //nolint:forbidigo // this is main
		}
		return
	}
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/lockchaos/lockchaos/internal/spawn.thread.func1"))
}

// ofClients are the faults that package harness checks, and those of a driver's clock that
// package drivers does: they have no server.
func ofClients() []string {
	return []string{"client-clock-back", "client-clock-forward", "kill-client", "pause-client", "throttle-client"}
}

func TestEveryFaultOfTheListIsInjected(t *testing.T) {
	listed := faults.Names(faults.All())
	names := append(faultstest.Names(), ofClients()...)
	slices.Sort(listed)
	slices.Sort(names)
	require.Equal(t, listed, slices.Compact(names))
}

// need skips the test where it can't have servers with clocks and disks of their
// own.
func need(t *testing.T) {
	t.Helper()
	runtest.NeedStore(t, topologies.StoreRedis)
	runtest.NeedCompiler(t)
}

// TestProcessesCanHaveEveryFault has an append-only file, for the faults of
// disks.
func TestProcessesCanHaveEveryFault(t *testing.T) {
	t.Parallel()
	need(t)
	single, err := topologies.New(topologies.Single, topologies.Options{Persistence: topologies.PersistAlways})
	require.NoError(t, err)
	all := []topologies.Topology{single}
	for _, other := range []struct {
		name    string
		options topologies.Options
	}{
		{topologies.Single, topologies.Options{Access: topologies.AccessName}},
		{topologies.Sentinels, topologies.Options{}},
		{topologies.Cluster, topologies.Options{NodeTimeout: time.Second}}, // so that it does not fail over only because the machine is busy
		{topologies.Independent, topologies.Options{}},
	} {
		topology, err := topologies.New(other.name, other.options)
		require.NoError(t, err)
		all = append(all, topology)
	}
	folder := func(d topologies.Deployment) []string {
		return left(filepath.Dir(filepath.Dir(d.Server("redis-1").Log())))
	}
	seen := faultstest.Every(t, process.Backend{}.Instrumented(), folder, all...)
	names := faultstest.Names()
	slices.Sort(seen)
	slices.Sort(names)
	require.Equal(t, slices.Compact(names), slices.Compact(seen))
}
