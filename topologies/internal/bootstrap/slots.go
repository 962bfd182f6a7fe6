package bootstrap

import (
	"strconv"

	"github.com/lockchaos/lockchaos/topologies"
)

// slots is how many slots a cluster has.
const slots = 16384

// slotRange is the share of one of several masters, both ends included.
func slotRange(i, masters int) (first, last int) {
	return i * slots / masters, (i+1)*slots/masters - 1
}

// firstSlots is the first slot of each shard, by its boot master.
func firstSlots(t topologies.Topology) map[string]int {
	first := map[string]int{}
	shards := t.Shards()
	for i, shard := range shards {
		first[shard], _ = slotRange(i, len(shards))
	}
	return first
}

// KeyIn is a key of a cluster's slot that begins with the prefix.
func KeyIn(prefix string, slot int) string {
	for i := 0; ; i++ {
		if tag := strconv.Itoa(i); slotOf(tag) == slot {
			return prefix + "{" + tag + "}"
		}
	}
}

// slotOf is the slot of a key without a tag, or of a tag: CRC16 in its XMODEM
// form, as appendix A of the Redis Cluster specification has it.
func slotOf(key string) int {
	crc := uint16(0)
	for _, b := range []byte(key) {
		crc ^= uint16(b) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc) % slots
}
