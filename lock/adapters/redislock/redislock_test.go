package redislock_test

import (
	"testing"
	"time"

	bsm "github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/adapters/redislock"
	"github.com/lockchaos/lockchaos/lock/internal/redistest"
	"github.com/lockchaos/lockchaos/lock/locktest"
)

// definite makes a refusal what it says: no request is repeated.
func definite(o *redis.Options) { o.MaxRetries, o.ContextTimeoutEnabled = -1, true }

func TestContract(t *testing.T) {
	s := redistest.Start(t)
	quick := func() bsm.RetryStrategy { return bsm.LinearBackoff(5 * time.Millisecond) }
	locktest.Run(t, func(t *testing.T) lock.Locker {
		t.Helper()
		rdb := s.Client(t, definite)
		require.NoError(t, rdb.FlushAll(t.Context()).Err())
		return redislock.New(rdb, quick)
	}, locktest.Features{Callers: 100, Lease: 300 * time.Millisecond})
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
	s := redistest.Start(t)
	l := redislock.New(s.Client(t, definite), nil)
	_, err := l.Acquire(t.Context(), "orders", lock.Options{Lease: 300 * time.Millisecond})
	require.NoError(t, err)
	begin := time.Now()
	h, err := l.Acquire(t.Context(), "orders", lock.Options{Lease: time.Minute, Wait: 20 * time.Second})
	require.NoError(t, err)
	require.Greater(t, h.Lease().Expires.Sub(begin), time.Minute-time.Minute/100+200*time.Millisecond)
	require.LessOrEqual(t, time.Until(h.Lease().Expires), time.Minute)
}
