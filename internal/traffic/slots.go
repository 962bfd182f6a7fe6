package traffic

import "strings"

// Slots is how many slots a cluster has.
const Slots = 16384

// SlotRange is the share of one of several masters, both ends included.
func SlotRange(i, masters int) (first, last int) {
	return i * Slots / masters, (i+1)*Slots/masters - 1
}

// KeySlot is the slot of a key: of what is in its first braces, if there is something. It is CRC16 in its XMODEM form, as
// appendix A of the Redis Cluster specification has it.
func KeySlot(key string) int {
	if _, tag, opens := strings.Cut(key, "{"); opens {
		if tag, _, closes := strings.Cut(tag, "}"); closes && tag != "" {
			key = tag
		}
	}
	crc := uint16(0)
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc % Slots)
}
