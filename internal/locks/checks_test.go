package locks_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/locks"
	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/lock"
)

// leavesVotes cancels what takes the votes of a request without a majority back: the key stays on
// a server for its whole lease, and no request can be granted while the others are cut off.
const leavesVotes = "redsync-failfast"

// checked reports whether what is checked of a lock in Go is about a lock: one that has one
// holder at a time, on Redis.
func checked(l harness.LockSpec) bool {
	return l.Store == "" && l.InProcess == nil && (l.Kind == "" || l.Kind == history.KindMutex) && l.Name != leavesVotes
}

func needServers(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs real servers; -short leaves them out")
	}
}

// alike are locks that differ from another of the list in how they wait: they are checked nightly.
var alike = []string{"mutex-spin", "mutex-unnamed", "redislock-backoff", "rueidislock-noloop", "correct-hand-over", "correct-queue"}

// Every lock that lockchaos has passes the checks that it makes of a lock in Go: ours, those of
// other libraries, and the twins of planted bugs.
func TestEveryLockPassesTheChecks(t *testing.T) {
	needServers(t)
	logging.Disable()
	for _, l := range locks.All() {
		if !checked(l) || strings.HasPrefix(l.Name, "broken-") || slices.Contains(alike, l.Name) && !runtest.Nightly() {
			continue
		}
		t.Run(l.Name, func(t *testing.T) {
			t.Parallel()
			require.NoError(t, harness.CheckLock(t.Context(), runtest.Backend{}, l, func(c harness.DriverCheck, _ bool, wrong error) {
				if wrong != nil {
					t.Errorf("%s: %v", c.Name, wrong)
				}
			}))
		})
	}
}

// unanswered is a lock whose first extension ends with the timeout of a connection.
func unanswered(l harness.LockSpec, met *atomic.Bool) harness.LockSpec {
	open := l.Open
	l.Name += "-unanswered"
	l.Open = func(servers []redis.UniversalClient, o harness.LockOptions) (lock.Locker, func(), error) {
		locker, end, err := open(servers, o)
		return lock.LockerFunc(func(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
			h, err := locker.Acquire(ctx, name, o)
			if err != nil {
				return nil, err
			}
			return lock.NewHold(h.Lease(), onceUnanswered{h, met}), nil
		}), end, err
	}
	return l
}

type onceUnanswered struct {
	hold *lock.Hold
	met  *atomic.Bool
}

func (k onceUnanswered) Extend(ctx context.Context, _ lock.Lease, d time.Duration) (time.Time, error) {
	if k.met.CompareAndSwap(false, true) {
		return time.Time{}, fmt.Errorf("read: %w", os.ErrDeadlineExceeded)
	}
	err := k.hold.Extend(ctx, d)
	return k.hold.Lease().Expires, err
}

func (k onceUnanswered) Release(ctx context.Context, _ lock.Lease) error { return k.hold.Release(ctx) }

// A request that a server did not answer in time is no defect of the lock: the check is made again.
func TestAnUnansweredRequestIsNoDefect(t *testing.T) {
	t.Parallel()
	needServers(t)
	met := &atomic.Bool{}
	require.NoError(t, harness.CheckLock(t.Context(), runtest.Backend{}, unanswered(runtest.Lock("mutex"), met), func(c harness.DriverCheck, _ bool, wrong error) {
		if wrong != nil {
			t.Errorf("%s: %v", c.Name, wrong)
		}
	}))
	require.True(t, met.Load())
}
