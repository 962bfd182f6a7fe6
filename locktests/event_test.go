package locktests

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

type caller struct{}

// An observer is told of every call that asked for a lock, whatever became of it, and
// of extensions, each with the context of its caller.
func TestObserverSeesEveryCall(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	e := &events{}
	c := newClient(t, s.Client(t, func(o *redis.Options) { o.MaxRetries, o.DialerRetries = -1, 1 }), lock.Config{Observer: e})
	var servers []redis.UniversalClient
	for range 3 {
		servers = append(servers, redistest.Start(t).Client(t, nil))
	}
	redlock, err := lock.NewRedlock(servers, lock.RedlockConfig{Observer: e, NodeTimeout: time.Minute})
	require.NoError(t, err)
	defer redlock.Close()
	ctx := context.WithValue(t.Context(), caller{}, "me")
	for _, l := range []lock.Locker{c, redlock} {
		h, err := l.Acquire(ctx, "orders", lock.Options{Owner: "a", Lease: long})
		require.NoError(t, err)
		_, err = l.Acquire(ctx, "orders", lock.Options{Owner: "b", Lease: long})
		require.ErrorIs(t, err, lock.ErrNotAcquired)
		require.NoError(t, h.Extend(ctx, long))
		require.NoError(t, h.Release(ctx))
	}
	_, err = c.Semaphore("orders").Lease(ctx, 1, lock.Options{})
	require.ErrorIs(t, err, lock.ErrNotSet)
	s.Kill()
	_, err = c.Acquire(ctx, "orders", lock.Options{Owner: "b", Lease: long})
	require.Error(t, err)
	once := []lock.EventKind{lock.Acquired, lock.Refused, lock.Extended, lock.Released}
	want := append(append(append([]lock.EventKind{}, once...), once...), lock.Refused, lock.Failed)
	var got []lock.EventKind
	for _, ev := range e.list() {
		got = append(got, ev.Kind)
		require.Equal(t, "me", ev.Context.Value(caller{}), ev.Kind)
	}
	require.Equal(t, want, got)
	require.Equal(t, "extended", lock.Extended.String())
}
