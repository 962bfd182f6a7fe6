package locktests

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

func detach(t *testing.T, h *lock.Hold) string {
	t.Helper()
	text, err := h.Detach(t.Context())
	require.NoError(t, err)
	return text
}

// Exactly one client renews a hold that was detached, and releases it.
func TestDetachedHoldGoesToAnotherClient(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	mine, theirs := &events{}, &events{}
	a := open(t, s, lock.Config{Watchdog: soonDead, Observer: mine})
	b := open(t, s, lock.Config{Watchdog: soonDead, Observer: theirs})
	first := acquire(t, a.Fenced(), "a \xff", 0)
	work, cancel := first.Context(t.Context())
	defer cancel()
	text := detach(t, first)
	require.ErrorIs(t, work.Err(), context.Canceled)
	require.NotErrorIs(t, context.Cause(work), lock.ErrLost)
	require.Equal(t, 1, mine.count(lock.Detached))
	renewed := mine.count(lock.Renewing)
	_, err := first.Detach(t.Context())
	require.ErrorIs(t, err, lock.ErrNotHeld)
	require.ErrorIs(t, first.Extend(t.Context(), long), lock.ErrNotHeld)
	require.ErrorIs(t, first.Release(t.Context()), lock.ErrNotHeld)

	second, err := b.Attach(t.Context(), text)
	require.NoError(t, err)
	was, is := first.Lease(), second.Lease()
	require.Greater(t, is.Expires, was.Expires)
	is.Expires = was.Expires
	require.Equal(t, was, is)
	require.NoError(t, a.Shutdown(t.Context()), "it has nothing to release")
	theirs.await(t, lock.Renewed, 2)
	require.Equal(t, renewed, mine.count(lock.Renewing))
	held, err := b.FencedMutex("orders").IsHeldBy(t.Context(), "a \xff")
	require.NoError(t, err)
	require.True(t, held)
	require.NoError(t, second.Release(t.Context()))
	require.Empty(t, keysLeft(t, s.Client(t, nil)))
	_, err = b.Attach(t.Context(), text)
	require.ErrorIs(t, err, lock.ErrNotHeld, "it was released")
}

// A detached hold runs out, since no watchdog keeps it, and is not attached then, nor
// when another owner holds the lock.
func TestDetachedHoldRunsOut(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	c := open(t, s, lock.Config{Watchdog: soonOver})
	h := acquire(t, c, "a", 0)
	text := detach(t, h)
	redistest.Await(t, "the end of the lease", func() bool { return rdb.Exists(t.Context(), "lock:{orders}").Val() == 0 })
	_, err := c.Attach(t.Context(), text)
	require.ErrorIs(t, err, lock.ErrNotHeld)
	next := acquire(t, c, "a", long)
	_, err = c.Attach(t.Context(), text)
	require.ErrorIs(t, err, lock.ErrNotHeld)
	require.NoError(t, next.Release(t.Context()))

	late := acquire(t, c, "a", soonOver)
	<-late.Lost()
	_, err = late.Detach(t.Context())
	require.ErrorIs(t, err, lock.ErrNotHeld)
}

func TestAttachRefusesWhatIsNoHold(t *testing.T) {
	s := redistest.Start(t)
	c := open(t, s, lock.Config{})
	text := detach(t, acquire(t, open(t, s, lock.Config{Prefix: "other"}), "a", long))
	tests := []struct{ name, text, want string }{
		{"nothing", "", "not that of a detached hold"},
		{"garbage", "\xff\x00 garbage", "not that of a detached hold"},
		{"no object", "[1]", "not that of a detached hold"},
		{"no version", "{}", "version 0"},
		{"another kind", `{"version":1,"kind":"fair"}`, `kind "fair"`},
		{"no request", `{"version":1,"kind":"mutex","name":"YQ=="}`, "no request"},
		{"two words", `{"version":1,"kind":"mutex","name":"YQ==","request":"a b"}`, "no request"},
		{"no name", `{"version":1,"kind":"mutex","request":"a"}`, "give the lock a name"},
		{"strange lease", `{"version":1,"kind":"mutex","name":"YQ==","request":"a","lease":-1}`, "give a positive one"},
		{"another prefix", text, "same Config.Prefix"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := c.Attach(t.Context(), tt.text)
			require.ErrorContains(t, err, tt.want)
			require.NotErrorIs(t, err, lock.ErrNotHeld)
		})
	}
	c.Close()
	_, err := c.Attach(t.Context(), detach(t, acquire(t, open(t, s, lock.Config{}), "a", long)))
	require.ErrorIs(t, err, lock.ErrClosed)
}

// What can't be detached says so, and stays held.
func TestLocksThatCannotBeDetached(t *testing.T) {
	t.Parallel()
	kinds, held := everyLock(t)
	for _, name := range []string{"client", "Mutex", "FencedMutex", "SpinMutex"} {
		delete(kinds, name)
	}
	for name, l := range kinds {
		t.Run(name, func(t *testing.T) {
			h := acquire(t, l, "", long)
			_, err := h.Detach(t.Context())
			require.ErrorIs(t, err, errors.ErrUnsupported)
			require.True(t, held())
			require.NoError(t, h.Release(t.Context()))
		})
	}
}
