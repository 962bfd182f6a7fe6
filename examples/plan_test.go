package orders_test

import (
	"context"
	"testing"
	"time"

	"github.com/lockchaos/lockchaos/chaos"
	"github.com/lockchaos/lockchaos/lock"

	"example.com/orders"
)

// The test binary is also the client that a scenario pauses or kills.
func TestMain(m *testing.M) { chaos.Main(m, ordersLock) }

// With Sentinel, two seeds, and the faults that a correct lock survives there.
func TestLockOnSentinel(t *testing.T) {
	t.Parallel()
	chaos.Run(t, ordersLock, chaos.Plan{Topology: "sentinel", Seeds: "1-2", Length: 3 * time.Second})
}

// What a lock of one key can't prevent: these tests say that it is known.
func TestKnownLimits(t *testing.T) {
	t.Parallel()
	chaos.Reproduce(t, ordersLock, "failover-double-grant", chaos.Invalid) // replication is asynchronous
	chaos.Reproduce(t, ordersLock, "paused-holder", chaos.Invalid)         // there are no fencing tokens
}

var buggyLock = chaos.New("orders-buggy", func(s chaos.Servers) (lock.Locker, func() error, error) {
	l := orders.NewBuggy(s.Redis)
	return chaos.Tries(func(ctx context.Context, name string, lease time.Duration) (chaos.Grant, error) {
		token, err := l.TryLock(ctx, name, lease)
		return chaos.Grant{Release: func(ctx context.Context) error {
			return chaos.Means(l.Unlock(ctx, name, token), orders.ErrNotHeld, lock.ErrNotHeld)
		}}, chaos.Means(err, orders.ErrTaken, lock.ErrNotAcquired)
	}), nil, nil
})

// The bug is found by the scenario that is about it, and the correct lock passes its
// control. A test with Smoke or Run would fail.
func TestBuggyLock(t *testing.T) {
	t.Parallel()
	chaos.Reproduce(t, buggyLock, "late-release-double-grant", chaos.Invalid)
	chaos.Reproduce(t, ordersLock, "late-release-double-grant/owner-checked", chaos.Valid)
}
