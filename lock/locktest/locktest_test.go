package locktest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/internal/require"
	"github.com/lockchaos/lockchaos/lock/locktest"
	"github.com/lockchaos/lockchaos/lock/memory"
)

func TestRun(t *testing.T) {
	locktest.Run(t, func(*testing.T) lock.Locker { return memory.New() },
		locktest.Features{Reentrant: true, Fenced: true, Watchdog: time.Millisecond})
}

// broken grants whatever it is asked for, or nothing, or fails.
type broken struct {
	grant bool
	err   error
}

func (b broken) Acquire(_ context.Context, name string, o lock.Options) (*lock.Hold, error) {
	if !b.grant {
		return nil, b.err
	}
	l := lock.Lease{Name: name, Owner: o.Owner, Expires: time.Now().Add(o.Lease)}
	return lock.NewHold(l, b), nil
}

func (b broken) Extend(context.Context, lock.Lease, time.Duration) (time.Time, error) {
	return time.Time{}, nil
}

func (b broken) Release(context.Context, lock.Lease) error { return b.err }

// No check passes with a lock that always refuses or always fails, and those
// that are about refusals not with one that grants everything.
func TestChecksCanFail(t *testing.T) {
	f := locktest.Features{Fenced: true, Watchdog: time.Millisecond, Lease: time.Millisecond, Callers: 20}
	for _, reentrant := range []bool{false, true} {
		f.Reentrant = reentrant
		for _, c := range locktest.Checks(f) {
			if c.Name == "bad options are refused" {
				require.Error(t, c.Run(t.Context(), broken{err: lock.ErrNotAcquired}), c.Name)
				require.Error(t, c.Run(t.Context(), broken{grant: true}), c.Name)
				continue
			}
			require.Error(t, c.Run(t.Context(), broken{err: lock.ErrNotAcquired}), c.Name)
			require.Error(t, c.Run(t.Context(), broken{err: errors.New("link down")}), c.Name)
		}
	}
}

// silent returns neither a hold nor an error.
type silent struct{}

func (silent) Acquire(context.Context, string, lock.Options) (*lock.Hold, error) {
	return nil, nil //nolint:nilnil // that is what it is for
}

// A lock that answers nothing fails the checks, and does not end the tests.
func TestALockThatReturnsNothingFailsTheChecks(t *testing.T) {
	for _, c := range locktest.Checks(locktest.Features{Callers: 20}) {
		err := c.Run(t.Context(), silent{})
		if c.Name == "bad options are refused" {
			continue // which any error does
		}
		require.Error(t, err, c.Name)
		if c.Name != "one of many callers gets the lock" { // which counts errors
			require.ErrorContains(t, err, "neither a hold nor an error", c.Name)
		}
	}
}

func ExampleChecks() {
	for _, c := range locktest.Checks(locktest.Features{Reentrant: true})[:3] {
		fmt.Printf("%s: %v\n", c.Name, c.Run(context.Background(), memory.New()))
	}
	// Output:
	// a held lock is refused: <nil>
	// a grant says what it is: <nil>
	// locks of different names are independent: <nil>
}
