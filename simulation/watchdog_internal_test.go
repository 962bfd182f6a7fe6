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

// A run in which nothing happens is given up, and the stacks of all goroutines are told.
func TestGuard_NothingHappens(t *testing.T) {
	given, why, goroutines := guarded(t, 0)
	require.Equal(t, stillLimit, given)
	require.Contains(t, why, "a run hangs: nothing happened in it for 20s by the real clock. Simulated time stands still while a goroutine waits for a mutex")
	require.Contains(t, goroutines, "TestGuard_NothingHappens")
}

// A run that takes long is given up only after something has happened in it for the last time.
func TestGuard_Slow(t *testing.T) {
	given, why, _ := guarded(t, 2*time.Minute)
	require.Equal(t, 2*time.Minute+stillLimit, given)
	require.Contains(t, why, "a run hangs")
}

// A run in which something happens again and again is given up as well.
func TestGuard_NeverEnds(t *testing.T) {
	given, why, _ := guarded(t, time.Hour)
	require.Equal(t, runLimit, given)
	require.Equal(t, "a run does not end: it has taken 5m0s by the real clock", why)
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
