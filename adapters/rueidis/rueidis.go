// Package rueidis puts github.com/redis/rueidis/rueidislock under test.
//
// The library keeps a lock alive by itself until it is given up, and tells its
// loss by a context. The lease that a caller asks for is therefore kept here: at
// its end the lock is given up. A lease of zero has no end.
//
// What the library can't do: it is not re-entrant, has no fencing tokens and no
// queue. On one deployment, all keys of its majority live on the same servers. It
// has a connection of its own, and no other client can be given to it.
//
// What it doesn't tell: WithContext hides the errors of all tries, so that after a
// wait one more try decides whether it is a refusal. Giving up returns no error:
// where the request fails, the key stays for KeyValidity. A call may outlast its
// context by KeyValidity while no server answers. By default keys end at a time of
// the client's clock (PXAT); one that is behind the server's by more than
// KeyValidity grants nothing and says that it did. A refusal is definite only with
// ClientOption.DisableRetry: of a request that was repeated, the first copy may
// have been granted.
package rueidis

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/rueidis/rueidislock"

	"github.com/lockchaos/lockchaos/adapters/internal/adapt"
	"github.com/lockchaos/lockchaos/lock"
)

// defaultPatience is the library's TryNextAfter.
const defaultPatience = 20 * time.Millisecond

// A Locker is a rueidislock.Locker as a [lock.Locker]. Make it with [New] and end
// it with Close.
type Locker struct {
	locker   rueidislock.Locker
	patience time.Duration // how long before its answer a request may have been sent
}

var _ lock.Locker = (*Locker)(nil)

// New connects to the servers that o names.
func New(o rueidislock.LockerOption) (*Locker, error) {
	l, err := rueidislock.NewLocker(o)
	if err != nil {
		return nil, fmt.Errorf("open rueidislock: %w", err)
	}
	patience := o.TryNextAfter
	if patience <= 0 {
		patience = defaultPatience
	}
	return &Locker{locker: l, patience: patience}, nil
}

// Close ends the connection. Locks that are held are left to run out.
func (l *Locker) Close() { l.locker.Close() }

// Acquire asks for the lock, and waits for the server to say that it is free.
func (l *Locker) Acquire(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
	return adapt.Acquire(ctx, name, o, 0, l.acquire)
}

func (l *Locker) acquire(ctx context.Context, lease lock.Lease, wait time.Duration) (*lock.Hold, error) {
	sent := time.Now()
	t, err := l.take(ctx, lease.Name, wait)
	if err == nil && ctx.Err() != nil { // it ended just then
		t.cancel()
		err = ctx.Err()
	}
	switch {
	case err == nil:
		if earliest := time.Now().Add(-l.patience); wait > 0 && earliest.After(sent) {
			sent = earliest
		}
		if lease.Length > 0 {
			lease.Expires = adapt.Expires(sent, lease.Length)
		}
		return adapt.Kept(lease, t.alive, t.giveUp(), nil), nil //nolint:contextcheck // it says when the lock is lost
	case ctx.Err() != nil:
		err = ctx.Err()
	case errors.Is(err, rueidislock.ErrNotLocked):
		err = lock.ErrNotAcquired
	}
	return nil, err
}

// take waits for the lock, and at the end of the wait tries once more.
func (l *Locker) take(ctx context.Context, name string, wait time.Duration) (taken, error) {
	if wait > 0 {
		waiting, end := context.WithTimeout(ctx, wait)
		defer end()
		t, err := during(waiting, name, l.locker.WithContext)
		if err == nil || ctx.Err() != nil || waiting.Err() == nil {
			return t, err
		}
	}
	return during(ctx, name, l.locker.TryWithContext)
}

// taken is a lock that the library keeps.
type taken struct {
	alive  context.Context //nolint:containedctx // it is how the library tells a loss
	cancel context.CancelFunc
}

// during calls the library with a context that ends with ctx until the call
// returns, and not with ctx from then on: the lock is held for as long as it.
func during(
	ctx context.Context, name string,
	call func(context.Context, string) (context.Context, context.CancelFunc, error),
) (taken, error) {
	src, drop := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, drop)
	alive, cancel, err := call(src, name)
	if !stop() && err == nil { // too late: it is being given up
		cancel()
		err = ctx.Err()
	}
	if err != nil {
		drop()
		return taken{}, err
	}
	return taken{alive, func() {
		cancel()
		drop()
	}}, nil
}

// giveUp gives the lock up, which the library does without a limit, and waits
// for it until the context ends.
func (t taken) giveUp() func(context.Context) error {
	var once sync.Once
	done := make(chan struct{})
	return func(ctx context.Context) error {
		once.Do(func() {
			go func() {
				defer close(done)
				t.cancel()
			}()
		})
		select {
		case <-done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
