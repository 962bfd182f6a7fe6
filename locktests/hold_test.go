package locktests

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/undertest"
)

// keeper answers as it is told.
type keeper struct {
	extend  func(d time.Duration) (time.Time, error)
	release func() error
	calls   atomic.Int64
}

func (k *keeper) Extend(_ context.Context, _ lock.Lease, d time.Duration) (time.Time, error) {
	k.calls.Add(1)
	return k.extend(d)
}

func (k *keeper) Release(context.Context, lock.Lease) error {
	k.calls.Add(1)
	return k.release()
}

var errLink = errors.New("link down")

func holdOf(length time.Duration, k *keeper) *lock.Hold {
	l := lock.Lease{Name: "orders", Owner: "a", Length: length}
	if length > 0 {
		l.Expires = time.Now().Add(length)
	}
	return lock.NewHold(l, k)
}

// lostAfter is how long it takes until the hold is lost.
func lostAfter(t *testing.T, h *lock.Hold) time.Duration {
	t.Helper()
	begin := time.Now()
	select {
	case <-h.Lost():
	case <-time.After(24 * time.Hour):
		t.Fatal("never lost")
	}
	return time.Since(begin)
}

func isLost(h *lock.Hold) bool {
	synctest.Wait()
	select {
	case <-h.Lost():
		return true
	default:
		return false
	}
}

func TestHoldIsLostWhenItsLeaseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &keeper{release: func() error { return nil }}
		h := holdOf(time.Second, k)
		ctx, cancel := h.Context(t.Context())
		defer cancel()
		require.Equal(t, time.Second, lostAfter(t, h))
		<-ctx.Done()
		require.ErrorIs(t, context.Cause(ctx), lock.ErrLost)
		late, cancel2 := h.Context(t.Context())
		defer cancel2()
		require.ErrorIs(t, context.Cause(late), lock.ErrLost)
		require.ErrorIs(t, h.Extend(t.Context(), time.Second), lock.ErrNotHeld)
		require.Zero(t, k.calls.Load(), "a lost hold is not extended")
		require.NoError(t, h.Release(t.Context()), "the service decides on a release")
		require.ErrorIs(t, h.Release(t.Context()), lock.ErrNotHeld)
		require.EqualValues(t, 1, k.calls.Load())
	})
}

func TestHoldExtend(t *testing.T) {
	const lease, delay = 10 * time.Second, 2 * time.Second
	tests := []struct {
		name string
		give time.Duration
		err  error
		want time.Duration // from the grant until it is lost
	}{
		{"longer", 30 * time.Second, nil, 30 * time.Second},
		{"shorter", 5 * time.Second, nil, 5 * time.Second},
		{"longer, unknown", 30 * time.Second, errLink, lease},
		{"shorter, unknown", 5 * time.Second, errLink, 5 * time.Second},
		{"shorter than the answer took, unknown", time.Second, errLink, delay},
		{"not held", 30 * time.Second, lock.ErrNotHeld, delay},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				h := holdOf(lease, &keeper{extend: func(d time.Duration) (time.Time, error) {
					sent := time.Now()
					time.Sleep(delay)
					return sent.Add(d), tt.err
				}})
				require.ErrorIs(t, h.Extend(t.Context(), tt.give), tt.err)
				<-h.Lost()
				require.Equal(t, tt.want, time.Since(begin))
			})
		})
	}
}

func TestHoldRelease(t *testing.T) {
	tests := []struct {
		name   string
		err    error
		lost   bool
		second error
	}{
		{"ok", nil, false, lock.ErrReleased},
		{"not held", lock.ErrNotHeld, true, lock.ErrNotHeld},
		{"unknown, then repeated", errLink, true, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				errs := []error{tt.err, nil}
				k := &keeper{release: func() error {
					err := errs[0]
					errs = errs[1:]
					return err
				}}
				h := holdOf(time.Minute, k)
				require.ErrorIs(t, h.Release(t.Context()), tt.err)
				require.Equal(t, tt.lost, isLost(h))
				again := h.Release(t.Context())
				require.ErrorIs(t, again, tt.second)
				require.Equal(t, errors.Is(tt.second, lock.ErrReleased), errors.Is(again, lock.ErrReleased), "a loss is no release")
				time.Sleep(time.Hour)
				require.Equal(t, tt.lost, isLost(h), "the clock was stopped")
				require.ErrorIs(t, h.Release(t.Context()), lock.ErrNotHeld)
			})
		})
	}
}

func TestHoldTalksToTheServiceOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var inside, most atomic.Int64
		slow := func() {
			most.Store(max(most.Load(), inside.Add(1)))
			time.Sleep(time.Second)
			inside.Add(-1)
		}
		h := holdOf(time.Hour, &keeper{
			extend:  func(d time.Duration) (time.Time, error) { slow(); return time.Now().Add(d), nil },
			release: func() error { slow(); return nil },
		})
		errs := make(chan error, 6)
		for range 3 {
			go func() { errs <- h.Extend(t.Context(), time.Hour) }()
			go func() { errs <- h.Release(t.Context()) }()
		}
		released := 0
		for range cap(errs) {
			if err := <-errs; err == nil {
				released++
			} else {
				require.ErrorIs(t, err, lock.ErrNotHeld)
			}
		}
		require.EqualValues(t, 1, most.Load())
		require.Positive(t, released)
		require.False(t, isLost(h))
	})
}

func ExampleNewHold() {
	// A lock of your own says what it granted and how the grant is kept.
	mine := &keeper{release: func() error { return nil }}
	h := lock.NewHold(lock.Lease{Name: "orders", Owner: "a", Expires: time.Now().Add(time.Minute)}, mine)
	ctx, cancel := h.Context(context.Background()) // ends with ErrLost when the lease is over
	defer cancel()
	fmt.Println(h.Lease().Name, ctx.Err())
	fmt.Println(h.Release(ctx))
	fmt.Println(h.Release(ctx))
	// Output:
	// orders <nil>
	// <nil>
	// release lock "orders": lock not held: it was released before
}

// A lateKeeper is one of a lock under test.
type lateKeeper struct {
	keeper

	asked, releases int
	err             error
}

func (k *lateKeeper) ReleaseLate(context.Context, lock.Lease) error {
	k.releases++
	return k.err
}

func (k *lateKeeper) ExtendLate(context.Context, lock.Lease, time.Duration) error {
	k.asked++
	return k.err
}

// An extension of a hold that is over is refused by the hold itself, and asked of a lock
// under test; the hold stays over.
func TestHoldExtendsLateForALockUnderTest(t *testing.T) {
	t.Parallel()
	k := &lateKeeper{keeper: keeper{release: func() error { return nil }}}
	h := undertest.Of(lock.NewHold(lock.Lease{Name: "l", Expires: time.Now().Add(time.Minute)}, k))
	require.NoError(t, h.Release(t.Context()))
	require.NoError(t, h.Extend(t.Context(), time.Minute), "the service confirmed it")
	k.err = lock.ErrNotHeld
	require.ErrorIs(t, h.Extend(t.Context(), time.Minute), lock.ErrNotHeld)
	require.Equal(t, 2, k.asked)
	require.ErrorIs(t, h.Release(t.Context()), lock.ErrNotHeld, "it stays over")

	plain := undertest.Of(lock.NewHold(lock.Lease{Name: "l", Expires: time.Now().Add(time.Minute)}, &k.keeper))
	require.NoError(t, plain.Release(t.Context()))
	require.ErrorIs(t, plain.Extend(t.Context(), time.Minute), lock.ErrNotHeld)
}

// A second release is asked of a lock under test as well. A service may confirm it, which
// says nothing of who holds the lock: it is a refusal. That of a hold that was lost before
// it was released tells what the service said.
func TestHoldReleasesLateForALockUnderTest(t *testing.T) {
	t.Parallel()
	l := lock.Lease{Name: "l", Expires: time.Now().Add(time.Minute)}
	k := &lateKeeper{keeper: keeper{release: func() error { return nil }}}
	h := undertest.Of(lock.NewHold(l, k))
	require.NoError(t, h.Release(t.Context()))
	again := h.Release(t.Context())
	require.ErrorIs(t, again, lock.ErrNotHeld)
	require.ErrorIs(t, again, undertest.ErrConfirmedAgain)
	k.err = lock.ErrNotHeld
	require.NotErrorIs(t, h.Release(t.Context()), undertest.ErrConfirmedAgain, "the service refused it")
	k.err = errLink
	require.ErrorIs(t, h.Release(t.Context()), errLink)
	require.Equal(t, 3, k.releases)

	k = &lateKeeper{keeper: keeper{extend: func(time.Duration) (time.Time, error) { return time.Time{}, lock.ErrNotHeld }}}
	h = undertest.Of(lock.NewHold(l, k))
	require.ErrorIs(t, h.Extend(t.Context(), time.Minute), lock.ErrNotHeld)
	require.NoError(t, h.Release(t.Context()), "the service confirmed it")
	require.ErrorIs(t, h.Release(t.Context()), lock.ErrNotHeld)
	require.Equal(t, 2, k.releases)
}
