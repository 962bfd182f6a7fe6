// Package broken has locks with exactly one bug each, and the correct locks that
// they were made from. They are positive controls: a test of locks that doesn't
// find the bug isn't worth much, and one that blames the correct lock for the
// same things is worth less.
//
// The correct locks are:
//
//   - [Correct]: one Redis key with an expiry, as in the Redis documentation.
//     Acknowledgements of replicas, fencing tokens and re-entry can be added.
//   - [CorrectQuorum]: such a key on a majority of several servers.
//   - [CorrectQueue]: a queue; the first client in it holds the lock.
//   - [CorrectLocalQueue]: one key, handed over in memory among the callers of a process.
//   - [CorrectHandOver]: one key, handed over by the server with a message.
//
// The clients of all but the last two poll, and a watchdog renews a hold that asked
// for no lease. The read-write lock, the semaphore, the multi-lock, the fair lock
// and the re-entrant lock with a bug are made from package lock instead.
package broken

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/internal/clientclock"
	"github.com/lockchaos/lockchaos/lock"
)

// A Setup is what a lock is made on. Servers is required.
type Setup struct {
	// Servers are the deployment: one client, or for a quorum one for each
	// server. The maker of the lock closes them.
	Servers []redis.UniversalClient
	// Other is a second way to the deployment, for the locks that say so.
	// Default: the first of Servers.
	Other redis.UniversalClient
	// Acks is how many replicas must acknowledge a grant. Default: none.
	Acks int
	// Timeout is how long a grant waits for its replicas, and how long for one
	// server of a quorum. Default: 300ms.
	Timeout time.Duration
	// Watchdog is the lease that is kept alive for a hold that asked for none.
	// Default: 30s.
	Watchdog time.Duration
	// Observer is told of each renewal by a watchdog. May be nil.
	Observer lock.Observer
	// Clock is that of the client's machine. Nil: a right one.
	Clock *clientclock.Clock
	// Gate is called where a lock does in two steps what ought to be one, or
	// might be interrupted between two: a client that waits in it is
	// slow at the worst moment. Nil: none waits.
	Gate func(ctx context.Context)
}

const (
	firstPause   = 5 * time.Millisecond
	longestPause = 50 * time.Millisecond
	// tries is how often a request is sent that gets no answer, and retryPause
	// how long it then waits.
	tries      = 10
	retryPause = 50 * time.Millisecond
)

// A Lock is a lock of this package. Close stops its watchdogs.
type Lock struct {
	Setup

	// What the bugs change. Ask asks once, and returns what the server answered
	// (0: no; below 0: not for so many ms) and how many replicas are known to have what it wrote.
	ask     func(ctx context.Context, l lock.Lease) (answer int64, acks int, err error)
	extend  func(ctx context.Context, l lock.Lease, d time.Duration) (done bool, err error)
	release func(ctx context.Context, l lock.Lease) (done bool, err error)
	// undo takes a grant back that doesn't count.
	undo func(ctx context.Context, l lock.Lease) error
	// mark is what stands in the key of a grant.
	mark func(l lock.Lease) string
	// note takes over what the server answered to a grant.
	note func(l *lock.Lease, answer int64)
	// leave ends a wait that came to nothing.
	leave func(ctx context.Context, l lock.Lease) error
	// certain has a refusal count although a copy of the request got no answer.
	certain bool
	// anew has a request that got no answer made anew, as if it were the first.
	anew bool
	// early has a lease begin when its caller begins to wait, and not with the grant.
	early bool
	// ends is when a lease ends for its holder.
	ends func(sent instant, lease time.Duration) time.Time
	// late reports whether a grant is over when it arrives.
	late func(l lock.Lease) bool
	// watch keeps a hold alive until it is released or the context ends.
	watch func(ctx context.Context, h *lock.Hold, released <-chan struct{})
	// queue is where callers wait that pass the lock on in memory; nil: there is none.
	queue *localQueue
	// inbox is where callers hear that the lock was handed over to them; nil: they
	// don't.
	inbox *inbox

	background func() context.Context // ended by Close
	stop       context.CancelFunc
	watchdogs  sync.WaitGroup
	mu         sync.Mutex
	watched    map[string]func() // by request: ends its watchdog
	unanswered map[string]bool   // by request: a copy of it got no answer
}

