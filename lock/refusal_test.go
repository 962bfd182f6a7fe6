package lock

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/lock/internal/require"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

// twoWays is a client whose first connections use a network of their own, and those
// after turn was called another one.
func twoWays(t *testing.T, s *redistest.Server) (rdb *redis.Client, first *redistest.Link, turn func()) {
	t.Helper()
	first = &redistest.Link{}
	var turned atomic.Bool
	rdb = s.Client(t, func(o *redis.Options) {
		o.ReadTimeout = 500 * time.Millisecond
		first.Use(o)
		over := o.Dialer
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if turned.Load() {
				return s.Dial(ctx)
			}
			return over(ctx, network, addr)
		}
	})
	return rdb, first, func() { turned.Store(true) }
}

// evaluated is how many scripts a server has run.
func evaluated(t *testing.T, rdb *redis.Client) string {
	t.Helper()
	info, err := rdb.InfoMap(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	return info["Commandstats"]["cmdstat_evalsha"]
}

// A request that was refused leaves nothing behind, also where a copy of it arrives once
// the lock is free.
func TestLateCopyOfARefusedRequest(t *testing.T) {
	o := Options{Lease: time.Hour}
	spin := func(c *Client) *Mutex { return &c.SpinMutex("orders", Backoff{}).Mutex }
	write := func(c *Client) *RWSide { return c.RWMutex("orders", RWOptions{}).Write() }
	held := func(h *Hold, err error) (func(context.Context) error, error) {
		if err != nil {
			return nil, err
		}
		return h.Release, nil
	}
	for _, tt := range []struct {
		name  string
		ask   func(ctx context.Context, c *Client) (release func(context.Context) error, err error)
		again func(ctx context.Context, c *Client) error // optional
	}{
		{"mutex", func(ctx context.Context, c *Client) (func(context.Context) error, error) {
			return held(c.Mutex("orders").Acquire(ctx, o))
		}, nil},
		{"spin mutex that waits", func(ctx context.Context, c *Client) (func(context.Context) error, error) {
			return held(spin(c).Acquire(ctx, o))
		}, func(ctx context.Context, c *Client) error {
			_, err := spin(c).Acquire(ctx, within(time.Second, o))
			return err
		}},
		{"fair mutex", func(ctx context.Context, c *Client) (func(context.Context) error, error) {
			return held(c.FairMutex("orders").Acquire(ctx, o))
		}, nil},
		{"write side", func(ctx context.Context, c *Client) (func(context.Context) error, error) {
			return held(write(c).Acquire(ctx, o))
		}, nil},
		{"permits with a lease", func(ctx context.Context, c *Client) (func(context.Context) error, error) {
			return held(c.Semaphore("orders").Lease(ctx, 1, o))
		}, nil},
		{"permits", func(ctx context.Context, c *Client) (func(context.Context) error, error) {
			s := c.Semaphore("orders")
			return func(ctx context.Context) error { return s.Release(ctx, 1) }, s.Acquire(ctx, 1, 0)
		}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			direct := s.Client(t, nil)
			holder, err := New(direct, Config{})
			require.NoError(t, err)
			t.Cleanup(holder.Close)
			require.NoError(t, holder.Semaphore("orders").SetPermits(t.Context(), 1))
			rdb, first, turn := twoWays(t, s)
			c, err := New(rdb, Config{})
			require.NoError(t, err)
			t.Cleanup(c.Close)
			release, err := tt.ask(t.Context(), c) // so that there is a connection, and the server knows the scripts
			require.NoError(t, err)
			require.NoError(t, release(t.Context()))
			release, err = tt.ask(t.Context(), holder)
			require.NoError(t, err)

			turn()
			deliver := first.HoldRequests()
			if tt.again == nil {
				_, err = tt.ask(t.Context(), c)
			} else {
				err = tt.again(t.Context(), c)
			}
			require.ErrorIs(t, err, ErrNotAcquired)
			require.NoError(t, release(t.Context()))
			before := evaluated(t, direct)
			deliver()
			redistest.Await(t, "the copy to arrive", func() bool { return evaluated(t, direct) != before })
			release, err = tt.ask(t.Context(), holder)
			require.NoError(t, err, "it is free")
			require.NoError(t, release(t.Context()))
		})
	}
}

// A first request whose answer was lost is withdrawn once the grant has ended, however that was: a copy that
// comes then keeps the lock no longer than that takes.
func TestLateCopyOfAGrantThatHasEnded(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, c *Client, h *Hold){
		"released": func(t *testing.T, _ *Client, h *Hold) {
			t.Helper()
			require.NoError(t, h.Release(t.Context()))
		},
		"lost": func(t *testing.T, c *Client, h *Hold) {
			t.Helper()
			_, err := c.Mutex("orders").ForceUnlock(t.Context())
			require.NoError(t, err)
			require.ErrorIs(t, h.Extend(t.Context(), time.Minute), ErrNotHeld)
			<-h.Lost()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, link, rdb := linked(t)
			dropped := link.DropReply("\r\nset\r\n")
			var h *Hold
			redistest.Await(t, "a first request", func() bool { // a server that is slow just now gets none
				var err error
				h, err = c.Acquire(t.Context(), "orders", Options{Lease: time.Minute})
				require.NoError(t, err)
				select {
				case <-dropped:
					return true
				default:
					require.NoError(t, h.Release(t.Context()))
					return false
				}
			})
			g := grantOf(t, h)
			end(t, c, h)
			redistest.Await(t, "the copy to arrive", func() bool {
				return rdb.SetNX(t.Context(), g.keys.lock, g.held(), time.Hour).Val()
			})
			redistest.Await(t, "the copy to be withdrawn", func() bool { return !exists(t, rdb) })
		})
	}
}
