package bootstrap

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/internal/traffic"
	"github.com/lockchaos/lockchaos/topologies"
)

func TestSlots(t *testing.T) {
	for _, slot := range []int{0, 5461, 10922, traffic.Slots - 1} {
		require.Regexp(t, `^p\{\d+\}$`, KeyIn("p", slot))
	}
	topology, err := topologies.ByName("cluster")
	require.NoError(t, err)
	require.Equal(t, map[string]int{"redis-1": 0, "redis-2": 5461, "redis-3": 10922}, firstSlots(topology))
}
