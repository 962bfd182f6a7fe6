package names_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/internal/names"
)

func TestUnknown(t *testing.T) {
	known := []string{"single", "sentinel", "failover-double-grant"}
	for give, want := range map[string]string{
		"sentinal": `unknown thing "sentinal" (did you mean sentinel? known: single, sentinel, failover-double-grant)`,
		"failover": `unknown thing "failover" (did you mean failover-double-grant? known: single, sentinel, failover-double-grant)`,
		"zzz":      `unknown thing "zzz" (known: single, sentinel, failover-double-grant)`,
		"":         `unknown thing "" (known: single, sentinel, failover-double-grant)`,
	} {
		require.EqualError(t, names.Unknown("thing", give, known), want)
	}
}
