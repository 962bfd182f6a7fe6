package locktests

import (
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/lock"
)

// watched runs a test with a client that has a watchdog of 30s, on a server in
// virtual time.
func watched(t *testing.T, run func(t *testing.T, f *fake, c *lock.Client, e *events)) {
	t.Helper()
	withFakes(t, 1, func(t *testing.T, f []*fake, clients []redis.UniversalClient) {
		t.Helper()
		e := &events{}
		c, err := lock.New(clients[0], lock.Config{Observer: e})
		require.NoError(t, err)
		defer c.Close()
		run(t, f[0], c, e)
	})
}

func TestWatchdogRenewsEveryThird(t *testing.T) {
	watched(t, func(t *testing.T, f *fake, c *lock.Client, e *events) {
		t.Helper()
		h := acquire(t, c, "a", 0)
		first := h.Lease().Expires
		require.Equal(t, 30*time.Second, h.Lease().Length)
		require.Equal(t, 30*time.Second-302*time.Millisecond, time.Until(first), "1% and 2ms are left out")
		time.Sleep(35 * time.Second)
		require.Equal(t, []string{"10s", "20s", "30s"}, f.log("extend"))
		require.Equal(t, 30*time.Second, h.Lease().Expires.Sub(first))
		require.NoError(t, h.Release(t.Context()))
		time.Sleep(time.Hour)
		require.Len(t, f.log("extend"), 3, "nothing is renewed after the release")
		require.Zero(t, e.count(lock.Lost))
		kinds := []lock.EventKind{}
		for _, ev := range e.list() {
			kinds = append(kinds, ev.Kind)
		}
		require.Equal(t, []lock.EventKind{
			lock.Acquired,
			lock.Renewing, lock.Renewed, lock.Renewing, lock.Renewed, lock.Renewing, lock.Renewed,
			lock.Released,
		}, kinds)
	})
}

func TestWatchdogRepeatsAFailedRenewal(t *testing.T) {
	watched(t, func(t *testing.T, f *fake, c *lock.Client, e *events) {
		t.Helper()
		h := acquire(t, c, "a", 0)
		f.answers(func(string) string { return readOnly })
		time.Sleep(14 * time.Second)
		require.Equal(t, []string{"10s", "10.5s", "11.5s", "13.5s"}, f.log("extend"))
		f.answers(allGood)
		time.Sleep(30 * time.Second)
		require.Equal(t, []string{"10s", "10.5s", "11.5s", "13.5s", "17.5s", "27.5s", "37.5s"}, f.log("extend"))
		require.False(t, isLost(h))
		require.Equal(t, e.count(lock.Renewing), e.count(lock.Renewed))
		require.NoError(t, h.Release(t.Context()))
	})
}

func TestWatchdogLosesTheHoldWhenNoRenewalSucceeds(t *testing.T) {
	watched(t, func(t *testing.T, f *fake, c *lock.Client, e *events) {
		t.Helper()
		h := acquire(t, c, "a", 0)
		f.answers(func(string) string { return readOnly })
		require.Equal(t, 30*time.Second-302*time.Millisecond, lostAfter(t, h))
		tries := len(f.log("extend"))
		require.Greater(t, tries, 5)
		time.Sleep(time.Hour)
		require.Len(t, f.log("extend"), tries, "a lost hold is not renewed")
		require.Equal(t, 1, e.count(lock.Lost))
		f.answers(allGood)
		other, err := c.Acquire(t.Context(), "other", lock.Options{})
		require.NoError(t, err)
		time.Sleep(time.Minute)
		require.False(t, isLost(other), "the watchdog goes on for others")
	})
}

func TestWatchdogRenewsManyInOnePipeline(t *testing.T) {
	watched(t, func(t *testing.T, f *fake, c *lock.Client, e *events) {
		t.Helper()
		const n = 50
		for range n {
			h, err := c.Acquire(t.Context(), "orders", lock.Options{})
			require.NoError(t, err)
			defer func() { require.NoError(t, h.Release(t.Context())) }()
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		at := f.log("extend")
		require.GreaterOrEqual(t, len(at), n)
		require.Equal(t, slices.Repeat([]string{"10s"}, n), at[:n])
		require.Equal(t, e.count(lock.Renewing), e.count(lock.Renewed))
	})
}

// A renewal that is due while the holder extends the lock waits for that, which sets when the next one is due.
func TestRenewalThatIsDueDuringAnExtension(t *testing.T) {
	watched(t, func(t *testing.T, f *fake, c *lock.Client, e *events) {
		t.Helper()
		h := acquire(t, c, "a", 0)
		time.Sleep(9 * time.Second)
		f.answers(func(string) string {
			time.Sleep(2 * time.Second)
			return yes
		})
		require.NoError(t, h.Extend(t.Context(), 30*time.Second))
		f.answers(allGood)
		time.Sleep(11 * time.Second)
		require.Equal(t, []string{"9s", "21s"}, f.log("extend"))
		require.Equal(t, 1, e.count(lock.Renewing))
		require.NoError(t, h.Release(t.Context()))
	})
}

func TestReleaseWaitsForARenewalInFlight(t *testing.T) {
	watched(t, func(t *testing.T, f *fake, c *lock.Client, e *events) {
		t.Helper()
		h := acquire(t, c, "a", 0)
		f.answers(func(script string) string {
			if script == "extend" {
				time.Sleep(time.Second)
			}
			return yes
		})
		time.Sleep(10*time.Second + time.Millisecond)
		require.NoError(t, h.Release(t.Context()))
		require.Equal(t, []string{"11s"}, f.log("release"))
		time.Sleep(time.Hour)
		require.Len(t, f.log("extend"), 1)
		require.Zero(t, e.count(lock.Lost))
	})
}

// A renewal whose answer comes after the end of the lease is no success for the observer.
func TestRenewalThatIsAnsweredTooLate(t *testing.T) {
	t.Parallel()
	watched(t, func(t *testing.T, f *fake, c *lock.Client, e *events) {
		t.Helper()
		begin := time.Now()
		f.answers(func(script string) string {
			switch now := time.Since(begin); {
			case script != "extend":
				return allGood(script)
			case now > 27*time.Second:
				time.Sleep(3 * time.Second)
				return yes
			default:
				return readOnly
			}
		})
		h := acquire(t, c, "a", 0)
		<-h.Lost()
		time.Sleep(time.Minute)
		var last lock.Event
		for _, ev := range e.list() {
			if ev.Kind == lock.Renewed {
				last = ev
			}
		}
		require.ErrorIs(t, last.Err, lock.ErrLost)
		require.NotErrorIs(t, last.Err, lock.ErrNotHeld)
		require.Equal(t, 1, e.count(lock.Lost))
	})
}
