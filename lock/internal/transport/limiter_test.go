package transport

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockchaos/lockchaos/lock/internal/require"
)

// One timer ends each request at its own time, also where it was set for a later one, or for one that has ended.
func TestLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l limiter
		start := time.Now()
		first := l.begin(t.Context(), start.Add(time.Minute))
		require.NoError(t, first.Err())
		l.end(first)
		<-first.Done()
		require.ErrorIs(t, first.Err(), context.Canceled)
		for _, limit := range []time.Duration{time.Second, 2 * time.Minute, time.Second} {
			begin := time.Now()
			c := l.begin(t.Context(), begin.Add(limit))
			<-c.Done()
			require.Equal(t, limit, time.Since(begin))
			require.ErrorIs(t, c.Err(), context.DeadlineExceeded)
			l.end(c)
			require.ErrorIs(t, c.Err(), context.DeadlineExceeded)
		}
		sooner, cancel := context.WithTimeout(t.Context(), time.Second)
		c := l.begin(sooner, time.Now().Add(time.Hour))
		cancel()
		require.NoError(t, c.Err(), "the end of its caller is none of its own")
		at, ok := c.Deadline()
		require.True(t, ok && time.Until(at) == time.Second)
	})
}
