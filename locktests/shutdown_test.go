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

// Close has a bound of its own, whatever requests a silent server has not answered.
func TestCloseIsBounded(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	sent := make(chan struct{}, 100)
	c := newClient(t, rdb, lock.Config{})
	h := acquire(t, c, "a", long)
	rdb.AddHook(hook(func(ctx context.Context, cmds []redis.Cmder, next send) error {
		sent <- struct{}{}
		return next(ctx, cmds)
	}))
	resume := s.Pause(t)
	released := make(chan error, 1)
	go func() { released <- h.Release(context.Background()) }() // a context that can't end
	<-sent
	closing := time.Now()
	c.Close()
	require.Less(t, time.Since(closing), 20*time.Second, "the timeouts of go-redis, with all repetitions, take 35s")
	resume()
	require.NoError(t, <-released, "it goes on")
}
