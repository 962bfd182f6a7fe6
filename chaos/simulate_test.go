package chaos_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/chaos"
)

// A correct lock passes, without a server.
func TestSimulate(t *testing.T) {
	t.Setenv("PATH", "") // there is no redis-server
	before := runtime.GOMAXPROCS(0)
	chaos.Simulate(t, correct(), chaos.Plan{Seeds: "1-20"})
	chaos.Simulate(t, correct(), chaos.Plan{Topology: "sentinel", Seeds: "1-5"})
	chaos.Simulate(t, correct(), chaos.Plan{Topology: "cluster", Faults: "none", Seeds: "1-2"})
	require.Equal(t, before, runtime.GOMAXPROCS(0))
}
