package bootstrap

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/topologies"
)

func TestSlots(t *testing.T) {
	require.Equal(t, 12739, slotOf("123456789"), "the check value 0x31C3 of the specification")
	for _, slot := range []int{0, 5461, 10922, slots - 1} {
		require.Regexp(t, `^p\{\d+\}$`, KeyIn("p", slot))
	}
	topology, err := topologies.ByName("cluster")
	require.NoError(t, err)
	require.Equal(t, map[string]int{"redis-1": 0, "redis-2": 5461, "redis-3": 10922}, firstSlots(topology))
	_, last := slotRange(2, 3)
	require.Equal(t, slots-1, last)
}
