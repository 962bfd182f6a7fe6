package lock

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/lock/internal/require"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

// wait awaits that so many callers wait in the queues of a client, beside those that
// ask the server.
func (s *localQueues) wait(t *testing.T, n int) {
	t.Helper()
	redistest.Await(t, "the queue", func() bool { return s.waiting() == n })
}

func (s *localQueues) waiting() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.of {
		n += len(q.waiters)
	}
	return n
}

// tickets awaits that so many were drawn for the lock "orders".
func tickets(t *testing.T, rdb *redis.Client, n int64) {
	t.Helper()
	redistest.Await(t, "the tickets", func() bool { return drawn(t, rdb) == n })
}

func drawn(t *testing.T, rdb *redis.Client) int64 {
	t.Helper()
	all, err := rdb.ZRange(t.Context(), keysOf("lock", "orders").of("tickets"), 0, -1).Result()
	require.NoError(t, err)
	n := int64(0)
	for _, ticket := range all {
		if ticket != "-" {
			n++
		}
	}
	return n
}

// grantOf is what a hold of a client is of.
func grantOf(t *testing.T, h *Hold) *grant {
	t.Helper()
	require.True(t, h != nil)
	g, ok := h.keeper.(*grant)
	require.True(t, ok)
	return g
}

// batchLasts makes the batch that has begun with a grant last as long as the test.
func (s *localQueues) batchLasts(t *testing.T, g *grant) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.of[g.queueKey()]
	require.True(t, q != nil)
	require.Equal(t, g.request, q.holder)
	q.ends = time.Now().Add(time.Hour)
}

// contended is a hold of a client that waited for it, and whose batch lasts. The
// queue of its lock is empty.
func contended(t *testing.T, c *Client, o Options) *Hold {
	t.Helper()
	h, err := c.Acquire(t.Context(), "orders", Options{Owner: "before", Lease: time.Minute, Wait: time.Minute})
	require.NoError(t, err)
	next, _ := takes(t.Context(), c, o)
	tickets(t, c.rdb.(*redis.Client), 1)
	require.NoError(t, h.Release(t.Context()))
	h = <-next
	c.queues.batchLasts(t, grantOf(t, h))
	return h
}

// A watched lock that is passed on right after it was handed over has the short lease of
// that still, and becomes that of the watchdog.
func TestLockPassedOnAfterAHandOverGetsItsLease(t *testing.T) {
	t.Parallel()
	c, _, rdb := linked(t)
	o := Options{Wait: time.Minute}
	h := contended(t, c, Options{Lease: time.Minute, Wait: time.Minute}) // the client listens
	next, _ := takes(t.Context(), c, o)
	tickets(t, rdb, 1)
	require.NoError(t, h.Release(t.Context()))
	first := <-next
	c.queues.batchLasts(t, grantOf(t, first))
	two, _ := takes(t.Context(), c, o)
	c.queues.wait(t, 1)
	require.NoError(t, first.Release(t.Context()))
	second := <-two
	require.Equal(t, 1, grantOf(t, second).passed, "it was passed on in memory")
	require.True(t, time.Until(second.Lease().Expires) < handedLease, "it has the lease of the hand-over")
	redistest.Await(t, "the watchdog's lease", func() bool {
		return time.Until(second.Lease().Expires) > handedLease
	})
	require.NoError(t, second.Release(t.Context()))
}

// What ran out between the release of one holder and the next one's look is no
// grant: that one asks anew, and the server learns that the lock is free.
func TestLockThatRanOutOnItsWayIsAskedForAnew(t *testing.T) {
	c, _, _ := linked(t)
	o := Options{Lease: time.Minute, Wait: time.Minute}
	h := contended(t, c, o)
	waits, errs := takes(t.Context(), c, o)
	c.queues.wait(t, 1)
	g := grantOf(t, h)
	g.lease = 0 // so that little is enough
	c.queues.mu.Lock()
	q := c.queues.of[queueKey{g.keys.lock, time.Minute, false}]
	q.give(localTurn{g.identity, answer{granted: true, holds: 1, expires: time.Now()}})
	c.queues.mu.Unlock()
	next := <-waits
	require.NoError(t, <-errs)
	require.True(t, g.request != grantOf(t, next).request)
	require.True(t, time.Duration(0) < time.Until(next.Lease().Expires))
	require.Equal(t, grantOf(t, next).request, onlyGrant(t, c))
	require.NoError(t, next.Release(t.Context()))
}

// onlyGrant is the request that holds the lock "orders", as the server says.
func onlyGrant(t *testing.T, c *Client) string {
	t.Helper()
	all := redistest.Fields(t.Context(), t, c.rdb, "lock:{orders}")
	delete(all, "owner")
	delete(all, "inbox")
	require.Len(t, all, 1)
	for request := range all {
		return request
	}
	return ""
}

