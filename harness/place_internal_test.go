package harness

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A holder is a client whose grant is the latest of its lock and no longer that of a moment, nor about to be given back, and has
// no lease of its own.
func TestGrants_holder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g grants
		require.Empty(t, g.holder())
		g.add("zone-a", "lock-1", 0)
		g.add("zone-b", "lock-2", time.Second)
		require.Empty(t, g.holder(), "most are given back within a moment")
		time.Sleep(heldFor + time.Millisecond)
		require.Equal(t, "zone-a", g.holder())
		g.add("zone-b", "lock-1", 0)
		require.Empty(t, g.holder(), "the lock is another client's")
		time.Sleep(heldFor + time.Millisecond)
		require.Equal(t, "zone-b", g.holder())
		time.Sleep(heldFor)
		require.Empty(t, g.holder(), "it may be given back before its session is over")
		require.EqualValues(t, 3, g.all.Load())
		require.EqualValues(t, 3, g.moves.Load())
	})
}
