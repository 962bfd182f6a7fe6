package locktests

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

// panicking is a hook that panics once it is armed: before a request is sent, or after.
type panicking struct {
	armed   atomic.Bool
	after   bool
	several bool // only where several calls are sent together
}

func (p *panicking) send(ctx context.Context, cmds []redis.Cmder, next send) error {
	if p.several && (len(cmds) == 1 || cmds[0].Name() == "hello") {
		return next(ctx, cmds)
	}
	if p.after {
		if err := next(ctx, cmds); err != nil {
			return err
		}
	}
	if p.armed.CompareAndSwap(true, false) {
		panic("hook")
	}
	if p.after {
		return nil
	}
	return next(ctx, cmds)
}

// After a panic of a hook, which the caller recovers, the lock is as usable as before, for calls that
// wait too, and nothing is left on the server.
func TestPanicOfAHookLeavesTheLockUsable(t *testing.T) {
	t.Parallel()
	for _, after := range []bool{false, true} {
		s := redistest.Start(t)
		p := &panicking{after: after}
		rdb := s.Client(t, nil)
		rdb.AddHook(hook(p.send))
		c := newClient(t, rdb, lock.Config{})
		o := lock.Options{Lease: long, Wait: long}
		// A context that can't end, so that the request is sent by the caller's goroutine.
		h, err := c.Acquire(context.Background(), "orders", o) // see above
		require.NoError(t, err)
		require.NoError(t, h.Release(t.Context()))
		p.armed.Store(true)
		require.PanicsWithValue(t, "hook", func() {
			_, _ = c.Acquire(context.Background(), "orders", o) // see above
		})
		soonerThan(t, s.Client(t, nil), long/2, "the lease of the call that panicked", func() {
			h, err = c.Acquire(t.Context(), "orders", o)
			require.NoError(t, err)
		})
		require.NoError(t, h.Release(t.Context()))
		c.Close()
		require.Empty(t, keysLeft(t, s.Client(t, nil)))
	}
}

// Calls that shared a pipeline with one in which a hook panicked may have been granted their locks, and leave
// nothing behind.
func TestPanicOfAHookInAPipeline(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := &panicking{after: true, several: true}
	rdb := s.Client(t, func(o *redis.Options) { o.PoolSize = 2 }) // so that all but one call are queued
	rdb.AddHook(hook(p.send))
	c := newClient(t, rdb, lock.Config{})
	require.NoError(t, acquire(t, c, "a", long).Release(t.Context())) // the server knows the scripts
	p.armed.Store(true)
	var callers sync.WaitGroup
	for i := range 8 {
		callers.Go(func() {
			defer func() { _ = recover() }() // as a server of HTTP does
			for p.armed.Load() {
				// A context that can't end, so that the request is sent by the caller's goroutine.
				h, err := c.Acquire(context.Background(), fmt.Sprint("orders ", i), lock.Options{Lease: long})
				if err == nil {
					_ = h.Release(context.Background()) // see above
				}
			}
		})
	}
	callers.Wait()
	c.Close() // which awaits what is taken back
	require.Empty(t, keysLeft(t, s.Client(t, nil)))
}
