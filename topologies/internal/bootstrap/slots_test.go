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

func TestOwnerOfASlot(t *testing.T) {
	const nodes = `a 10.0.0.1:7000@17000,host master - 0 0 1 connected 0-5460 [93-<-b]
b 10.0.0.2:7000@17000 slave a 0 0 1 connected
c 10.0.0.3:7000@17000 master,fail - 0 0 3 disconnected
d 10.0.0.4:7000@17000 myself,master - 0 0 4 connected 6000 6002-16383
broken
`
	for slot, want := range map[int]string{
		0: "10.0.0.1:7000", 5460: "10.0.0.1:7000", 5461: "", 6000: "10.0.0.4:7000", 6001: "", 16383: "10.0.0.4:7000",
	} {
		require.Equal(t, want, owner(nodes, slot), slot)
	}
}
