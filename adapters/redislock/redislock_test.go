package redislock_test

import (
	"context"
	"testing"
	"time"

	bsm "github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/adapters/redislock"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/locktest"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

// definite makes a refusal what it says: no request is repeated.
func definite(o *redis.Options) { o.MaxRetries, o.ContextTimeoutEnabled = -1, true }

func TestContract(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	quick := func() bsm.RetryStrategy { return bsm.LinearBackoff(5 * time.Millisecond) }
	locktest.Run(t, func(t *testing.T) lock.Locker {
		t.Helper()
		rdb := s.Client(t, definite)
		require.NoError(t, rdb.FlushAll(t.Context()).Err())
		return redislock.New(rdb, quick)
	}, locktest.Features{Callers: 100, Lease: 2 * time.Second})
}

// A lateContext does not say that it is over when its deadline has passed.
type lateContext struct {
	context.Context //nolint:containedctx // it is one

	deadline time.Time
}

func (c lateContext) Deadline() (time.Time, bool) { return c.deadline, true }

// A connection times out at the deadline of the context, which may be a moment before the
// context says that it is over.
func TestWaitEndsWithItsDeadline(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	l := redislock.New(s.Client(t, definite), nil)
	_, err := l.Acquire(t.Context(), "orders", lock.Options{Lease: time.Minute})
	require.NoError(t, err)
	late := lateContext{Context: t.Context(), deadline: time.Now().Add(50 * time.Millisecond)}
	_, err = l.Acquire(late, "orders", lock.Options{Lease: time.Minute, Wait: lock.Forever})
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// What may have happened is no refusal.
func TestUnknownOutcomes(t *testing.T) {
	s := redistest.Start(t)
	l := redislock.New(s.Client(t, definite), nil)
	h, err := l.Acquire(t.Context(), "orders", lock.Options{Lease: time.Minute})
	require.NoError(t, err)
	s.Kill()
	for what, err := range map[string]error{
		"extend": h.Extend(t.Context(), time.Minute), "release": h.Release(t.Context()),
	} {
		require.Error(t, err, what)
		require.NotErrorIs(t, err, lock.ErrNotHeld, what)
	}
	_, err = l.Acquire(t.Context(), "orders", lock.Options{Lease: time.Minute, Wait: time.Minute})
	require.Error(t, err)
	require.NotErrorIs(t, err, lock.ErrNotAcquired)
}

// The lease is counted from before the request that won, and not from when the
// wait began.
func TestWaitDoesNotUseTheLeaseUp(t *testing.T) {
	t.Parallel()
	l := redislock.New(redistest.Start(t).Client(t, definite), nil)
	begin := time.Now()
	_, err := l.Acquire(t.Context(), "orders", lock.Options{Lease: 500 * time.Millisecond})
	require.NoError(t, err)
	h, err := l.Acquire(t.Context(), "orders", lock.Options{Lease: time.Minute, Wait: time.Minute}) // it pauses for 100ms between its tries
	require.NoError(t, err)
	require.Greater(t, h.Lease().Expires.Sub(begin), time.Minute-time.Minute/100+200*time.Millisecond)
	require.LessOrEqual(t, time.Until(h.Lease().Expires), time.Minute)
}
