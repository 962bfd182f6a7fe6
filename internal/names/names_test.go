package names_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/internal/names"
)

// A name with one wrong letter is nearer than one that the misspelt name begins with.
func TestUnknown(t *testing.T) {
	require.Equal(t, "partition-ring", names.Nearest("partition-rings", []string{"partition", "partition-ring"}))
	require.Equal(t, "locks", names.Nearest("locksmiths", []string{"topologies", "locks"}))
	known := []string{"single", "sentinel", "failover-double-grant"}
	for give, want := range map[string]string{
		"sentinal":  `unknown thing "sentinal" (did you mean sentinel? known: single, sentinel, failover-double-grant)`,
		"failover":  `unknown thing "failover" (did you mean failover-double-grant? known: single, sentinel, failover-double-grant)`,
		"SENTINEL":  `unknown thing "SENTINEL" (did you mean sentinel? known: single, sentinel, failover-double-grant)`,
		"snigl":     `unknown thing "snigl" (did you mean single? known: single, sentinel, failover-double-grant)`,
		"singles":   `unknown thing "singles" (did you mean single? known: single, sentinel, failover-double-grant)`,
		"singleton": `unknown thing "singleton" (did you mean single? known: single, sentinel, failover-double-grant)`,
		"x":         `unknown thing "x" (known: single, sentinel, failover-double-grant)`,
		"sent":      `unknown thing "sent" (did you mean sentinel? known: single, sentinel, failover-double-grant)`,
		"clinking":  `unknown thing "clinking" (known: single, sentinel, failover-double-grant)`,
		"zzz":       `unknown thing "zzz" (known: single, sentinel, failover-double-grant)`,
		"":          `unknown thing "" (known: single, sentinel, failover-double-grant)`,
	} {
		require.EqualError(t, names.Unknown("thing", give, known), want)
	}
}
