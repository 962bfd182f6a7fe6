package orders_test

import (
	"context"
	"testing"
	"time"

	"github.com/lockchaos/lockchaos/chaos"
	"github.com/lockchaos/lockchaos/lock"

	"example.com/orders"
)

var ordersLock = chaos.New("orders", func(s chaos.Servers) (lock.Locker, func() error, error) {
	l := orders.New(s.Redis)
	return chaos.Tries(func(ctx context.Context, name string, lease time.Duration) (chaos.Grant, error) {
		token, err := l.TryLock(ctx, name, lease)
		return chaos.Grant{Release: func(ctx context.Context) error {
			return chaos.Means(l.Unlock(ctx, name, token), orders.ErrNotHeld, lock.ErrNotHeld)
		}}, chaos.Means(err, orders.ErrTaken, lock.ErrNotAcquired)
	}), nil, nil
})

func TestLock(t *testing.T) { chaos.Smoke(t, ordersLock) }