// An instant is a time by both clocks of a client's machine.
type instant struct{ at, wall time.Time }

// newLock is the part that all locks share.
func newLock(s Setup) *Lock {
	s.Watchdog = cmp.Or(s.Watchdog, 30*time.Second)
	s.Timeout = cmp.Or(s.Timeout, 300*time.Millisecond)
	s.Other = cmp.Or(s.Other, s.Servers[0])
	s.Clock = cmp.Or(s.Clock, &clientclock.Clock{})
	ctx, stop := context.WithCancel(context.Background())
	l := &Lock{
		Setup: s, stop: stop, background: func() context.Context { return ctx }, watched: map[string]func(){}, unanswered: map[string]bool{},
		mark:  func(l lock.Lease) string { return l.Request },
		note:  func(*lock.Lease, int64) {},
		leave: func(context.Context, lock.Lease) error { return nil },
	}
	l.undo = func(ctx context.Context, lease lock.Lease) error {
		_, err := l.release(ctx, lease)
		return err
	}
	l.ends = func(sent instant, lease time.Duration) time.Time {
		return sent.at.Add(l.Clock.Real(lease - drift(lease)))
	}
	l.late = func(l lock.Lease) bool { return !time.Now().Before(l.Expires) }
	l.watch = l.keepAlive
	return l
}

// drift is what a holder leaves unused of its lease, for clocks that go at
// different speeds: a tenth of it, and 2ms.
func drift(lease time.Duration) time.Duration { return lease/10 + 2*time.Millisecond }

// Close stops all watchdogs and waits until they are gone.
func (l *Lock) Close() {
	l.stop()
	l.watchdogs.Wait()
	if l.inbox != nil {
		l.inbox.close()
	}
}

// pause lets a client be slow.
func (l *Lock) pause(ctx context.Context) {
	if l.Gate != nil {
		l.Gate(ctx)
	}
}

// Acquire asks until the wait is over.
func (l *Lock) Acquire(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
	if name == "" {
		return nil, errors.New("acquire lock: empty name: give the lock a name")
	}
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("acquire lock %q: %w", name, err)
	}
	lease := lock.Lease{Name: name, Owner: o.Owner, Holds: 1, Length: o.Lease}
	if lease.Owner == "" {
		lease.Owner = rand.Text()
	}
	lease.Request = marked(lease.Owner) + rand.Text()
	if o.Lease == 0 {
		lease.Length = l.Watchdog
	}
	granted, err := l.wait(ctx, &lease, o.Wait)
	defer l.settle(lease.Request)
	switch {
	case granted:
		return l.hold(lease, o.Lease == 0), nil //nolint:contextcheck // a watchdog outlives the request
	case err == nil && l.doubtful(lease):
		err = errors.New("it was refused, and a copy of the request that got no answer may still be carried out")
	case err == nil:
		err = lock.ErrNotAcquired
	}
	if left := l.leave(context.WithoutCancel(ctx), lease); left != nil {
		err = fmt.Errorf("give up waiting: %w", left)
	}
	return nil, fmt.Errorf("acquire lock %q: %w", name, err)
}

// doubtful reports whether a copy of a request may be carried out after it was refused.
func (l *Lock) doubtful(lease lock.Lease) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unanswered[lease.Request] && !l.certain
}

// settle forgets a request whose outcome was told.
func (l *Lock) settle(request string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.unanswered, request)
}

