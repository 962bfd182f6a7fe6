package process

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEverySlotIsTaken has somebody else on all of two slots that are nobody's.
func TestEverySlotIsTaken(t *testing.T) {
	const first, last = lastSlot + 1, lastSlot + 2
	for n := first; n <= last; n++ {
		l, err := net.Listen("tcp", addr(byte(n), 0, 1, lockPort).String())
		require.NoError(t, err)
		defer l.Close()
	}
	_, err := takeSlotFrom(first, last)
	require.ErrorIs(t, err, errNoSlot)
	require.EqualError(t, err, "no free range of loopback addresses: port 22000 is taken on every address from 127.251.0.1 to 127.252.0.1 (do that many runs go on?)")
	s, err := takeSlotFrom(first, last+1)
	require.NoError(t, err, "the next one is free")
	require.NoError(t, s.release())
}
