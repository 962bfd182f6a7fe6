// Package broken has locks with exactly one bug each. They are positive
// controls: a test of locks that doesn't find the bug isn't worth much.
//
// Each is the usual SET NX PX lock on one Redis key, not re-entrant, in its
// simplest form: it waits by asking again, and has no watchdog, so that a lease
// of zero means 30 seconds.
package broken

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/lock"
)

const (
	defaultLease = 30 * time.Second
	firstPause   = 5 * time.Millisecond
	longestPause = 50 * time.Millisecond
)

// The three steps of a correct lock of this kind. The token is random for each
// call, so a key that holds it was set by a copy of the same request.
const (
	setIfFree = `
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) and 1 or 0`
	expireIfMine = `return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('PEXPIRE', KEYS[1], ARGV[2]) or 0`
	deleteIfMine = `return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0`
)

// locker is the lock; the bugs are in what it is made with.
type locker struct {
	rdb                      redis.UniversalClient
	token                    func() string
	acquire, extend, release *redis.Script
}

// correct is the lock without a bug.
func correct(rdb redis.UniversalClient) *locker {
	return &locker{
		rdb: rdb, token: rand.Text,
		acquire: redis.NewScript(setIfFree),
		extend:  redis.NewScript(expireIfMine),
		release: redis.NewScript(deleteIfMine),
	}
}

// PlainDelete returns a lock whose release deletes the key without looking whose
// it is. A holder that releases after its lease ended takes the lock away from
// the next holder, and a third one gets in.
//
// It is the bug of the first locks that people write with SETNX and DEL; the
// Redis documentation warns of it under "Correct implementation with a single
// instance", https://redis.io/docs/latest/develop/use/patterns/distributed-locks/.
func PlainDelete(rdb redis.UniversalClient) lock.Locker {
	l := correct(rdb)
	l.release = redis.NewScript(`return redis.call('DEL', KEYS[1])`)
	return l
}

// ConstantToken returns a lock whose callers all write the same token. Each takes
// another's lock for its own: every request is granted, and a release or an
// extension works on whoever's hold it is.
//
// It is the bug of locks that write "1", or the name of the service, and then
// compare; it was reported of redis-py (#415), twenty (#25661), nexspence (#223)
// and reinhardt (#740).
func ConstantToken(rdb redis.UniversalClient) lock.Locker {
	l := correct(rdb)
	l.token = func() string { return "locked" }
	return l
}

// Acquire asks until the lock is granted or the wait is over.
func (l *locker) Acquire(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
	if name == "" {
		return nil, errors.New("acquire lock: empty name: give the lock a name")
	}
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("acquire lock %q: %w", name, err)
	}
	lease := lock.Lease{Name: name, Owner: o.Owner, Request: l.token(), Holds: 1, Length: o.Lease}
	if lease.Owner == "" {
		lease.Owner = rand.Text()
	}
	if lease.Length == 0 {
		lease.Length = defaultLease
	}
	begin := time.Now()
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		sent := time.Now()
		done, err := l.run(ctx, l.acquire, lease, lease.Length)
		if err != nil {
			return nil, fmt.Errorf("acquire lock %q: %w", name, err)
		}
		if done {
			lease.Expires = expires(sent, lease.Length)
			return lock.NewHold(lease, l), nil
		}
		left := o.Wait - time.Since(begin)
		if left <= 0 {
			return nil, fmt.Errorf("acquire lock %q: %w", name, lock.ErrNotAcquired)
		}
		select {
		case <-time.After(min(pause, left)):
		case <-ctx.Done():
			return nil, fmt.Errorf("acquire lock %q: %w", name, ctx.Err())
		}
	}
}

// Extend is for [lock.Hold].
func (l *locker) Extend(ctx context.Context, lease lock.Lease, d time.Duration) (time.Time, error) {
	sent := time.Now()
	done, err := l.run(ctx, l.extend, lease, d)
	if err == nil && !done {
		err = lock.ErrNotHeld
	}
	return expires(sent, d), err
}

// Release is for [lock.Hold].
func (l *locker) Release(ctx context.Context, lease lock.Lease) error {
	done, err := l.run(ctx, l.release, lease, 0)
	if err == nil && !done {
		err = lock.ErrNotHeld
	}
	return err
}

func (l *locker) run(ctx context.Context, s *redis.Script, lease lock.Lease, d time.Duration) (bool, error) {
	n, err := s.Run(ctx, l.rdb, []string{"broken:" + lease.Name}, lease.Request, d.Milliseconds()).Int()
	return n == 1, err
}

// expires leaves out a hundredth of the lease and 2ms for clock drift.
func expires(sent time.Time, lease time.Duration) time.Time {
	return sent.Add(lease - lease/100 - 2*time.Millisecond)
}
