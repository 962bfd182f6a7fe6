package lock

import (
	"testing"
	"time"

	"github.com/lockchaos/lockchaos/lock/internal/require"
)

// A release in the background is known to the next one as soon as that has its turn.
func TestReleaseAfterOneInTheBackground(t *testing.T) {
	h := newHold(Lease{Name: "orders", Expires: time.Now().Add(time.Hour)}, willing{})
	require.NoError(t, h.release(t.Context(), true))
	require.NoError(t, h.Release(t.Context()), "the owner wasn't told yet")
	require.ErrorIs(t, h.Release(t.Context()), ErrNotHeld)
}

// Lost is closed by the time that Extend says so, also where the timer is late.
func TestExtendThatFindsTheHoldLost(t *testing.T) {
	t.Parallel()
	h := newHold(Lease{Name: "orders", Expires: time.Now().Add(-time.Second)}, willing{})
	require.ErrorIs(t, h.Extend(t.Context(), time.Minute), ErrLost)
	select {
	case <-h.Lost():
	default:
		t.Error("not lost")
	}
}
