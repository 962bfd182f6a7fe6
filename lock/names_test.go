package lock

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockchaos/lockchaos/lock/internal/require"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

// The scripts tell names, requests and owners apart whatever is in them, and a
// release tells those who have no ticket.
func TestStrangeNamesAndOwners(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c, err := New(s.Client(t, nil), Config{})
	require.NoError(t, err)
	defer c.Close()
	names := []string{
		"orders", "{user:1}:cart", "a{b}:released:c", "x:released", "{", "}", "%", "{}x", "a b\nc", "\x00z", ":", "{a}:released:tickets",
	}
	owners := []string{"a b", " before", "two\nlines", "held", "held a b", "\x00\xff", "x:released:y", "after "}
	for _, name := range names {
		for _, owner := range owners {
			t.Run(fmt.Sprintf("%q of %q", name, owner), func(t *testing.T) {
				ctx := t.Context()
				for _, m := range []*Mutex{c.Mutex(name), &c.FencedMutex(name).Mutex} {
					h, err := m.Acquire(ctx, Options{Owner: owner, Lease: time.Minute})
					require.NoError(t, err)
					_, err = m.Acquire(ctx, Options{Owner: "another client", Lease: time.Minute})
					require.ErrorIs(t, err, ErrNotAcquired)
					again, err := m.Acquire(ctx, Options{Owner: owner, Lease: time.Minute})
					require.NoError(t, err)
					state, err := m.State(ctx)
					require.NoError(t, err)
					require.Equal(t, 2, state.Holds)
					require.Equal(t, owner, state.Owner)
					require.NoError(t, h.Release(ctx))
					require.NoError(t, again.Release(ctx))
					state, err = m.State(ctx)
					require.NoError(t, err)
					require.Zero(t, state)
				}
			})
		}
	}
}
