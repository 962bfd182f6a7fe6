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

// A wait outlives a server that can't be reached, for every kind of lock.
func TestWaitOutlivesAServerThatIsAway(t *testing.T) {
	t.Parallel()
	type asker func(ctx context.Context, c *lock.Client, wait time.Duration) (release func(context.Context) error, err error)
	hold := func(h *lock.Hold, err error) (func(context.Context) error, error) {
		if err != nil {
			return nil, err
		}
		return h.Release, nil
	}
	all := map[string]asker{
		"MultiLock": func(ctx context.Context, c *lock.Client, wait time.Duration) (func(context.Context) error, error) {
			return hold(asOne(t, named(c, "orders", "parts")...).Acquire(ctx, "both", lock.Options{Lease: long, Wait: wait}))
		},
		"Semaphore": func(ctx context.Context, c *lock.Client, wait time.Duration) (func(context.Context) error, error) {
			s := c.Semaphore("orders")
			return func(ctx context.Context) error { return s.Release(ctx, 1) }, s.Acquire(ctx, 1, wait)
		},
		"CountDownLatch": func(ctx context.Context, c *lock.Client, wait time.Duration) (func(context.Context) error, error) {
			l := c.CountDownLatch("orders")
			if wait == 0 { // the one whom the waiter waits for
				return func(ctx context.Context) error {
					_, err := l.CountDown(ctx)
					return err
				}, nil
			}
			zero, err := l.Await(ctx, wait)
			if err == nil && !zero {
				err = lock.ErrNotAcquired
			}
			return func(context.Context) error { return nil }, err
		},
	}
	for _, k := range kinds() {
		all[k.name] = func(ctx context.Context, c *lock.Client, wait time.Duration) (func(context.Context) error, error) {
			l := k.of(c)
			if wait == 0 {
				l = k.excluding(c)
			}
			return hold(l.Acquire(ctx, "orders", lock.Options{Lease: long, Wait: wait}))
		}
	}
	for name, ask := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, network := redistest.Start(t), &redistest.Link{}
			ctx := t.Context()
			holder := open(t, s, lock.Config{})
			waiter := newClient(t, s.Client(t, func(o *redis.Options) { o.MaxRetries = -1; network.Use(o) }), lock.Config{})
			_, err := holder.Semaphore("orders").TrySetPermits(ctx, 1)
			require.NoError(t, err)
			_, err = holder.CountDownLatch("orders").TrySetCount(ctx, 1)
			require.NoError(t, err)
			release, err := ask(ctx, holder, 0)
			require.NoError(t, err)

			type outcome struct {
				release func(context.Context) error
				err     error
			}
			asks := func(ctx context.Context, wait time.Duration) <-chan outcome {
				done := make(chan outcome, 1)
				go func() {
					release, err := ask(ctx, waiter, wait)
					done <- outcome{release, err}
				}()
				return done
			}
			fails := func() {
				t.Helper()
				before := network.Refused()
				redistest.Await(t, "requests that fail", func() bool { return network.Refused() > before+2 })
			}
			heal := network.Cut()
			done := (<-asks(ctx, 50*time.Millisecond))
			require.ErrorContains(t, done.err, "the network is cut", "the wait is over")
			require.NotErrorIs(t, done.err, lock.ErrNotAcquired, "the outcome is not known")
			cancelled, cancel := context.WithCancel(ctx)
			pending := asks(cancelled, lock.Forever)
			fails()
			cancel()
			require.ErrorIs(t, (<-pending).err, context.Canceled)
			pending = asks(ctx, lock.Forever)
			fails()
			heal()
			rdb := s.Client(t, nil)
			redistest.Await(t, "a waiter", func() bool { return len(rdb.PubSubChannels(ctx, "*").Val()) > 0 || name == "SpinMutex" })
			heal = network.Cut()
			fails()
			require.NoError(t, release(ctx))
			heal()
			done = <-pending
			require.NoError(t, done.err)
			// The pool of the waiter may still have a connection that was cut, and this
			// client repeats nothing.
			redistest.Await(t, "a release", func() bool { return done.release(ctx) == nil })
			release, err = ask(ctx, holder, lock.Forever)
			require.NoError(t, err, "nothing is left of the requests that were given up")
			_ = release(ctx)
		})
	}
}

// A wait ends soon after its time, also where the Redis client waits for an answer and repeats the request for much longer.
func TestWaitIsBounded(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := newClient(t, s.Client(t, func(o *redis.Options) {
		o.ReadTimeout, o.MaxRetries, o.ContextTimeoutEnabled = long, 100, false
	}), lock.Config{})
	h := acquire(t, c, "a", 2*long) // the server knows the script
	_, err := c.Acquire(t.Context(), "orders", lock.Options{Owner: "b", Lease: long})
	require.ErrorIs(t, err, lock.ErrNotAcquired)
	counted := latch(t, c, 1)
	resume := s.Pause(t)
	begin, ctx := time.Now(), context.WithoutCancel(t.Context())
	done := awaits(ctx, counted, 50*time.Millisecond)
	_, err = c.Acquire(ctx, "orders", lock.Options{Owner: "b", Lease: long, Wait: 50 * time.Millisecond})
	require.ErrorContains(t, (<-done).err, "no answer within 5s of the end of the wait")
	require.ErrorContains(t, err, "no answer within 5s of the end of the wait")
	require.NotErrorIs(t, err, lock.ErrNotAcquired)
	require.Less(t, time.Since(begin), long/2)
	resume()
	require.NoError(t, h.Release(t.Context()))
	next, err := c.Acquire(t.Context(), "orders", lock.Options{Owner: "c", Lease: long, Wait: long / 2})
	require.NoError(t, err, "what is withdrawn is granted to no client")
	require.NoError(t, next.Release(t.Context()))
}
