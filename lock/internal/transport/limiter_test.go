package transport

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockchaos/lockchaos/lock/internal/require"
)

// Each request ends at its own time, also where one before has ended, or had more time.
func TestLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l limiter
		sooner, cancel := context.WithTimeout(t.Context(), time.Second)
		answered := l.begin(sooner, time.Now().Add(time.Minute))
		cancel()
		at, _ := answered.Deadline()
		require.Equal(t, time.Second, time.Until(at))
		l.end()
		for _, limit := range []time.Duration{2 * time.Minute, time.Second, time.Minute} {
			begin := time.Now()
			c := l.begin(t.Context(), begin.Add(limit))
			<-c.Done()
			require.Equal(t, limit, time.Since(begin))
			require.ErrorIs(t, c.Err(), context.DeadlineExceeded)
		}
		require.NoError(t, answered.Err(), "neither its caller's end is its own, nor that of a request after it")
	})
}