// wait asks until the lease is granted or the wait is over.
func (l *Lock) wait(ctx context.Context, lease *lock.Lease, limit time.Duration) (bool, error) {
	begun := instant{time.Now(), l.Clock.Wall()}
	unanswered := 0
	var p *waiter
	var passed <-chan lock.Lease // nil: no caller passes it on
	if limit > 0 {
		var err error
		if p, err = l.enqueue(ctx, *lease); err != nil {
			return false, err
		}
		if p != nil {
			passed = p.passed
		}
		defer func() { l.dequeue(ctx, p) }()
	}
	for n, pause := 0, firstPause; ; n, pause = n+1, min(2*pause, longestPause) {
		sent := begun
		if !l.early {
			sent = instant{time.Now(), l.Clock.Wall()}
		}
		granted, ttl, err := l.try(ctx, lease, sent)
		if granted {
			return true, nil
		}
		if err != nil {
			if unanswered++; !l.anew || unanswered >= tries {
				return false, err
			}
			l.pause(ctx)
			if !rest(ctx, retryPause) {
				return false, fmt.Errorf("%w: %w", ctx.Err(), err)
			}
			continue
		}
		left := limit - time.Since(begun.at)
		if left <= 0 {
			return false, nil
		}
		next := uneven(pause, lease.Request, n)
		if p != nil && l.inbox != nil {
			p.refused, next = sent, min(handedPause, ttl)
		}
		select {
		case grant := <-passed:
			if taken := l.took(p, *lease, grant); !l.late(taken) {
				*lease = taken
				return true, nil
			} // it was passed on while a request was under way, and is over: ask again
		case <-time.After(min(next, left)):
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// uneven makes a pause up to a half shorter or longer, so that those who split the
// votes do not meet again.
func uneven(pause time.Duration, request string, n int) time.Duration {
	request = request[strings.LastIndexByte(request, '/')+1:]
	return pause/2 + pause*time.Duration(request[n%len(request)]-'0')/('Z'-'0')
}

// rest lets time pass, and reports false if the context ended before.
func rest(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// try asks once, for a lease that begins at an instant. A refusal may say for how
// long the lock is held.
func (l *Lock) try(ctx context.Context, lease *lock.Lease, sent instant) (granted bool, ttl time.Duration, err error) {
	answer, acks, err := l.ask(ctx, *lease)
	if err != nil || answer <= 0 {
		return false, time.Duration(-answer) * time.Millisecond, err
	}
	if acks < l.Acks {
		if err := l.undo(ctx, *lease); err != nil {
			return false, 0, fmt.Errorf("%d of %d replicas acknowledged it; take it back: %w", acks, l.Acks, err)
		}
		return false, 0, fmt.Errorf("%w: %d of %d replicas acknowledged it", lock.ErrNotReplicated, acks, l.Acks)
	}
	l.note(lease, answer)
	lease.Expires = l.ends(sent, lease.Length)
	if l.late(*lease) {
		if err := l.undo(ctx, *lease); err != nil {
			return false, 0, fmt.Errorf("granted when the lease was over; take it back: %w", err)
		}
		return false, 0, fmt.Errorf("%w: granted when the lease was over", lock.ErrNotAcquired)
	}
	return true, 0, nil
}

// hold is the handle on a grant.
func (l *Lock) hold(lease lock.Lease, watched bool) *lock.Hold {
	if l.inbox != nil {
		l.inbox.leave(lease)
	}
	h := lock.NewHold(lease, l)
	if watched {
		released := make(chan struct{})
		l.mu.Lock()
		l.watched[lease.Request] = func() { close(released) }
		l.mu.Unlock()
		l.watchdogs.Go(func() { l.watch(l.background(), h, released) })
	}
	return h
}

// Extend implements [lock.Keeper].
func (l *Lock) Extend(ctx context.Context, lease lock.Lease, d time.Duration) (time.Time, error) {
	l.observe(ctx, lock.Renewing, lease, nil)
	sent := instant{time.Now(), l.Clock.Wall()}
	done, err := l.extend(ctx, lease, d)
	if err == nil && !done {
		err = lock.ErrNotHeld
	}
	lease.Expires = l.ends(sent, d)
	l.observe(ctx, lock.Renewed, lease, err)
	return lease.Expires, err
}

// Release implements [lock.Keeper]. It stops the watchdog first.
func (l *Lock) Release(ctx context.Context, lease lock.Lease) error {
	l.mu.Lock()
	if end := l.watched[lease.Request]; end != nil {
		delete(l.watched, lease.Request)
		end()
	}
	l.mu.Unlock()
	if l.pass(lease) {
		return nil
	}
	done, err := l.release(ctx, lease)
	if err == nil {
		l.ended(lease)
	}
	if err == nil && !done {
		err = lock.ErrNotHeld
	}
	return err
}