// A process that stands still in a release, for longer than the lease lasts, passes
// nothing on: the lock is another one's by then.
func TestReleaseThatStandsStillPassesNothingOn(t *testing.T) {
	t.Parallel()
	c, _, rdb := linked(t)
	other, err := New(rdb, Config{})
	require.NoError(t, err)
	defer other.Close()
	o := Options{Lease: time.Second, Wait: time.Minute}
	h := contended(t, c, o)
	theirs, _ := takes(t.Context(), other, Options{Owner: "x", Lease: time.Minute, Wait: time.Minute})
	ours, _ := takes(t.Context(), c, o)
	c.queues.wait(t, 1)
	c.queues.mu.Lock()
	released := make(chan error, 1)
	go func() { released <- h.Release(t.Context()) }()
	x := <-theirs
	c.queues.mu.Unlock()
	require.ErrorIs(t, <-released, ErrNotHeld)
	state, err := other.Mutex("orders").State(t.Context())
	require.NoError(t, err)
	require.Equal(t, "x", state.Owner)
	select {
	case <-ours:
		t.Fatal("two hold it")
	default:
	}
	require.NoError(t, x.Release(t.Context()))
	require.NoError(t, (<-ours).Release(t.Context()))
}

// A hold whose release failed at first is not passed on when that is repeated: it
// may have been released on the server.
func TestReleaseThatWasTriedBeforePassesNothingOn(t *testing.T) {
	c, link, _ := linked(t)
	o := Options{Lease: time.Minute, Wait: time.Minute}
	h := contended(t, c, o)
	held, deliver := link.HoldReply(kinds.mutex.release(grantOf(t, h), false).Script.Digest)
	gone, cancel := context.WithCancel(t.Context())
	released := make(chan error, 1)
	go func() { released <- h.Release(gone) }()
	<-held
	cancel()
	require.ErrorIs(t, <-released, context.Canceled)
	waits, _ := takes(t.Context(), c, o)
	next := <-waits // the server has released it
	deliver()
	require.True(t, grantOf(t, next).passed == 0)
	_ = h.Release(t.Context())
	require.Equal(t, grantOf(t, next).request, onlyGrant(t, c))
	require.NoError(t, next.Release(t.Context()))
}

// A caller that gives up when it is its turn to ask leaves that to the next one.
func TestTurnOfACallerThatGaveUpGoesToTheNext(t *testing.T) {
	c, _, _ := linked(t)
	o := Options{Lease: time.Minute, Wait: time.Minute}
	h := contended(t, c, o)
	first := c.queues.join(grantOf(t, h).queueKey())
	require.True(t, first != nil)
	waits, _ := takes(t.Context(), c, o)
	c.queues.wait(t, 2)
	c.queues.mu.Lock()
	grantOf(t, h).changed = true // it is released on the server
	c.queues.mu.Unlock()
	require.NoError(t, h.Release(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	g := c.Mutex("orders").grant(o)
	redistest.Await(t, "its turn", func() bool { return len(first) == 1 })
	turn := <-first
	first <- turn
	asks, _ := g.waitLocally(ctx, first, time.Now(), time.Minute)
	require.True(t, asks)
	c.queues.asked(g, false)
	next := <-waits
	require.True(t, next != nil)
	require.NoError(t, next.Release(t.Context()))
}

// A queue that no caller needs is forgotten, also where a holder never released.
func TestQueuesAreForgotten(t *testing.T) {
	t.Parallel()
	c, _, _ := linked(t)
	forgotten := func() bool {
		c.queues.mu.Lock()
		defer c.queues.mu.Unlock()
		return len(c.queues.of) == 0
	}
	h, err := c.Acquire(t.Context(), "orders", Options{Lease: time.Minute, Wait: time.Minute})
	require.NoError(t, err)
	require.True(t, forgotten(), "no other client came")
	require.NoError(t, h.Release(t.Context()))
	o := Options{Lease: time.Second, Wait: time.Minute}
	h = contended(t, c, o)
	require.True(t, !forgotten())
	<-h.Lost()
	redistest.Await(t, "an end of the queue", forgotten)
	h = contended(t, c, o)
	ctx, cancel := context.WithCancel(t.Context())
	_, errs := takes(ctx, c, o)
	c.queues.wait(t, 1)
	cancel()
	require.ErrorIs(t, <-errs, context.Canceled)
	require.NoError(t, h.Release(t.Context()))
	require.True(t, forgotten())
}

// A caller tries no lock by its first request that another one of its client asks for, or may pass on: it would be refused
// each time, and rows contended-16 and contended-64 of docs/benchmarks.md fall to a third so.
func TestNoFirstRequestBesideAQueue(t *testing.T) {
	t.Parallel()
	c, _, _ := linked(t)
	tried := func() bool {
		g := c.Mutex("orders").grant(Options{Lease: time.Minute})
		require.NoError(t, g.askFirst(t.Context()))
		if g.answer.granted {
			require.NoError(t, g.release(t.Context(), g.answer.expires))
		}
		return g.answer.granted
	}
	redistest.Await(t, "a server that is known to answer soon", tried)
	c.queues.join(c.Mutex("orders").grant(Options{Lease: time.Minute}).queueKey())
	require.False(t, tried())
}
