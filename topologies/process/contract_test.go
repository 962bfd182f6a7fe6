package process_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/process"
	"github.com/lockchaos/lockchaos/topologies/topologiestest"
)

func TestProcessesKeepTheContract(t *testing.T) {
	t.Parallel()
	runtest.NeedStore(t, topologies.StoreRedis)
	type test struct {
		topology string
		options  topologies.Options
	}
	tests := []test{
		{"single", topologies.Options{}},
		{"single", topologies.Options{Persistence: topologies.PersistAlways}},
		{"sentinel", topologies.Options{}},
		{"sentinel", topologies.Options{Access: topologies.AccessName}},
		{"cluster", topologies.Options{NodeTimeout: time.Second}}, // so that no server fails over only because the machine is busy
		{"independent", topologies.Options{Nodes: 3}},
	}
	if runtest.Nightly() {
		tests = append(tests, []test{
			{"single", topologies.Options{Persistence: topologies.PersistNo}},
			{"single", topologies.Options{Persistence: topologies.PersistEverySec}},
			{"single", topologies.Options{Access: topologies.AccessName}},
			{"sentinel", topologies.Options{MinReplicas: 1}},
			{"sentinel", topologies.Options{Persistence: topologies.PersistEverySec}},
			{"independent", topologies.Options{}},
			{"independent", topologies.Options{Nodes: 7}},
		}...)
	}
	for _, tt := range tests {
		topology, err := topologies.New(tt.topology, tt.options)
		require.NoError(t, err)
		t.Run(tt.topology, func(t *testing.T) {
			t.Parallel()
			topologiestest.Run(t, process.Backend{}, left, topology)
		})
	}
}

// left is what a deployment left behind: its folder, and processes that work,
// or worked, in there.
func left(d topologies.Deployment) []string {
	dir := filepath.Dir(filepath.Dir(d.Server("redis-1").Log()))
	var found []string
	if _, err := os.Stat(dir); err == nil {
		found = append(found, dir)
	}
	links, _ := filepath.Glob("/proc/[0-9]*/cwd") // its pattern is good
	for _, link := range links {
		if cwd, err := os.Readlink(link); err == nil && strings.HasPrefix(cwd, dir) {
			found = append(found, link)
		}
	}
	return found
}
