package process_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/process"
)

func TestMain(m *testing.M) { runtest.Main(m) }

// start boots a topology, or skips the test where that can't be. A cluster gets
// the patience that keeps it from failing over because the machine is busy.
func start(t *testing.T, name string) topologies.Deployment {
	t.Helper()
	runtest.NeedStore(t, topologies.StoreRedis)
	var o topologies.Options
	if name == topologies.Cluster {
		o.NodeTimeout = time.Second
	}
	topology, err := topologies.New(name, o)
	require.NoError(t, err)
	d, err := runtest.Servers().Start(t.Context(), topology)
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			for _, n := range topology.Nodes {
				if s := d.Server(n.Name); s != nil {
					log, err := os.ReadFile(s.Log())
					t.Logf("log of %s (%v):\n%s", n.Name, err, log)
				}
			}
		}
		require.NoError(t, d.Close())
	})
	return d
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// past is a connection to a server past every fault, which waits for an answer
// longer than the observer, to whom a server that is slow is silent.
func past(s topologies.Server) *redis.Client { return s.Observer().WithTimeout(30 * time.Second) }

func TestStartSaysWhatIsMissing(t *testing.T) {
	topology, err := topologies.ByName("single")
	require.NoError(t, err)
	script := func(body string) string {
		path := filepath.Join(t.TempDir(), "redis-server")
		require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o700))
		return path
	}
	tests := []struct {
		name, binary, want string
		is                 error
	}{
		{"no binary", "/nowhere/redis-server", "names /nowhere/redis-server, and there is no such program", topologies.ErrUnusable},
		{"too old", script("echo Redis server v=6.2.14 sha=0"), "7.0.0 is the oldest", topologies.ErrTooOld},
		{"not a redis", script("echo hello"), "which is no redis-server: no version in", topologies.ErrUnusable},
		{"not a program that answers", "/bin/false", "names /bin/false, which is no redis-server: false --version: exit status 1", topologies.ErrUnusable},
		{"does not start", script(`[ "$1" = --version ] && echo v=7.0.0 || { echo "Out of luck"; exit 1; }`), "Out of luck", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv(process.BinaryVariable, tt.binary)
			_, err := process.Backend{}.Start(within(t), topology)
			require.ErrorContains(t, err, tt.want)
			if tt.is != nil {
				require.ErrorIs(t, err, tt.is)
			}
		})
	}
}
