package simulation

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// guarded tells of a run that is watched and never done, when it was given up, and why. Something
// happens in it each second, until the run has come so far.
func guarded(t *testing.T, happens time.Duration) (given time.Duration, why, goroutines string) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		begin, ended := time.Now(), make(chan struct{})
		events := func() int64 { return int64(min(time.Since(begin), happens) / time.Second) }
		guard("a run", events, func(reason string, stacks []byte) {
			given, why, goroutines = time.Since(begin), reason, string(stacks)
			close(ended)
		})
		<-ended
	})
	return given, why, goroutines
}

// A run in which nothing happens any more is given up, and so is one in which something happens again and
// again. The stacks of all goroutines are told.
func TestGuard(t *testing.T) {
	for _, x := range []struct {
		happens, given time.Duration
		why            string
	}{
		{0, stillLimit, "a run hangs: nothing happened in it for 20s by the real clock. Simulated time stands still while a goroutine waits for a mutex"},
		{2 * time.Minute, 2*time.Minute + stillLimit, "a run hangs"},
		{time.Hour, runLimit, "a run does not end: it has taken 5m0s by the real clock"},
	} {
		given, why, goroutines := guarded(t, x.happens)
		require.Equal(t, x.given, given)
		require.Contains(t, why, x.why)
		require.Contains(t, goroutines, "TestGuard")
	}
}

// A run that has ended is watched no longer.
func TestGuard_Done(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		done := guard("a run", func() int64 { return 0 }, func(why string, _ []byte) { t.Error(why) })
		time.Sleep(stillLimit / 2)
		done()
		time.Sleep(runLimit)
	})
}
