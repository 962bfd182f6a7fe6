package locktests

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

const semaphoreKey = "lock:{orders}:semaphore"

// semaphore returns a semaphore with that many permits.
func semaphore(t *testing.T, c *lock.Client, permits int) *lock.Semaphore {
	t.Helper()
	s := c.Semaphore("orders")
	_, err := s.TrySetPermits(t.Context(), permits)
	require.NoError(t, err)
	return s
}

// counted is what a semaphore says of its permits.
func counted(t *testing.T, s *lock.Semaphore) (size, taken, available int) {
	t.Helper()
	state, err := s.State(t.Context())
	require.NoError(t, err)
	return state.Permits, state.Acquired, state.Permits - state.Acquired
}

// available waits until so many permits are.
func available(t *testing.T, s *lock.Semaphore, want int) {
	t.Helper()
	redistest.Await(t, "permits", func() bool {
		state, err := s.State(t.Context())
		return err == nil && state.Permits-state.Acquired == want
	})
}

// lined waits until so many requests stand in the queue of the semaphore.
func lined(t *testing.T, rdb *redis.Client, want int) {
	t.Helper()
	redistest.Await(t, "a queue", func() bool {
		return rdb.ZCard(t.Context(), semaphoreKey+":queue").Val() == int64(want)
	})
}

// takes asks in the background.
func takes(ctx context.Context, s *lock.Semaphore, n int, wait time.Duration) <-chan error {
	done := make(chan error, 1)
	go func() { done <- s.Acquire(ctx, n, wait) }()
	return done
}

// errOf is the error of a call.
func errOf[T any](_ T, err error) error { return err }

func TestSemaphoreRefusesWhatMakesNoSense(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t, nil)
	ctx := t.Context()
	c := open(t, server, lock.Config{})
	s, unset, unnamed, wrong := semaphore(t, c, 3), c.Semaphore("unset"), c.Semaphore(""), c.Semaphore("text")
	require.NoError(t, s.Acquire(ctx, 1, 0))
	require.NoError(t, rdb.Set(ctx, "lock:{text}:semaphore", "my data", 0).Err())
	forever := lock.Options{Wait: lock.Forever}
	for _, tt := range []struct {
		name string
		err  error
		want string
		is   error
	}{
		{"no permits", s.Acquire(ctx, 0, 0), "give at least 1", nil},
		{"less than none", s.Acquire(ctx, -1, 0), "give at least 1", nil},
		{"no permits back", s.Release(ctx, 0), "give at least 1", nil},
		{"no permits for a time", errOf(s.Lease(ctx, 0, lock.Options{})), "give at least 1", nil},
		{"more than can be", s.Acquire(ctx, math.MaxInt, 0), "at most", nil},
		{"more than there are", s.Acquire(ctx, 4, lock.Forever), "there are 3", lock.ErrTooMany},
		{"more than there are, for a time", errOf(s.Lease(ctx, 4, forever)), "there are 3", lock.ErrTooMany},
		{"negative wait", s.Acquire(ctx, 1, -1), "give 0 for one try", nil},
		{"negative size", s.SetPermits(ctx, -1), "give at least 0", nil},
		{"negative first size", errOf(s.TrySetPermits(ctx, -1)), "give at least 0", nil},
		{"enormous size", s.AddPermits(ctx, math.MaxInt), "at most", nil},
		{"too much with what is there", s.AddPermits(ctx, math.MaxInt32), "would be 2147483650", nil},
		{"fewer than none", s.AddPermits(ctx, -4), "would be -1", nil},

		{"unset: acquire", unset.Acquire(ctx, 1, lock.Forever), "was not set", lock.ErrNotSet},
		{"unset: acquire for a time", errOf(unset.Lease(ctx, 1, forever)), "was not set", lock.ErrNotSet},
		{"unset: release", unset.Release(ctx, 1), "was not set", lock.ErrNotSet},
		{"unset: release is not held either", unset.Release(ctx, 1), "", lock.ErrNotHeld},
		{"unset: add", unset.AddPermits(ctx, 1), "was not set", lock.ErrNotSet},
		{"unset: drain", errOf(unset.Drain(ctx)), "was not set", lock.ErrNotSet},
		{"unset: look", errOf(unset.State(ctx)), "was not set", lock.ErrNotSet},

		{"no name: acquire", unnamed.Acquire(ctx, 1, 0), "give the lock a name", nil},
		{"no name: release", unnamed.Release(ctx, 1), "give the lock a name", nil},
		{"no name: size", errOf(unnamed.TrySetPermits(ctx, 1)), "give the lock a name", nil},
		{"no name: look", errOf(unnamed.State(ctx)), "give the lock a name", nil},

		{"wrong type: acquire", wrong.Acquire(ctx, 1, lock.Forever), "use another name", nil},
		{"wrong type: release", wrong.Release(ctx, 1), "use another name", nil},
		{"wrong type: size", wrong.SetPermits(ctx, 1), "use another name", nil},
		{"wrong type: drain", errOf(wrong.Drain(ctx)), "use another name", nil},
		{"wrong type: look", errOf(wrong.State(ctx)), "use another name", nil},
		{"wrong type: delete", errOf(wrong.Delete(ctx)), "use another name", nil},
	} {
		require.ErrorContains(t, tt.err, tt.want, tt.name)
		if tt.is != nil {
			require.ErrorIs(t, tt.err, tt.is, tt.name)
		}
		require.NotErrorIs(t, tt.err, lock.ErrNotAcquired, tt.name)
	}
	require.Equal(t, "my data", rdb.Get(ctx, "lock:{text}:semaphore").Val())
	require.Equal(t, []string{semaphoreKey}, keysLeft(t, rdb), "nothing was begun")
	size, taken, _ := counted(t, s)
	require.Equal(t, []int{3, 1}, []int{size, taken}, "nothing was changed")
}

