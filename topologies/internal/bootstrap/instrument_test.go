package bootstrap

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/topologies"
)

func TestWhatPartsAreWithout(t *testing.T) {
	given := map[topologies.Capability]string{topologies.Proxies: "no proxy"}
	parts := Parts{Without: given}
	without := uninstrumented(parts)
	require.Len(t, without, 3)
	require.Equal(t, "no proxy", without[topologies.Proxies])
	require.Contains(t, without[topologies.Clocks], "local processes alone")
	require.Contains(t, without[topologies.Disks], "local processes alone")
	require.Len(t, given, 1, "what was given is left alone")

	parts.Instruments = func(string) topologies.Instruments { return nil }
	require.Equal(t, given, uninstrumented(parts))

	parts.Foreign = true
	require.Contains(t, uninstrumented(parts), topologies.Workers)
}
