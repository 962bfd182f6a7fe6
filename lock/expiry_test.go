package lock

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockchaos/lockchaos/lock/internal/require"
)

// willing keeps any grant, and is slow to hear of its loss.
type willing struct{ slow time.Duration }

func (w willing) Extend(_ context.Context, _ Lease, d time.Duration) (time.Time, error) {
	return time.Now().Add(d), nil
}
func (w willing) Release(context.Context, Lease) error { return nil }
func (w willing) taskGroup() *taskGroup                { return nil }
func (w willing) onLost(*Hold, Lease)                  { time.Sleep(w.slow) }
func (w willing) onEnd(*Hold)                          {}
func (w willing) onMove(*Hold)                         {}

// timed is a hold of a client with that timer.
func timed(c *expiryTimer, lease time.Duration, w willing) *Hold {
	h := newHold(Lease{Name: "orders", Expires: time.Now().Add(lease)}, w)
	h.expiry, h.hooks = c, w
	h.start()
	return h
}

// Of many holds with one timer, each is lost at its own end, neither before nor
// later, whatever became of the others.
func TestHoldsShareAClock(t *testing.T) {
	t.Parallel()
	const n = 1000
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	some := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // not for secrets
	lease := func() time.Duration { return time.Second + time.Duration(some.Int64N(int64(time.Minute))) }
	synctest.Test(t, func(t *testing.T) {
		var c expiryTimer
		began := time.Now()
		holds, ends, lost := make([]*Hold, n), make([]time.Duration, n), make([]time.Duration, n)
		for i := range holds {
			ends[i] = lease()
			holds[i] = timed(&c, ends[i], willing{slow: time.Hour}) // which the others must not feel
			go func() {
				<-holds[i].Lost()
				lost[i] = time.Since(began)
			}()
		}
		time.Sleep(time.Second - 1)
		for i, h := range holds {
			switch some.IntN(3) {
			case 0:
				d := lease()
				ends[i] = time.Since(began) + d
				require.NoError(t, h.Extend(t.Context(), d))
			case 1:
				ends[i] = 0
				require.NoError(t, h.Release(t.Context()))
			}
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, ends, lost)
		require.Empty(t, c.queue)
		for i, h := range holds {
			if ends[i] == 0 {
				h.end(false) // its goroutine waits
			}
		}
		time.Sleep(time.Hour)
	})
}

// Holds that are released before the timer would fire for them don't touch its timer,
// and none is forgotten when it has rung for nothing.
func TestClockIsSetOnceALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c expiryTimer
		h := timed(&c, time.Minute, willing{})
		rings := func() time.Time {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.nextFire
		}
		first := rings()
		require.Equal(t, time.Minute, time.Until(first))
		require.NoError(t, h.Release(t.Context()))
		for range 59 {
			time.Sleep(time.Second)
			h = timed(&c, time.Minute, willing{})
			require.Equal(t, first, rings())
			require.NoError(t, h.Release(t.Context()))
			require.Empty(t, c.queue)
		}
		h = timed(&c, time.Minute, willing{})
		time.Sleep(30 * time.Second)
		synctest.Wait()
		require.Equal(t, 30*time.Second, time.Until(rings()))
		soon := timed(&c, time.Second, willing{})
		require.Equal(t, time.Second, time.Until(rings()), "a lease that ends sooner isn't late")
		<-soon.Lost()
		<-h.Lost()
		require.Zero(t, time.Until(h.Lease().Expires))
	})
}

// A watchdog that looks again in time anyway isn't woken for a hold.
func TestWatchdogIsWokenIfItMustBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &queueServer{}
		d := newWatchdog(s, newTaskGroup(), 30*time.Second)
		s.watchdog, d.running = d, true // we look ourselves
		d.due(time.Now())
		h := timed(&expiryTimer{}, 30*time.Second, willing{})
		d.add(h, 0, 30*time.Second, d.period, d.period)
		require.Empty(t, d.poke)
		d.remove(h)
		time.Sleep(time.Second)
		d.add(h, 0, 30*time.Second, d.period, d.period)
		require.Empty(t, d.poke)
		require.NoError(t, h.Extend(t.Context(), time.Second))
		d.renewSoon(h)
		require.Len(t, d.poke, 1)
		require.NoError(t, h.Release(t.Context()))
	})
}

// A hold whose lease is over by the local clock is lost, also where an extension is
// confirmed before the timer has fired: another client may have held the lock since.
func TestExtensionAfterTheEndDoesNotRevive(t *testing.T) {
	h := newHold(Lease{Expires: time.Now().Add(-time.Millisecond)}, nil)
	h.expiry, h.armed = &expiryTimer{}, true // and it is told in a moment
	require.False(t, h.prolong(time.Now().Add(time.Hour), time.Minute))
	require.True(t, h.Lease().Expires.Before(time.Now()))
	h.expire()
	<-h.Lost()
}
