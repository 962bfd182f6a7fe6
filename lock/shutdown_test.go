package lock_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/internal/redistest"
)

// A call whose context ends returns at once, also after Close and in Shutdown: not when the
// Redis client gives the request up.
func TestContextEndsCallsOfAClosedClient(t *testing.T) {
	for name, call := range map[string]func(c *lock.Client, h *lock.Hold, ctx context.Context) error{
		"release": func(c *lock.Client, h *lock.Hold, ctx context.Context) error {
			c.Close()
			return h.Release(ctx)
		},
		"shutdown": func(c *lock.Client, _ *lock.Hold, ctx context.Context) error { return c.Shutdown(ctx) },
		"shutdown with a request in flight": func(c *lock.Client, h *lock.Hold, ctx context.Context) error {
			over, cancel := context.WithCancel(ctx)
			cancel()
			_ = h.Release(over) // goes on in the background
			return c.Shutdown(ctx)
		},
		"inspection": func(c *lock.Client, _ *lock.Hold, ctx context.Context) error {
			c.Close()
			_, err := c.Mutex("orders").ForceUnlock(ctx)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, link := redistest.Start(t), &redistest.Link{}
			c := newClient(t, s.Client(t, func(o *redis.Options) {
				link.Use(o)
				o.ReadTimeout, o.MaxRetries = time.Hour, -1
			}), lock.Config{})
			h := acquire(t, c, "", long)
			held, deliver := link.HoldReplies("evalsha")
			defer deliver()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			result := make(chan error, 1)
			go func() { result <- call(c, h, ctx) }()
			<-held
			cancel()
			select {
			case err := <-result:
				require.ErrorIs(t, err, context.Canceled)
			case <-time.After(time.Minute):
				t.Error("the call outlives its context")
			}
		})
	}
}
