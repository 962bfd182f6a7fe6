package locktests

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

// The first request of a caller is granted by a server that stood still, and its answer comes too late. The
// caller asks again by itself and learns it, and does not wait behind another caller of its client, which
// is refused because of that grant.
func TestTwoCallersWhileAServerStandsStill(t *testing.T) {
	t.Parallel()
	const lease = 20 * time.Second
	s := redistest.Start(t)
	c := open(t, s, lock.Config{})
	for range 3 { // the server is known to answer soon
		require.NoError(t, acquire(t, c, "", long).Release(t.Context()))
	}
	resume := s.Pause(t)
	var both sync.WaitGroup
	begin := time.Now()
	for range 2 {
		both.Go(func() {
			if h, err := c.Acquire(t.Context(), "orders", lock.Options{Wait: 2 * lease, Lease: lease}); err == nil {
				_ = h.Release(t.Context())
			}
		})
	}
	time.Sleep(60 * time.Millisecond) // longer than a caller waits for the answer to its first request
	resume()
	both.Wait()
	require.Less(t, time.Since(begin), lease/2, "they waited until the lease was over")
}

// A nilHider has no error for a reply that is nil, as a hook may that counts errors.
type nilHider struct{}

func (nilHider) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (nilHider) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (nilHider) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, c := range cmds {
			if errors.Is(c.Err(), redis.Nil) {
				c.SetErr(nil)
			}
		}
		if errors.Is(err, redis.Nil) {
			return nil
		}
		return err
	}
}

// Only OK is a grant: a refusal stays one where a hook hides that the reply was nil.
func TestARefusalThatAHookHides(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t, func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	rdb.AddHook(nilHider{})
	c, other := newClient(t, rdb, lock.Config{}), open(t, s, lock.Config{})
	for range 2 {
		require.NoError(t, acquire(t, c, "a", long).Release(t.Context()))
	}
	acquire(t, other, "b", long)
	_, err := c.Acquire(t.Context(), "orders", lock.Options{Owner: "a", Lease: long})
	require.ErrorIs(t, err, lock.ErrNotAcquired)
}
