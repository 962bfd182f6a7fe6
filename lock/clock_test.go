package lock

import (
	"context"
	"maps"
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
func (w willing) onLost(Lease)                         { time.Sleep(w.slow) }

func timed(c *Client, lease time.Duration, w willing) *Hold {
	h := newHold(Lease{Name: "orders", Expires: time.Now().Add(lease)}, w)
	h.client = c
	h.start()
	return h
}

// Each hold is lost at its own end, neither before nor later, whatever became of the others.
func TestHoldsEndInTime(t *testing.T) {
	t.Parallel()
	const n = 1000
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	some := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // not for secrets
	lease := func() time.Duration { return time.Second + time.Duration(some.Int64N(int64(time.Minute))) }
	synctest.Test(t, func(t *testing.T) {
		c := &Client{taskGroup: &taskGroup{closing: make(chan struct{})}}
		began := time.Now()
		holds, ends, lost := make([]*Hold, n), make([]time.Duration, n), make([]time.Duration, n)
		for i := range holds {
			ends[i] = lease()
			holds[i] = timed(c, ends[i], willing{time.Hour}) // which the others must not feel
			go func() {
				<-holds[i].Lost()
				lost[i] = time.Since(began)
			}()
		}
		time.Sleep(time.Second - 1)
		require.Len(t, maps.Collect(c.held.Range), n)
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
		require.Len(t, maps.Collect(c.held.Range), 0)
		for i, h := range holds {
			if ends[i] == 0 {
				close(h.lost) // its goroutine waits
			}
		}
		time.Sleep(time.Hour)
	})
}

// A watched hold is renewed every third of its lease, and no more once its release has begun: neither one that is due
// then nor one that was just sent.
func TestRenewalsEndWithTheRelease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, at := range []time.Duration{5 * time.Second, 10 * time.Second, 10*time.Second + time.Millisecond, 25 * time.Second} {
			seen := &counting{}
			h := newHold(Lease{Name: "orders", Expires: time.Now().Add(30 * time.Second)}, seen)
			h.client = &Client{taskGroup: &taskGroup{closing: make(chan struct{})}}
			h.watch = newWatch(30*time.Second, 10*time.Second, 10*time.Second)
			h.start()
			time.Sleep(at)
			require.NoError(t, h.Release(t.Context()))
			renewed := seen.renewals
			require.True(t, renewed <= int(at/(9*time.Second)), renewed)
			require.True(t, int((at-1)/(10*time.Second)) <= renewed, renewed)
			time.Sleep(time.Hour)
			require.Equal(t, renewed, seen.renewals)
			require.False(t, h.isLost)
		}
	})
}

// counting counts renewals, each of which takes a while.
type counting struct {
	willing

	renewals int
}

func (c *counting) Extend(_ context.Context, _ Lease, d time.Duration) (time.Time, error) {
	c.renewals++
	time.Sleep(5 * time.Millisecond)
	return time.Now().Add(d), nil
}

// A hold whose lease is over by the local clock is lost, also where an extension is
// confirmed before the timer has fired: another client may have held the lock since.
func TestExtensionAfterTheEndDoesNotRevive(t *testing.T) {
	h := newHold(Lease{Expires: time.Now().Add(-time.Millisecond)}, nil)
	require.ErrorIs(t, h.move(func(l *Lease) { l.Expires = time.Now().Add(time.Hour) }), ErrLost)
	require.True(t, h.Lease().Expires.Before(time.Now()))
	<-h.Lost()
}
