package lock

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/lockchaos/lockchaos/lock/internal/transport"
)

// Callers of one client that want the same lock for the same lease, and name no
// owner, queue up in the memory of the client. One of them at a time asks the
// server, with a ticket of its own. The others wait, and each of them either is
// passed the grant of the holder before it, or becomes the one that asks. A grant
// that is passed stays as it is on the server; its next holder extends and releases
// it. So a lock that many goroutines of a process want costs a request now and then:
// rows contended-2 to contended-256x4 of docs/benchmarks.md fall to a tenth without this.
//
// For the server, and so for all other clients, that is one holder which keeps the
// lock a little longer. Therefore
//   - a grant is passed [Config.Batch] times at most, and for batchTime. Then it is
//     released on the server, which gives the lock to the first ticket. So clients
//     don't starve each other, and a grant that the server has lost is noticed;
//   - it is not passed while a caller of this client asks the server, so that the
//     place of that caller in the server's queue counts;
//   - it is not passed where little is left of its lease, where its holder moved its
//     end or tried to release it before, nor once the client is closed. A waiter that
//     sees the grant after its end gives it back and asks;
//   - the owner that the server knows is that of the first holder. Each holder has
//     an owner of its own in its [Lease], by which no caller can ask for the lock, so a
//     grant that is passed was never entered again.

// batchTime is for how long a grant is passed on in memory.
const batchTime = 5 * time.Millisecond

// localQueues are the queues of a client.
type localQueues struct {
	mu sync.Mutex
	of map[queueKey]*localQueue
}

// queueKey tells queues apart: a grant is passed to callers that want the same.
type queueKey struct {
	lock    string
	lease   time.Duration
	watched bool
}

// localQueue is the queue for one lock. It is there while a caller asks the server, and while a grant that callers
// contended for may be passed on.
type localQueue struct {
	waiters []chan localTurn // those of callers that wait for their turn, in the order of arrival; each holds one
	holder  string           // the request that the server granted, and that may be passed on; "" while a caller asks
	ends    time.Time        // when that may be done no longer, and the first waiter asks the server,
	timed   bool             // which a timer has it do
}

// localTurn ends the wait: with a grant, or with the right to ask the server.
type localTurn struct {
	identity identity
	answer   answer
}

// shares reports whether a grant may be passed on in memory.
func (g *grant) shares() bool {
	c := &g.client.config
	return g.anonymous && g.kind.tickets && !g.kind.fenced && c.ReplicaAcks == 0 && c.Batch > 0
}

func (g *grant) queueKey() queueKey { return queueKey{g.keys.lock, g.lease, g.watched} }

// has reports whether a caller asks the server for the lock of a grant, or may pass it on.
func (s *localQueues) has(g *grant) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.of[g.queueKey()] != nil
}

// join puts a caller into the queue for its lock. It returns nil if the caller is to
// ask the server at once.
func (s *localQueues) join(key queueKey) chan localTurn {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.of[key]
	if q == nil {
		s.of[key] = &localQueue{}
		return nil
	}
	w := make(chan localTurn, 1)
	q.waiters = append(q.waiters, w)
	s.watch(key, q)
	return w
}

// watch has the first waiter ask the server once the batch ends. Where no caller waits there is no timer: it would take half
// of the client's processor time of row handover of docs/benchmarks.md.
func (s *localQueues) watch(key queueKey, q *localQueue) {
	if q.holder == "" || q.timed || len(q.waiters) == 0 {
		return
	}
	q.timed = true
	request := q.holder
	time.AfterFunc(time.Until(q.ends), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.of[key] == q && q.holder == request {
			s.next(key, q)
		}
	})
}

// next has the first waiter ask the server. A queue without one ends.
func (s *localQueues) next(key queueKey, q *localQueue) {
	if q.holder = ""; len(q.waiters) > 0 {
		q.give(localTurn{})
	} else {
		delete(s.of, key)
	}
}

// give ends the wait of the first waiter.
func (q *localQueue) give(t localTurn) {
	q.waiters[0] <- t
	q.waiters = slices.Delete(q.waiters, 0, 1)
}

// asked ends the request of a caller to the server. If it was granted, a batch
// begins, unless it was granted at once and no caller waits.
func (s *localQueues) asked(g *grant, granted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := g.queueKey()
	if q := s.of[key]; granted && (g.waited || len(q.waiters) > 0) {
		q.holder, q.ends, q.timed = g.request, time.Now().Add(batchTime), false
		s.watch(key, q)
	} else {
		s.next(key, q)
	}
}

// pass gives a grant that its holder releases to the first waiter, if that may be,
// and reports whether it did.
func (s *localQueues) pass(g *grant, expires time.Time) bool {
	if g.changed || g.client.isClosing() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.of[g.queueKey()]
	if q == nil || q.holder != g.request || len(q.waiters) == 0 {
		return false
	}
	now := time.Now() // no sooner: the process may have stood still
	left := expires.Sub(now)
	if g.passed >= g.client.config.Batch || !now.Before(q.ends) || left < g.least() {
		return false
	}
	g.passed++
	q.give(localTurn{g.identity, answer{
		granted: true, holds: 1, expires: expires,
		handed: g.watched && g.lease > handedLease && left < max(g.lease/2, handedLease),
	}})
	return true
}

// least is how much of the lease there has to be for the next holder: nine tenths of one that it
// asked for, and enough for the watchdog to renew its own.
func (g *grant) least() time.Duration {
	if g.watched {
		return min(g.lease, handedLease) / 2
	}
	return g.lease - g.client.config.margin(g.lease) - g.lease/10
}

// leave is called before a grant is released on the server, and when it is lost: the
// first waiter asks then.
func (s *localQueues) leave(g *grant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := g.queueKey()
	if q := s.of[key]; q != nil && q.holder == g.request {
		s.next(key, q)
	}
}

// withdraw takes a waiter out of its queue; false if its turn has come.
func (s *localQueues) withdraw(key queueKey, w chan localTurn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(w) > 0 {
		return false
	}
	q := s.of[key]
	q.waiters = slices.DeleteFunc(q.waiters, func(other chan localTurn) bool { return other == w })
	return true
}

// waitLocally waits in a queue until the caller is passed a grant, or is to ask the server, or has waited for long enough.
func (g *grant) waitLocally(
	ctx context.Context, w chan localTurn, begin time.Time, limit time.Duration,
) (asks bool, failed error) {
	g.waited = true
	t, came, err := transport.Await(ctx, w, remaining(begin, limit), g.client.closing)
	if !came {
		if err = cmp.Or(err, ErrNotAcquired); g.client.queues.withdraw(g.queueKey(), w) {
			return false, err
		}
		t = <-w
	}
	if !t.answer.granted { // with an error, the turn goes to the next
		return true, err
	}
	mine := *g
	mine.identity, mine.answer = t.identity, t.answer
	if time.Now().Before(t.answer.expires) {
		*g = mine
		return false, nil
	}
	// It was over before this caller saw it, which asks the server by itself.
	g.client.queues.leave(&mine)
	g.client.background(func() { _ = mine.withdraw(ctx) })
	return false, err
}
