package process

import (
	"net"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTakeBlock_AllTaken listens on both of two blocks that no backend takes.
func TestTakeBlock_AllTaken(t *testing.T) {
	const first, last = lastBlock + 1, lastBlock + 2
	for n := first; n <= last; n++ {
		l, err := net.Listen("tcp", addr(byte(n), 0, 1, lockPort).String())
		require.NoError(t, err)
		defer l.Close()
	}
	_, err := takeBlock(first, last)
	require.ErrorIs(t, err, errNoBlock)
	require.EqualError(t, err, "no free range of loopback addresses: port 22000 is taken on every address from 127.251.0.1 to 127.252.0.1 (do that many runs go on?)")
	s, err := takeBlock(first, last+1)
	require.NoError(t, err, "the next one is free")
	require.NoError(t, s.release())
}

// A block that nothing refers to any more stays taken until it is released: a deployment that
// was not closed still listens on its addresses.
func TestTakeBlock_StaysTaken(t *testing.T) {
	const only = lastBlock + 4
	took, err := takeBlock(only, only)
	require.NoError(t, err)
	number := took.number
	took = nil
	for range 5 {
		runtime.GC() // a finalizer runs after a collection, and what it frees goes with the next
		runtime.Gosched()
	}
	_, err = takeBlock(only, only)
	require.ErrorIs(t, err, errNoBlock)
	l, _ := held.Load(number)
	require.NoError(t, (&addressBlock{number, l.(net.Listener)}).release())
	took, err = takeBlock(only, only)
	require.NoError(t, err)
	require.NoError(t, took.release())
}
