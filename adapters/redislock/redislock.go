// Package redislock puts github.com/bsm/redislock under test.
//
// What the library can't do: it is not re-entrant, has no watchdog, no fencing
// tokens, no queue and no signal that a lock is lost. Its waiters ask again and
// again. A lease of zero is 30 seconds here, and nothing extends it.
//
// The context of a call ends the pauses between two requests; it ends a request
// that is under way only where the Redis client has ContextTimeoutEnabled. A
// refusal is definite only where the client does not repeat requests by itself
// (MaxRetries -1): of a request that was repeated, the first copy may still come.
package redislock

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/adapters/internal/adapt"
	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/lock"
)

const (
	prefix = "redislock:"
	// DefaultLease is the lease of a grant for which none was asked.
	DefaultLease = 30 * time.Second
	// defaultPause is the one of the library's own example.
	defaultPause = 100 * time.Millisecond
)

// A Locker is a redislock.Client as a [lock.Locker]. Make it with [New].
type Locker struct {
	client *redislock.Client
	retry  func() redislock.RetryStrategy
}

// Key is where a lock of that name is.
func Key(name string) string { return prefix + name }

var _ lock.Locker = (*Locker)(nil)

// New returns a Locker that keeps its locks on rdb, and never closes it. retry
// makes the strategy by which one call waits; nil: a pause of 100ms each time, as
// in the library's own example.
func New(rdb redis.UniversalClient, retry func() redislock.RetryStrategy) *Locker {
	if retry == nil {
		retry = func() redislock.RetryStrategy { return redislock.LinearBackoff(defaultPause) }
	}
	return &Locker{client: redislock.New(rdb), retry: retry}
}

// Acquire asks until the lock is granted or the wait is over.
func (l *Locker) Acquire(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
	return adapt.Acquire(ctx, name, o, DefaultLease, l.acquire)
}

func (l *Locker) acquire(ctx context.Context, lease lock.Lease, longest time.Duration) (*lock.Hold, error) {
	// Without a deadline, the library waits for no longer than the lease.
	limited, cancel := context.WithTimeout(ctx, lock.Forever)
	defer cancel()
	w := &wait{strategy: redislock.NoRetry(), sent: time.Now()}
	if longest > 0 {
		w.strategy, w.begin, w.limit = l.retry(), w.sent, longest
	}
	held, err := l.client.Obtain(limited, Key(lease.Name), lease.Length, &redislock.Options{RetryStrategy: w, Token: lease.Request})
	switch {
	case err == nil:
		lease.Expires = adapt.Expires(w.sent, lease.Length)
		return lock.NewHold(lease, keeper{held}), nil
	case await.Over(ctx):
		err = cmp.Or(ctx.Err(), context.DeadlineExceeded)
	case errors.Is(err, redislock.ErrNotObtained):
		err = lock.ErrNotAcquired
	}
	return nil, err
}

// wait is a strategy that ends with the wait, and remembers before when the next
// request was not sent.
type wait struct {
	strategy    redislock.RetryStrategy
	begin, sent time.Time
	limit       time.Duration
}

// NextBackoff is for the library, which sends its next request after that pause.
func (w *wait) NextBackoff() time.Duration {
	now, pause := time.Now(), w.strategy.NextBackoff()
	if w.limit != lock.Forever {
		pause = min(pause, w.limit-now.Sub(w.begin))
	}
	w.sent = now.Add(pause)
	return pause
}

// keeper keeps one grant.
type keeper struct{ held *redislock.Lock }

// Extend implements [lock.Keeper].
func (k keeper) Extend(ctx context.Context, _ lock.Lease, d time.Duration) (time.Time, error) {
	sent := time.Now()
	err := k.held.Refresh(ctx, d, nil)
	if errors.Is(err, redislock.ErrNotObtained) && ctx.Err() == nil {
		err = lock.ErrNotHeld
	}
	return adapt.Expires(sent, d), err
}

// Release implements [lock.Keeper].
func (k keeper) Release(ctx context.Context, _ lock.Lease) error {
	err := k.held.Release(ctx)
	if errors.Is(err, redislock.ErrLockNotHeld) {
		err = lock.ErrNotHeld
	}
	return err
}
