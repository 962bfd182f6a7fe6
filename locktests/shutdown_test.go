package locktests

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/redistest"
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

// stops is an observer at which a call stops that was just granted a lock.
type stops struct{ reached, goOn chan struct{} }

func (s stops) Observe(e lock.Event) {
	if e.Kind == lock.Acquired && e.Lease.Name == "orders" {
		close(s.reached)
		<-s.goOn
	}
}

// A hold is released also where its call returns only after Shutdown was called.
func TestShutdownAwaitsCallsThatAreReturning(t *testing.T) {
	t.Parallel()
	q := startQuorum(t, 3)
	type client interface {
		lock.Locker
		Shutdown(ctx context.Context) error
	}
	for name, open := range map[string]func(o lock.Observer) client{
		"Client": func(o lock.Observer) client { return open(t, q[0], lock.Config{Observer: o}) },
		"Redlock": func(o lock.Observer) client {
			return q.redlock(t, lock.RedlockConfig{Observer: o, NodeTimeout: patient})
		},
	} {
		t.Run(name, func(t *testing.T) {
			at := stops{make(chan struct{}), make(chan struct{})}
			c := open(at)
			done := make(chan error, 1)
			go func() {
				_, err := c.Acquire(t.Context(), "orders", lock.Options{Lease: long})
				done <- err
			}()
			<-at.reached
			shut := make(chan error, 1)
			go func() { shut <- c.Shutdown(t.Context()) }()
			redistest.Await(t, "the client to be closed", func() bool {
				h, err := c.Acquire(t.Context(), "other", lock.Options{Lease: long})
				if err == nil {
					err = h.Release(t.Context())
				}
				return errors.Is(err, lock.ErrClosed)
			})
			select {
			case err := <-shut:
				t.Error("Shutdown returned before the call did:", err)
			case <-time.After(50 * time.Millisecond): // about as long as a release takes
			}
			close(at.goOn)
			require.NoError(t, <-done)
			if !t.Failed() {
				require.NoError(t, <-shut)
			}
			require.Empty(t, q.on(t), "the hold was released")
		})
	}
}
