package locktests

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

// Beside clients that hand a lock over among each other without an end, a client that
// waits in another way is granted it too: one that spins, one that tries again and
// again, and one that wants acknowledgements of replicas.
func TestNoClientStarvesBesideAHandOver(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	s.Replica(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var busy sync.WaitGroup
	var grants atomic.Int64
	for range 2 {
		c := open(t, s, lock.Config{})
		for range 4 {
			busy.Go(func() {
				for ctx.Err() == nil {
					if h, err := c.Acquire(ctx, "orders", lock.Options{Lease: long, Wait: lock.Forever}); err == nil {
						grants.Add(1)
						_ = h.Release(context.WithoutCancel(ctx))
					}
				}
			})
		}
	}
	defer busy.Wait()
	defer cancel()
	c, acked := open(t, s, lock.Config{}), open(t, s, lock.Config{ReplicaAcks: 1, AckTimeout: attentive})
	for name, get := range map[string]func() (*lock.Hold, error){
		"spin": func() (*lock.Hold, error) {
			return c.SpinMutex("orders", lock.Backoff{}).Acquire(ctx, within(lock.Forever, lock.Options{Lease: long}))
		},
		"try": func() (*lock.Hold, error) {
			for {
				h, err := c.Mutex("orders").Acquire(ctx, lock.Options{Lease: long})
				if !errors.Is(err, lock.ErrNotAcquired) {
					return h, err
				}
				time.Sleep(5 * time.Millisecond)
			}
		},
		"acked": func() (*lock.Hold, error) {
			return acked.Mutex("orders").Acquire(ctx, within(lock.Forever, lock.Options{Lease: long}))
		},
	} {
		begin := time.Now()
		h, err := get()
		require.NoError(t, err, name)
		require.NoError(t, h.Release(ctx), name)
		t.Logf("%s after %v, %d grants", name, time.Since(begin), grants.Load())
	}
}
