package locktests

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

// A doubler is a hook that sends each script once more, as a proxy may: right after the
// request, whose answer the caller gets, or right before it; or when it is told to.
type doubler struct {
	before bool

	mu     sync.Mutex
	keeps  bool // the next request, for later
	latter func(ctx context.Context) error
}

func (d *doubler) send(ctx context.Context, cmds []redis.Cmder, next send) error {
	var copies []redis.Cmder
	for _, cmd := range cmds {
		if name := cmd.Name(); name == "evalsha" || name == "eval" || name == "set" {
			copies = append(copies, redis.NewCmd(ctx, cmd.Args()...))
		}
	}
	d.mu.Lock()
	kept := d.keeps && len(copies) > 0
	if kept {
		d.keeps = false
		d.latter = func(ctx context.Context) error { return next(ctx, copies) }
	}
	d.mu.Unlock()
	if len(copies) == 0 || kept {
		return next(ctx, cmds)
	}
	if d.before {
		_ = next(ctx, copies)
	}
	err := next(ctx, cmds)
	if !d.before {
		_ = next(ctx, copies)
	}
	return err
}

// A request that reaches the server twice, unknown to the library, grants nothing twice and
// leaves nothing behind. A release of a Mutex leaves no trace, so the answer to its second
// copy is that of a hold that is over. And a copy of its acquire that arrives after the
// release is a grant without a holder, until its lease ends; all other kinds refuse it.
func TestRequestsThatAreDoubledUnseen(t *testing.T) {
	t.Parallel()
	o := lock.Options{Lease: long}
	clients := func(t *testing.T, d *doubler) (doubled, other *lock.Client) {
		t.Helper()
		s := redistest.Start(t)
		rdb := s.Client(t, nil)
		other = open(t, s, lock.Config{})
		onePermit(t, s)
		_, err := other.CountDownLatch("orders").TrySetCount(t.Context(), 2)
		require.NoError(t, err)
		rdb.AddHook(hook(d.send))
		return newClient(t, rdb, lock.Config{}), other
	}
	answers := map[string]bool{"the first answer": false, "the second answer": true}
	for _, kind := range kinds() {
		if kind.shared { // its holders share it
			continue
		}
		refused := func(t *testing.T, c *lock.Client) {
			t.Helper()
			_, err := kind.of(c).Acquire(t.Context(), "orders", o)
			require.ErrorIs(t, err, lock.ErrNotAcquired)
		}
		free := func(t *testing.T, c *lock.Client) {
			t.Helper()
			h, err := kind.of(c).Acquire(t.Context(), "orders", o)
			require.NoError(t, err)
			require.NoError(t, h.Release(t.Context()))
		}
		for name, before := range answers {
			t.Run(kind.name+", "+name, func(t *testing.T) {
				c, other := clients(t, &doubler{before: before})
				h, err := kind.of(c).Acquire(t.Context(), "orders", o)
				require.NoError(t, err)
				require.Equal(t, 1, h.Lease().Holds)
				refused(t, other)
				refused(t, c)
				require.NoError(t, h.Extend(t.Context(), 2*long))
				err = h.Release(t.Context())
				if kind.isString && before {
					require.ErrorIs(t, err, lock.ErrNotHeld)
				} else {
					require.NoError(t, err)
				}
				free(t, other)
			})
		}
		t.Run(kind.name+", late", func(t *testing.T) {
			d := &doubler{}
			c, other := clients(t, d)
			free(t, c) // so that the server knows the scripts
			d.keeps = true
			h, err := kind.of(c).Acquire(t.Context(), "orders", o)
			require.NoError(t, err)
			require.NoError(t, h.Release(t.Context()))
			require.NoError(t, d.latter(t.Context()))
			if !kind.isString {
				free(t, other)
				return
			}
			refused(t, other)
			state, err := other.Mutex("orders").State(t.Context())
			require.NoError(t, err)
			require.Positive(t, state.TTL)
			require.LessOrEqual(t, state.TTL, long, "it ends by itself")
		})
	}
	for name, before := range answers {
		t.Run("Semaphore and CountDownLatch, "+name, func(t *testing.T) {
			c, other := clients(t, &doubler{before: before})
			s, l := c.Semaphore("orders"), c.CountDownLatch("orders")
			require.NoError(t, s.SetPermits(t.Context(), 3))
			require.NoError(t, s.AddPermits(t.Context(), 1))
			require.NoError(t, s.Acquire(t.Context(), 3, 0))
			size, taken, _ := counted(t, other.Semaphore("orders"))
			require.Equal(t, []int{4, 3}, []int{size, taken})
			require.NoError(t, s.Release(t.Context(), 1))
			_, taken, _ = counted(t, other.Semaphore("orders"))
			require.Equal(t, 2, taken)
			left, err := l.CountDown(t.Context())
			require.NoError(t, err)
			require.Equal(t, 1, left)
			zero, err := other.CountDownLatch("orders").Await(t.Context(), 10*time.Millisecond)
			require.NoError(t, err)
			require.False(t, zero)
		})
	}
}
