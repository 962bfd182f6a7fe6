package bench

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The machine is described where the system tells about it.
func TestMachine(t *testing.T) {
	m := thisMachine()
	require.NotEmpty(t, m.OS)
	require.Positive(t, m.Cores)
	require.Positive(t, m.Procs)
	require.Contains(t, Machine{Cores: 2, CPU: "a processor", Virtual: true}.describe(), "2 × a processor (virtual)")
	for load, busy := range map[string]bool{"0.99 3.00 3.00": false, "1.00 0.00 0.00": true, "": false} {
		require.Equal(t, busy, Machine{Cores: 2, Load: load}.busy(), load)
	}
}
