package locktests

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

// A lock that changes hands has the lease that its new holder asked for when Acquire returns, and
// keeps it where the server stops at once. A lease of the watchdog, which no caller asked for, may
// be shorter at first, and says so.
func TestLeaseOfALockThatWasHandedOver(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		owner  string
		lease  time.Duration
		length time.Duration
	}{
		{"long", "b", long, long},
		{"long, without an owner", "", long, long},
		{"short", "b", 3 * time.Second, 3 * time.Second},
		{"watched", "b", 0, 5 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			rdb := s.Client(t, nil)
			holder := open(t, s, lock.Config{})
			c := listening(t, s, holder, lock.Config{})
			h := acquire(t, holder, "a", long)
			holds := granting(t.Context(), t, c, lock.Options{Owner: tt.owner, Lease: tt.lease, Wait: lock.Forever})
			queued(t, rdb, 1)
			require.NoError(t, h.Release(t.Context()))
			next := <-holds
			require.NotNil(t, next)
			l := next.Lease()
			require.Equal(t, tt.length, l.Length)
			require.Greater(t, time.Until(l.Expires), l.Length/2)
			require.Greater(t, rdb.PTTL(t.Context(), "lock:{orders}").Val(), l.Length/2)
			if tt.lease == 0 {
				redistest.Await(t, "the watchdog's lease", func() bool { return next.Lease().Length == 30*time.Second })
				require.Greater(t, time.Until(next.Lease().Expires), 15*time.Second)
			}
			require.NoError(t, next.Release(t.Context()))
		})
	}
}
