// Package redsync puts github.com/go-redsync/redsync under test, on one server or
// on several independent ones.
//
// What the library can't do: it is not re-entrant, has no watchdog, no fencing
// tokens, no queue and no signal that a lock is lost. Its waiters ask again and
// again. A lease of zero is 30 seconds here, and nothing extends it. It repairs no
// server that lost its part of a quorum.
//
// The waiting is done here, by the library's own pauses: its loop hides the errors
// of all tries but the last, and drops the error of the context, so that one could
// not tell a refusal from a request that got lost.
//
// The context of a call ends the pauses; it ends a request that is under way only
// where the Redis clients have ContextTimeoutEnabled, without which the library's
// own limit for a server that doesn't answer has no effect either. A refusal is
// definite only where the clients do not repeat requests by themselves
// (MaxRetries -1). A refusal by some of several servers is answered by taking back
// what the others granted, and the library doesn't say whether that succeeded:
// no majority was granted, but a server may be lost to others until the lease ends.
// A release within the lease is refused for certain only if every server refused it.
package redsync

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/go-redsync/redsync/v4"
	pools "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/adapters/internal/adapt"
	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/chance"
)

const (
	prefix = "redsync:"
	// DefaultLease is the lease of a grant for which none was asked.
	DefaultLease = 30 * time.Second
	// The library pauses for this long by default.
	shortestPause, longestPause = 50 * time.Millisecond, 250 * time.Millisecond
)

// Config says how a [Locker] asks. Its zero value is the library's default.
type Config struct {
	// Pause is how long a waiter pauses between two tries. Default: drawn from
	// between 50ms and 250ms each time.
	Pause time.Duration
	// FailFast goes on with the answers of a majority, and leaves the others'
	// behind. Default: all answers are awaited.
	FailFast bool
}

// A Locker is a redsync.Redsync as a [lock.Locker]. Make it with [New].
type Locker struct {
	redsync *redsync.Redsync
	servers int
	quorum  int
	config  Config
}

// Key is where a lock of that name is.
func Key(name string) string { return prefix + name }

var _ lock.Locker = (*Locker)(nil)

// New returns a Locker that keeps its locks on those servers, and never closes
// their clients.
func New(servers []redis.UniversalClient, c Config) *Locker {
	ps := make([]pools.Pool, len(servers))
	for i, rdb := range servers {
		ps[i] = goredis.NewPool(rdb)
	}
	return &Locker{redsync: redsync.New(ps...), servers: len(servers), quorum: len(servers)/2 + 1, config: c}
}

// mutex is the lock of that name, for one call.
func (l *Locker) mutex(name string, lease time.Duration, value string) *redsync.Mutex {
	return l.redsync.NewMutex(Key(name),
		redsync.WithExpiry(lease), redsync.WithFailFast(l.config.FailFast), redsync.WithValue(value),
		redsync.WithGenValueFunc(func() (string, error) { return value, nil }))
}

// Acquire asks until the lock is granted or the wait is over, whatever the errors
// of the tries before. It is a refusal only if all of them were.
func (l *Locker) Acquire(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
	return adapt.Acquire(ctx, name, o, DefaultLease, l.acquire)
}

func (l *Locker) acquire(ctx context.Context, lease lock.Lease, wait time.Duration) (*lock.Hold, error) {
	m := l.mutex(lease.Name, lease.Length, lease.Request)
	var unknown error // of a try that may have been granted
	for begin := time.Now(); ; {
		sent := time.Now()
		err := refusal(m.TryLockContext(ctx), lock.ErrNotAcquired, l.quorum)
		if err == nil {
			lease.Expires = adapt.Expires(sent, lease.Length)
			return lock.NewHold(lease, keeper{l, m}), nil
		}
		if !errors.Is(err, lock.ErrNotAcquired) {
			unknown = err
		}
		left := wait - time.Since(begin)
		if left <= 0 {
			return nil, cmp.Or(unknown, err)
		}
		pause := l.config.Pause
		if pause <= 0 {
			pause = shortestPause + chance.N(longestPause-shortestPause)
		}
		if await.Pause(ctx, min(pause, left)) != nil {
			return nil, ctx.Err()
		}
	}
}

// refusal is definite if so many of the servers said so, one way or another. Any
// other error stays what it is.
func refusal(err, definite error, enough int) error {
	if err != nil && refusals(err) >= enough {
		return definite
	}
	return err
}

// refusals counts the servers that refused among joined errors.
func refusals(err error) int {
	if most, ok := errors.AsType[*redsync.ErrTaken](err); ok {
		return len(most.Nodes)
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		n := 0
		for _, part := range joined.Unwrap() {
			n += refusals(part)
		}
		return n
	}
	var taken *redsync.ErrNodeTaken
	if errors.As(err, &taken) || errors.Is(err, redsync.ErrLockAlreadyExpired) {
		return 1
	}
	return 0
}

// keeper keeps one grant.
type keeper struct {
	locker *Locker
	mutex  *redsync.Mutex
}

// errIncomplete says that the library gave no reason.
var errIncomplete = errors.New("redsync: no majority of the servers answered")

// Extend implements [lock.Keeper].
func (k keeper) Extend(ctx context.Context, l lock.Lease, d time.Duration) (time.Time, error) {
	sent := time.Now()
	ok, err := k.locker.mutex(l.Name, d, l.Request).ExtendContext(ctx)
	return adapt.Expires(sent, d), outcome(ok, err, k.locker.quorum)
}

// Release implements [lock.Keeper]. It is refused for certain only if every server did: one
// that carried it out, or may have, ended its vote, and with it perhaps the hold, while
// others answered when the lease was over. After the lease a majority is enough: the
// votes that are left make no hold, and end at slightly different times.
func (k keeper) Release(ctx context.Context, l lock.Lease) error {
	enough := k.locker.servers
	if !time.Now().Before(l.Expires) {
		enough = k.locker.quorum
	}
	ok, err := k.mutex.UnlockContext(ctx)
	return outcome(ok, err, enough)
}

// outcome is what the library's answer means, where so many servers are enough for a
// refusal.
func outcome(ok bool, err error, enough int) error {
	switch {
	case ok:
		return nil
	case err == nil:
		return errIncomplete
	default:
		return refusal(err, lock.ErrNotHeld, enough)
	}
}
