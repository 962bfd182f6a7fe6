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

const semaphoreKey = "lock:semaphore:{orders}"

// semaphore returns a semaphore with that many permits.
func semaphore(t *testing.T, c *lock.Client, permits int) *lock.Semaphore {
	t.Helper()
	s := c.Semaphore("orders")
	_, err := s.TrySetPermits(t.Context(), permits)
	require.NoError(t, err)
	return s
}

// counted is what all ways to look at a semaphore say.
func counted(t *testing.T, s *lock.Semaphore) (size, taken, available int) {
	t.Helper()
	size, err := s.Permits(t.Context())
	require.NoError(t, err)
	taken, err = s.AcquiredPermits(t.Context())
	require.NoError(t, err)
	available, err = s.AvailablePermits(t.Context())
	require.NoError(t, err)
	return size, taken, available
}

// available waits until so many permits are.
func available(t *testing.T, s *lock.Semaphore, want int) {
	t.Helper()
	redistest.Await(t, "permits", func() bool {
		n, err := s.AvailablePermits(t.Context())
		return err == nil && n == want
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

func TestSemaphoreRefusesWhatMakesNoSense(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t, nil)
	ctx := t.Context()
	c := open(t, server, lock.Config{})
	s, unset, unnamed, wrong := semaphore(t, c, 3), c.Semaphore("unset"), c.Semaphore(""), c.Semaphore("text")
	require.NoError(t, s.Acquire(ctx, 1, 0))
	require.NoError(t, rdb.Set(ctx, "lock:semaphore:{text}", "my data", 0).Err())
	permit := func(s *lock.PermitSemaphore, n int, o lock.Options) error {
		_, err := s.Acquire(ctx, n, o)
		return err
	}
	try := func(s *lock.Semaphore, n int) error {
		_, err := s.TrySetPermits(ctx, n)
		return err
	}
	drain := func(s *lock.Semaphore) error {
		_, err := s.Drain(ctx)
		return err
	}
	look := func(s *lock.Semaphore) error {
		_, err := s.AvailablePermits(ctx)
		return err
	}
	remove := func(s *lock.Semaphore) error {
		_, err := s.Delete(ctx)
		return err
	}
	tests := []struct {
		name string
		do   func() error
		want string
		is   error
	}{
		{"no permits", func() error { return s.Acquire(ctx, 0, 0) }, "give at least 1", nil},
		{"less than none", func() error { return s.Acquire(ctx, -1, 0) }, "give at least 1", nil},
		{"no permits back", func() error { return s.Release(ctx, 0) }, "give at least 1", nil},
		{"no permits for a time", func() error { return permit(c.PermitSemaphore("orders"), 0, lock.Options{}) }, "give at least 1", nil},
		{"more than can be", func() error { return s.Acquire(ctx, math.MaxInt, 0) }, "at most", nil},
		{"more than there are", func() error { return s.Acquire(ctx, 4, lock.Forever) }, "there are 3", lock.ErrTooMany},
		{"more than there are, for a time", func() error {
			return permit(c.PermitSemaphore("orders"), 4, lock.Options{Wait: lock.Forever})
		}, "there are 3", lock.ErrTooMany},
		{"negative wait", func() error { return s.Acquire(ctx, 1, -1) }, "give 0 for one try", nil},
		{"negative lease", func() error { return permit(c.PermitSemaphore("orders"), 1, lock.Options{Lease: -1}) }, "give a positive one", nil},
		{"negative size", func() error { return s.SetPermits(ctx, -1) }, "give at least 0", nil},
		{"negative first size", func() error { return try(s, -1) }, "give at least 0", nil},
		{"enormous size", func() error { return s.AddPermits(ctx, math.MaxInt) }, "at most", nil},
		{"too much with what is there", func() error { return s.AddPermits(ctx, math.MaxInt32) }, "would be 2147483650", nil},
		{"fewer than none", func() error { return s.AddPermits(ctx, -4) }, "would be -1", nil},

		{"unset: acquire", func() error { return unset.Acquire(ctx, 1, lock.Forever) }, "was not set", lock.ErrNotSet},
		{"unset: acquire for a time", func() error {
			return permit(c.PermitSemaphore("unset"), 1, lock.Options{Wait: lock.Forever})
		}, "was not set", lock.ErrNotSet},
		{"unset: release", func() error { return unset.Release(ctx, 1) }, "was not set", lock.ErrNotSet},
		{"unset: release is not held either", func() error { return unset.Release(ctx, 1) }, "", lock.ErrNotHeld},
		{"unset: add", func() error { return unset.AddPermits(ctx, 1) }, "was not set", lock.ErrNotSet},
		{"unset: drain", func() error { return drain(unset) }, "was not set", lock.ErrNotSet},
		{"unset: look", func() error { return look(unset) }, "was not set", lock.ErrNotSet},

		{"no name: acquire", func() error { return unnamed.Acquire(ctx, 1, 0) }, "give the lock a name", nil},
		{"no name: release", func() error { return unnamed.Release(ctx, 1) }, "give the lock a name", nil},
		{"no name: size", func() error { return try(unnamed, 1) }, "give the lock a name", nil},
		{"no name: look", func() error { return look(unnamed) }, "give the lock a name", nil},

		{"wrong type: acquire", func() error { return wrong.Acquire(ctx, 1, lock.Forever) }, "use another name", nil},
		{"wrong type: release", func() error { return wrong.Release(ctx, 1) }, "use another name", nil},
		{"wrong type: size", func() error { return wrong.SetPermits(ctx, 1) }, "use another name", nil},
		{"wrong type: drain", func() error { return drain(wrong) }, "use another name", nil},
		{"wrong type: look", func() error { return look(wrong) }, "use another name", nil},
		{"wrong type: delete", func() error { return remove(wrong) }, "use another name", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.do()
			require.ErrorContains(t, err, tt.want)
			if tt.is != nil {
				require.ErrorIs(t, err, tt.is)
			}
			require.NotErrorIs(t, err, lock.ErrNotAcquired)
		})
	}
	require.Equal(t, "my data", rdb.Get(ctx, "lock:semaphore:{text}").Val())
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
		"for good": func(ctx context.Context) error { return s.Acquire(ctx, 1, 0) },
		"all of them": func(ctx context.Context) error {
			_, err := s.Drain(ctx)
			return err
		},
		"for a time": func(ctx context.Context) error {
			_, err := c.PermitSemaphore("orders").Acquire(ctx, 1, lock.Options{})
			return err
		},
	}
	for name, ask := range asks {
		t.Run(name, func(t *testing.T) {
			held, deliver := link.HoldReplies(semaphoreScript(t, "acquire").Hash())
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
	h, err := dies.PermitSemaphore("orders").Acquire(ctx, 1, lock.Options{})
	require.NoError(t, err)
	dies.Close()
	require.NoError(t, s.Acquire(ctx, 1, lock.Forever), "the other kind's was given back")
	<-h.Lost()
	require.ErrorIs(t, s.Acquire(ctx, 1, 300*time.Millisecond), lock.ErrNotAcquired)
	require.NoError(t, s.Release(ctx, 1), "another client gives it back")
}
