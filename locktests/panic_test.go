package locktests

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

// panicking is a hook that panics once it is armed: before a request is sent, or after.
type panicking struct {
	armed atomic.Bool
	after bool
}

func (p *panicking) DialHook(next redis.DialHook) redis.DialHook { return next }

func (p *panicking) strike(send func() error) error {
	if p.after {
		if err := send(); err != nil {
			return err
		}
	}
	if p.armed.CompareAndSwap(true, false) {
		panic("hook")
	}
	if p.after {
		return nil
	}
	return send()
}

func (p *panicking) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return p.strike(func() error { return next(ctx, cmd) })
	}
}

func (p *panicking) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return p.strike(func() error { return next(ctx, cmds) })
	}
}

// After a panic of a hook, which the caller recovers, the lock is as usable as before, for calls that
// wait too, and nothing is left on the server.
func TestPanicOfAHookLeavesTheLockUsable(t *testing.T) {
	t.Parallel()
	for _, after := range []bool{false, true} {
		s := redistest.Start(t)
		hook := &panicking{after: after}
		rdb := s.Client(t, nil)
		rdb.AddHook(hook)
		c := newClient(t, rdb, lock.Config{})
		o := lock.Options{Lease: long, Wait: long}
		// A context that can't end, so that the request is sent by the caller's goroutine.
		h, err := c.Acquire(context.Background(), "orders", o) // see above
		require.NoError(t, err)
		require.NoError(t, h.Release(t.Context()))
		hook.armed.Store(true)
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
