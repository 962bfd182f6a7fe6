package locktests

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/topologies"
)

// While the slot of a lock moves to another server, and for as long as that takes, a lock
// that is held is refused, held by its owner, released, and granted to the next.
func TestSlotThatStaysMoving(t *testing.T) {
	t.Parallel()
	d := deployment(t, topologies.Cluster, steady(topologies.Cluster))
	migrate, err := faults.ByName("migrate-slot")
	require.NoError(t, err)
	c := newClient(t, clients(t, d, "zone-a")[0], lock.Config{})
	other := newClient(t, clients(t, d, "zone-b")[0], lock.Config{})
	o := lock.Options{Lease: long}
	fair := func(c *lock.Client) locker { return c.FairMutex("orders") }
	for _, kind := range []struct {
		name string
		of   func(c *lock.Client) locker
		asks bool // it can be asked for, too
	}{
		{"Mutex", func(c *lock.Client) locker { return c.Mutex("orders") }, true},
		{"SpinMutex", func(c *lock.Client) locker { return c.SpinMutex("orders", lock.Backoff{}) }, true},
		{"FencedMutex", func(c *lock.Client) locker { return c.FencedMutex("orders") }, false},
		{"FairMutex", fair, false},
	} {
		t.Run(kind.name, func(t *testing.T) {
			h, err := kind.of(c).Acquire(t.Context(), o)
			require.NoError(t, err)
			fault, err := migrate.New(faults.Site{Deployment: d}, faults.Step{Params: map[string]string{"key": "lock:{orders}"}})
			require.NoError(t, err)
			move, err := fault.Inject(t.Context())
			require.NoError(t, err)
			if kind.asks {
				_, err = kind.of(other).Acquire(t.Context(), o)
				require.ErrorIs(t, err, lock.ErrNotAcquired)
			}
			require.NoError(t, h.Extend(t.Context(), 2*long))
			require.NoError(t, h.Release(t.Context()))
			require.ErrorIs(t, h.Release(t.Context()), lock.ErrNotHeld)
			if kind.asks {
				for range 3 { // a free lock, whose other keys are not all at one server
					h, err = kind.of(other).Acquire(t.Context(), o)
					require.NoError(t, err)
					waits := make(chan *lock.Hold, 1)
					go func() {
						defer close(waits)
						if h, err := kind.of(c).Acquire(t.Context(), lock.Options{Lease: long, Wait: lock.Forever}); err == nil {
							waits <- h
						}
					}()
					require.NoError(t, h.Release(context.WithoutCancel(t.Context())))
					next := <-waits
					require.NotNil(t, next)
					require.Greater(t, time.Until(next.Lease().Expires), long/2)
					require.NoError(t, next.Release(t.Context()))
				}
			}
			_, err = move.Heal(t.Context())
			require.NoError(t, err)
		})
	}
}

// locker is what the kinds of lock have in common.
type locker interface {
	Acquire(ctx context.Context, o lock.Options) (*lock.Hold, error)
}
