package rueidis_test

import (
	"context"
	"crypto/tls"
	"net"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
	"github.com/stretchr/testify/require"

	adapter "github.com/lockchaos/lockchaos/adapters/rueidis"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/locktest"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

// open connects to the server. A request has five seconds for its answer, because
// the library's 20ms are too short for a machine that is busy.
func open(t *testing.T, s *redistest.Server, validity time.Duration) *adapter.Locker {
	t.Helper()
	l, err := adapter.New(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{
			InitAddress: []string{"127.0.0.1:6379"}, DisableRetry: true,
			DialCtxFn: func(ctx context.Context, _ string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
				return s.Dial(ctx)
			},
		},
		KeyMajority: 1, KeyValidity: validity, TryNextAfter: 5 * time.Second,
	})
	require.NoError(t, err)
	t.Cleanup(l.Close)
	return l
}

func TestContract(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	locktest.Run(t, func(t *testing.T) lock.Locker {
		t.Helper()
		require.NoError(t, s.Client(t, nil).FlushAll(t.Context()).Err())
		return open(t, s, 10*time.Second)
	}, locktest.Features{Lease: 2 * time.Second, Callers: 100})
}

// The library extends a lock by itself, and says when that doesn't succeed.
func TestWatchdog(t *testing.T) {
	t.Parallel()
	const validity = 4 * time.Second
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	a, b := open(t, s, validity), open(t, s, validity)
	h, err := a.Acquire(t.Context(), "orders", lock.Options{})
	require.NoError(t, err)
	require.True(t, h.Lease().Expires.IsZero())
	_, err = b.Acquire(t.Context(), "orders", lock.Options{Wait: 3 * validity / 2})
	require.ErrorIs(t, err, lock.ErrNotAcquired)
	require.NoError(t, rdb.Set(t.Context(), "rueidislock:0:orders", "somebody else", time.Minute).Err())
	<-h.Lost()
	require.ErrorIs(t, h.Release(t.Context()), lock.ErrNotHeld)
	require.Equal(t, "somebody else", rdb.Get(t.Context(), "rueidislock:0:orders").Val())
}

// What may have happened is no refusal.
func TestUnknownOutcomes(t *testing.T) {
	s := redistest.Start(t)
	l := open(t, s, 200*time.Millisecond)
	s.Kill()
	for _, wait := range []time.Duration{0, 50 * time.Millisecond} {
		_, err := l.Acquire(t.Context(), "orders", lock.Options{Lease: time.Second, Wait: wait})
		require.Error(t, err)
		require.NotErrorIs(t, err, lock.ErrNotAcquired)
	}
}