func TestCancelInFlightLeaksNoPermit(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c, link := overLink(t, server, lock.Config{})
	s := semaphore(t, c, 1)
	require.NoError(t, s.Acquire(t.Context(), 1, 0)) // so that the digest is known
	require.NoError(t, s.Release(t.Context(), 1))
	asks := map[string]func(ctx context.Context) error{
		"for good":    func(ctx context.Context) error { return s.Acquire(ctx, 1, 0) },
		"all of them": func(ctx context.Context) error { return errOf(s.Drain(ctx)) },
	}
	for name, ask := range asks {
		t.Run(name, func(t *testing.T) {
			held, deliver := link.HoldReplies(digest(t, "semaphore_acquire"))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan error, 1)
			go func() { done <- ask(ctx) }()
			happened(t, held)
			available(t, s, 0)
			cancel()
			require.ErrorIs(t, <-done, context.Canceled)
			deliver()
			available(t, s, 1)
		})
	}
}

// All permits of a request are granted, or none, and given back once, by their hold (redisson #6343).
func TestPermitsAreGrantedTogether(t *testing.T) {
	server := redistest.Start(t)
	ctx := t.Context()
	c := open(t, server, lock.Config{})
	all := semaphore(t, c, 5)
	three, err := all.Lease(ctx, 3, lock.Options{Owner: "a", Lease: long})
	require.NoError(t, err)
	l := three.Lease()
	require.Equal(t, []any{"orders", "a", 3, long}, []any{l.Name, l.Owner, l.Holds, l.Length})
	_, err = all.Lease(ctx, 3, lock.Options{Owner: "a", Lease: long})
	require.ErrorIs(t, err, lock.ErrNotAcquired, "not the two that are there")
	available(t, all, 2)
	two, err := all.Lease(ctx, 2, lock.Options{Owner: "a", Lease: long})
	require.NoError(t, err, "an owner may hold several grants")
	require.ErrorIs(t, all.Release(ctx, 1), lock.ErrNotHeld, "what is held for a time is given back by its hold alone")
	require.NoError(t, three.Release(ctx))
	available(t, all, 3)
	require.NoError(t, two.Release(ctx))
	available(t, all, 5)
	require.Equal(t, []string{semaphoreKey}, keysLeft(t, server.Client(t, nil)))
}

func TestChangesOfTheSizeReachThoseWhoWait(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t, nil)
	ctx := t.Context()
	c := open(t, server, lock.Config{})
	s := semaphore(t, c, 3)
	require.NoError(t, s.Acquire(ctx, 3, 0))
	many := takes(ctx, s, 3, lock.Forever)
	lined(t, rdb, 1)
	few := takes(ctx, s, 1, lock.Forever)
	lined(t, rdb, 2)
	parked(t, rdb, 1)
	require.NoError(t, s.SetPermits(ctx, 2))
	require.ErrorIs(t, <-many, lock.ErrTooMany)
	_, _, left := counted(t, s)
	require.Equal(t, -1, left)
	require.NoError(t, s.AddPermits(ctx, 2))
	require.NoError(t, <-few)
	again := takes(ctx, s, 1, lock.Forever)
	lined(t, rdb, 1)
	_, err := s.Delete(ctx)
	require.NoError(t, err)
	require.ErrorIs(t, <-again, lock.ErrNotSet)
	require.ErrorIs(t, s.Release(ctx, 1), lock.ErrNotHeld)
	redistest.Await(t, "nothing to be left", func() bool { return len(keysLeft(t, rdb)) == 0 })
}

// A permit without a lease is leaked by a process that dies, one with a lease is
// not (redisson #2045, #4462).
func TestPermitOfADeadProcess(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	ctx := t.Context()
	s := semaphore(t, open(t, server, lock.Config{}), 2)
	dies := open(t, server, lock.Config{Watchdog: soonOver})
	require.NoError(t, dies.Semaphore("orders").Acquire(ctx, 1, 0))
	h, err := dies.Semaphore("orders").Lease(ctx, 1, lock.Options{})
	require.NoError(t, err)
	dies.Close()
	require.NoError(t, s.Acquire(ctx, 1, lock.Forever), "the other kind's was given back")
	<-h.Lost()
	require.ErrorIs(t, s.Acquire(ctx, 1, 300*time.Millisecond), lock.ErrNotAcquired)
	require.NoError(t, s.Release(ctx, 1), "another client gives it back")
}
