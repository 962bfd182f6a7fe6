package broken

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/lockchaos/lockchaos/lock"
)

// A localQueue is where the callers of one [Lock] wait that pass it on to each other in
// memory. The key on the server stays as it is.
type localQueue struct {
	mu      sync.Mutex
	waiting []*waiter       // the oldest first
	ending  map[string]bool // the requests of grants that the server was asked to end

	// What the bugs change.
	toAll     bool // all waiters are passed the lock
	recounted bool // its lease begins when it is passed on
}

// A waiter is a caller in a queue.
type waiter struct {
	lease   lock.Lease
	passed  chan lock.Lease // the grant, if it is passed on; holds one
	refused instant         // when the latest request was sent that was refused
	ticket  string          // its place since then, and that of the latest message; see [inbox]
	heard   string
}

// CorrectLocalQueue returns the lock in one key whose callers pass it on in memory. A
// lock is passed on as it is: with what is left of its lease, which must be half of
// it, to one caller who asked for the same lease, and not after a release that got no
// answer.
//
// It is a small copy of what [lock.Mutex] does for callers that name no owner, and
// what lock cohorting (Dice, Marathe and Shavit, 2012) does without leases.
func CorrectLocalQueue(s Setup) *Lock {
	l := Correct(s)
	l.queue = &localQueue{ending: map[string]bool{}}
	return l
}

// PassedToAll returns a lock that is passed on in memory to all who wait there.
//
// It is the slip of one who wakes a condition's waiters, and takes it for granted
// that they ask; the review of juju/mutex (#4) asks whether it was made there.
func PassedToAll(s Setup) *Lock {
	l := CorrectLocalQueue(s)
	l.queue.toAll = true
	return l
}

// PassedRecounted returns a lock that is passed on in memory, and whose next holder
// counts its lease from then. The key has the end that it had: the holder believes
// in it for too long.
//
// It is what comes of passing on a lock with a lease like one without. OpenViking
// (#3886) tells of a lock that no client renews while it is handed on.
func PassedRecounted(s Setup) *Lock {
	l := CorrectLocalQueue(s)
	l.queue.recounted = true
	return l
}

// Waiting is how many callers wait in the queue for a lock.
func (l *Lock) Waiting(name string) int {
	if l.queue == nil {
		return 0
	}
	l.queue.mu.Lock()
	defer l.queue.mu.Unlock()
	n := 0
	for _, p := range l.queue.waiting {
		if p.lease.Name == name {
			n++
		}
	}
	return n
}

// enqueue adds a caller to the queue; nil where there is none.
func (l *Lock) enqueue(ctx context.Context, lease lock.Lease) (*waiter, error) {
	if l.inbox != nil {
		return l.inbox.enqueue(ctx, lease)
	}
	if l.queue == nil {
		return nil, nil
	}
	p := &waiter{lease: lease, passed: make(chan lock.Lease, 1)}
	l.queue.mu.Lock()
	defer l.queue.mu.Unlock()
	l.queue.waiting = append(l.queue.waiting, p)
	return p, nil
}

// dequeue takes a caller out of the queue that did not take what it was passed, if it
// was: that goes on to the next.
func (l *Lock) dequeue(ctx context.Context, p *waiter) {
	if p == nil || l.queue == nil {
		return
	}
	l.queue.mu.Lock()
	l.queue.waiting = slices.DeleteFunc(l.queue.waiting, func(other *waiter) bool { return other == p })
	l.queue.mu.Unlock()
	select {
	case got := <-p.passed:
		_ = l.Release(context.WithoutCancel(ctx), got)
	default:
	}
}

// pass gives a grant that its holder releases to the first in the queue, and reports
// whether it did.
func (l *Lock) pass(lease lock.Lease) bool {
	q := l.queue
	if q == nil {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.ending[lease.Request] && time.Until(lease.Expires) >= lease.Length/2 && q.serve(lease) {
		return true
	}
	q.ending[lease.Request] = true
	return false
}

// serve takes the first out of the queue that can have a grant. q.mu is held.
func (q *localQueue) serve(lease lock.Lease) (served bool) {
	q.waiting = slices.DeleteFunc(q.waiting, func(p *waiter) bool {
		if p.lease.Name != lease.Name || p.lease.Length != lease.Length || served && !q.toAll {
			return false
		}
		p.passed <- lease
		served = true
		return true
	})
	return served
}

// ended forgets a grant that was released.
func (l *Lock) ended(lease lock.Lease) {
	if l.queue == nil {
		return
	}
	l.queue.mu.Lock()
	defer l.queue.mu.Unlock()
	delete(l.queue.ending, lease.Request)
}

// took is the lease of a caller that was passed the grant. One that was handed over for
// the ticket of the latest request that was refused was granted after that; any other is over.
func (l *Lock) took(p *waiter, lease, grant lock.Lease) lock.Lease {
	if l.inbox != nil {
		lease.Expires = l.ends(p.refused, lease.Length)
		if !l.inbox.fresh(p) {
			lease.Expires = l.ends(p.refused, 0)
		}
		return lease
	}
	lease.Request, lease.Expires = grant.Request, grant.Expires
	if l.queue.recounted {
		lease.Expires = l.ends(instant{time.Now(), l.Clock.Wall()}, lease.Length)
	}
	return lease
}
