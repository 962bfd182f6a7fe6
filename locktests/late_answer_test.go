package locktests

import (
	"sync"
	"testing"
	"time"

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
