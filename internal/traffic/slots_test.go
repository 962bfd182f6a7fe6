package traffic_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/internal/traffic"
)

func TestKeySlot(t *testing.T) {
	require.Equal(t, 12739, traffic.KeySlot("123456789"), "the check value 0x31C3 of the specification")
	for _, key := range []string{"a{x}b", "{x}", "{x}{y}", "x"} {
		require.Equal(t, traffic.KeySlot("x"), traffic.KeySlot(key), key)
	}
	for _, key := range []string{"{}x", "{x", "x}", "{}{x}"} {
		require.NotEqual(t, traffic.KeySlot("x"), traffic.KeySlot(key), key)
	}
	_, last := traffic.SlotRange(2, 3)
	require.Equal(t, traffic.Slots-1, last)
}
