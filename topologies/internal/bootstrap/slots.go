package bootstrap

import (
	"strconv"

	"github.com/lockchaos/lockchaos/internal/traffic"
	"github.com/lockchaos/lockchaos/topologies"
)

// firstSlots is the first slot of each shard, by its boot master.
func firstSlots(t topologies.Topology) map[string]int {
	first := map[string]int{}
	shards := t.Shards()
	for i, shard := range shards {
		first[shard], _ = traffic.SlotRange(i, len(shards))
	}
	return first
}

// KeyIn is a key of a cluster's slot that begins with the prefix.
func KeyIn(prefix string, slot int) string {
	for i := 0; ; i++ {
		if tag := strconv.Itoa(i); traffic.KeySlot(tag) == slot {
			return prefix + "{" + tag + "}"
		}
	}
}
