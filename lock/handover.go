package lock

import (
	"fmt"
	"time"
)

// A lock is handed over where it is released: the script that releases it grants
// it to the first of those who wait, and tells that client, which needs no
// request of its own. So a lock that changes hands costs two requests, whichever
// clients wait, and however many: one to draw a ticket, and one to release.
//
// What a waiter must not rely on is the message. It may be lost, be late, or
// reach a connection behind which no client listens any more. Therefore
//   - the waiter asks again every few seconds, and whenever its subscription is
//     made anew: if it holds the lock, or its ticket is gone, the server says so;
//   - a client that never comes leaves the lock to the next after the lease, as a holder that died does; and all
//     tickets of it are void then, so that only one such lease is lost to a client. A lease of the watchdog is
//     short at first, and extended soon, unless the lock was released by then;
//   - a waiter that gives up takes its ticket back, and what was handed to it since.

const (
	// handedLease is for how long a lock is handed over that a watchdog is to keep, at first.
	handedLease = 5 * time.Second
	// handedPeriod is after what time the watchdog extends a lease that was handed over. Most holds
	// are released before.
	handedPeriod = 100 * time.Millisecond
)

// handsOver reports whether a waiter may draw a ticket.
func (g *grant) handsOver() bool { return g.waits && g.kind.tickets }

// draw has the request draw a ticket, if a message can reach it. The ticket says all that a grant needs: see tickets.lua. A server
// of a cluster can't tell whether the client hears a message: it counts those alone who listen to itself.
func (g *grant) draw() {
	c := g.client
	if g.ticket != "" || !g.handsOver() || !c.wakeups.Listens(c.inbox) {
		return
	}
	lease := g.lease
	if g.watched {
		lease = min(lease, handedLease)
	}
	g.ticket = fmt.Sprintf("%s %d %d %d %d %s%s",
		g.request, milliseconds(lease), g.tokenLife(), flag(!c.transport.Sharded()), len(c.inbox), c.inbox, g.owner)
}

// tokenLife is for how many ms the server remembers the last token; 0 if grants
// have none.
func (g *grant) tokenLife() int64 {
	if !g.kind.fenced {
		return 0
	}
	return g.client.config.TokenLife.Milliseconds()
}

// handed reads the message that the lock was handed to this request: the number of the
// ticket that was served, the lease in ms, the token, and the lock's key for people who
// read along.
//
// A message may be late, may come from a replica or from a server that isn't the master
// any more, and says nothing about when it was sent. So it counts only together with
// what the server answered to this client: it must be of the very ticket that was in
// the queue at the last refusal. Then the grant was made after that request was sent,
// and its lease ends no sooner than that long after it, whatever the clocks of the
// servers say and however late the message is. Where that leaves too little of the
// lease, the waiter asks. So it does where replicas must acknowledge the grant.
func (g *grant) handed(message string) (answer, bool) {
	var number, ms, token int64
	var key string
	if n, _ := fmt.Sscan(message, &number, &ms, &token, &key); n < 4 || g.number == 0 || g.number != number {
		return answer{}, false
	}
	lease := time.Duration(ms) * time.Millisecond
	a := answer{granted: true, handed: true, holds: 1, token: token, expires: g.client.expires(g.asked, lease)}
	return a, g.client.config.ReplicaAcks == 0 && time.Until(a.expires) >= g.least()
}
