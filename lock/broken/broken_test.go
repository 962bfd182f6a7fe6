package broken

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/internal/redistest"
	"github.com/lockchaos/lockchaos/lock/locktest"
)

// Each bug is blamed by the checks that it breaks and by no other, and the same
// lock without a bug passes.
func TestBugs(t *testing.T) {
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	tests := []struct {
		name string
		make func(redis.UniversalClient) lock.Locker
		want []string
	}{
		{"no bug", func(rdb redis.UniversalClient) lock.Locker { return correct(rdb) }, nil},
		{"plain delete", PlainDelete, []string{
			"a release after the lease is refused",
			"a late release leaves the next holder alone",
		}},
		{"constant token", ConstantToken, []string{
			"a held lock is refused",
			"locks of different names are independent",
			"a waiter is handed the lock",
			"a wait ends with a refusal",
			"a cancelled wait leaves nothing behind",
			"a lease that ends lets the next one in",
			"a release after the lease is refused",
			"a late release leaves the next holder alone",
			"a second release is refused",
			"an extended lease lasts longer",
			"an extension after the lease is refused",
			"one of many callers gets the lock",
			"many waiters take turns",
			"an owner is refused its own lock",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var failed []string
			for _, c := range locktest.Checks(locktest.Features{Callers: 100}) {
				require.NoError(t, rdb.FlushAll(t.Context()).Err())
				if err := c.Run(t.Context(), tt.make(rdb)); err != nil {
					t.Logf("%s: %v", c.Name, err)
					failed = append(failed, c.Name)
				}
			}
			require.Equal(t, tt.want, failed)
		})
	}
}

func Example() { //nolint:testableexamples // needs a server
	ctx := context.Background()
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	locks := PlainDelete(rdb)
	h, err := locks.Acquire(ctx, "orders", lock.Options{Lease: time.Second})
	if err != nil {
		return
	}
	_ = h.Release(ctx) // also when somebody else holds the lock by now
}
