package locktests

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

// A lock that no other client wants costs one command, and one script to give back, of a Redis client
// that heeds deadlines. A client that was refused asks by script, so that it isn't refused twice.
func TestFirstRequestIsOneCommand(t *testing.T) {
	s := redistest.Start(t)
	rdb, holder := s.Client(t, nil), open(t, s, lock.Config{})
	c := open(t, s, lock.Config{})
	require.NoError(t, acquire(t, c, "a", long).Release(t.Context())) // the server is known to answer soon
	sent := func(f func()) (sets, scripts string) {
		t.Helper()
		require.NoError(t, rdb.ConfigResetStat(t.Context()).Err())
		f()
		stats := rdb.InfoMap(t.Context(), "commandstats").Val()["Commandstats"]
		return stats["cmdstat_set"], stats["cmdstat_evalsha"]
	}
	sets, scripts := sent(func() { require.NoError(t, acquire(t, c, "a", long).Release(t.Context())) })
	require.Contains(t, sets, "calls=1,")
	require.Contains(t, scripts, "calls=1,")

	h := acquire(t, holder, "b", long)
	refused := func() {
		_, err := c.Acquire(t.Context(), "orders", lock.Options{Owner: "a", Lease: long})
		require.ErrorIs(t, err, lock.ErrNotAcquired)
	}
	sets, scripts = sent(refused)
	require.Contains(t, sets, "calls=1,")
	require.Contains(t, scripts, "calls=1,")
	sets, scripts = sent(refused)
	require.Empty(t, sets)
	require.Contains(t, scripts, "calls=1,")
	require.NoError(t, h.Release(t.Context()))
	require.NoError(t, acquire(t, c, "a", long).Release(t.Context())) // granted at once, by script
	sets, _ = sent(func() { require.NoError(t, acquire(t, c, "a", long).Release(t.Context())) })
	require.Contains(t, sets, "calls=1,")
}

// Callers that are cancelled while a server is silent return soon, and leave nothing behind once it answers.
func TestCancelledCallersOfASilentServer(t *testing.T) {
	s := redistest.Start(t)
	rdb, c := s.Client(t, nil), open(t, s, lock.Config{})
	require.NoError(t, acquire(t, c, "a", long).Release(t.Context())) // the server is known to answer soon
	resume := s.Pause(t)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	var callers sync.WaitGroup
	var mu sync.Mutex
	var latest time.Duration
	begin := time.Now()
	for range 16 {
		callers.Go(func() {
			_, err := c.Acquire(ctx, "orders", lock.Options{Lease: long})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				t.Error("granted")
			}
			latest = max(latest, time.Since(begin))
		})
	}
	callers.Wait()
	t.Logf("all are back after %v", latest)
	require.Less(t, latest, time.Second, "it is about 100ms, and 5s if requests are awaited")
	resume()
	c.Close() // which awaits what is taken back
	redistest.Await(t, "nothing to be left", func() bool { return len(keysLeft(t, rdb)) == 0 })
}
