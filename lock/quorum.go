package lock

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/lock/internal/transport"
)

// A node is one of the servers of a [Redlock].
type node struct {
	addr      string
	rdb       redis.UniversalClient
	transport *transport.Transport // whose goroutines Close does not await: a server may be silent
}

// A round is one request for a lock that is sent to several servers: the same
// owner and the same request everywhere. A waiter asks with a new one each time.
type round struct {
	redlock *Redlock
	grant   *grant // what is the same everywhere
	counted bool   // it is among the holds of its owner, whose mutex guards this
	seats   []seat
}

// A seat is the request at one server. Its calls come one after the other, so a release knows what the server said to the
// request before.
type seat struct {
	turn     turn // of the call that is under way
	state    seatState
	copied   bool // a copy of the request may be on its way
	tried    bool // to release it, and the answer is lost
	released bool // it was there when its release was answered
}

type seatState int

const (
	absent  seatState = iota // nothing is there, nor on its way
	unknown                  // the answer was lost or strange, or a copy may be on its way
	present
	ended // a release was answered, or had nothing to ask for; the server isn't asked any more
)

func newRound(r *Redlock, g *grant) *round {
	q := &round{redlock: r, grant: g, seats: make([]seat, len(r.nodes))}
	for i := range q.seats {
		q.seats[i].turn = make(turn, 1)
	}
	return q
}

// askServers makes a round of a grant, and returns as soon as a majority has granted or refused it, or all have been heard of;
// without a majority it takes back what was granted first. [ErrNotAcquired] says that a majority has nothing of it: they
// refused, or it was taken back.
func (g *grant) askServers(ctx context.Context) (answer, error) {
	r := g.kind.redlock
	g.request = rand.Text()
	g.id = g.request
	same := *g
	same.round = nil // else a waiter would keep all its rounds
	q := newRound(r, &same)
	g.round = q
	expires, t, err := q.request(ctx)
	if err == nil {
		return answer{granted: true, holds: r.count(q, 1), expires: expires}, nil
	}
	switch {
	case t.lost(): // where a majority refuses, no majority is ours
		g.doubt = nil
	case !errors.Is(err, ErrNotAcquired):
		g.doubt = err
	case g.doubt != nil: // an earlier round may have left something
		err = g.doubt
	}
	if g.waits && !errors.Is(err, ErrClosed) && !t.isMajority(t.refused) {
		err = again{err}
	}
	return answer{}, err
}

// request sends the round to all servers, and returns the end of the lease.
func (q *round) request(ctx context.Context) (time.Time, *quorumCount, error) {
	r, lease := q.redlock, q.grant.lease
	expires := r.client.expires(time.Now(), lease)
	t, err := r.askAll(ctx, min(r.config.NodeTimeout, time.Until(expires)), r.closing, (*quorumCount).isDecided,
		func(ctx context.Context, i int, tell func(bool, error)) { tell(q.ask(ctx, i, lease)) })
	if err == nil && t.won() && time.Now().Before(expires) {
		return expires, t, nil
	}
	confirmed, reason := 0, t.failure()
	if err == nil { // the servers that granted it are awaited, and the others told in the background
		var undone *quorumCount
		undone, err = r.askAll(ctx, r.config.NodeTimeout, nil, (*quorumCount).isComplete, func(ctx context.Context, i int, tell func(bool, error)) {
			if !t.granted[i] {
				tell(false, nil)
			}
			q.releaseOn(ctx, i, false, func(_ bool, err error) { tell(true, err) })
		})
		confirmed = undone.yes
	}
	switch {
	case err != nil: // perhaps before anything was sent
		q.undoLater(ctx)
	case t.isMajority(t.no + confirmed):
		err = fmt.Errorf("%w: %w", ErrNotAcquired, reason)
	default:
		err = reason
	}
	return time.Time{}, t, err
}

// ask has one server grant the request, or make the grant end d from now. Where it isn't known to be present it is asked
// for anew, so that a server that was out of reach, or lost it, makes up for it.
func (q *round) ask(ctx context.Context, i int, d time.Duration) (granted bool, err error) {
	s := &q.seats[i]
	if err := s.turn.take(ctx); err != nil {
		return false, err
	}
	defer s.turn.give()
	if s.state == ended {
		return false, errors.New("not asked any more")
	}
	g := *q.grant
	g.lease = d
	call := g.kind.acquire(&g)
	if s.state == present {
		call = g.kind.extend(&g, d)
	}
	call.Inline = q.redlock.config.NodeTimeout // each server is asked by a goroutine of its own, which may wait
	r := q.redlock.nodes[i].transport.Run(ctx, call)
	s.copied = s.copied || r.Copies
	if err = r.Err; err == nil && r.Value != int64(0) {
		numbers, strange := outcomeOf(r.Value)
		granted, err = numbers[0] == 1, strange
	}
	switch {
	case granted:
		s.state = present
	case s.state != present && (s.copied || r.Sent && transport.MayArrive(err)), err == nil && s.copied:
		s.state = unknown
	case err == nil:
		s.state = absent
	}
	return granted, err
}

// releaseOn releases the request at one server, and tells the first outcome; held says that its lease was not over when that
// was asked for. If no answer comes, it goes on in the background.
func (q *round) releaseOn(ctx context.Context, i int, held bool, tell func(released bool, err error)) {
	_ = q.redlock.retryForAWhile(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, q.redlock.config.NodeTimeout)
		defer cancel()
		released, err := q.tryRelease(ctx, i, held)
		tell(released, err)
		return err
	})
}

// tryRelease asks for the release once. It leaves a mark where a copy may be on its way: marks for all took a tenth of the
// cycle of row redlock-3 of docs/benchmarks.md. Without one, a repetition that finds nothing is taken to have released it
// before, unless the lease was over: then it had ended by itself, and another owner may have been granted the lock.
func (q *round) tryRelease(ctx context.Context, i int, held bool) (released bool, err error) {
	s := &q.seats[i]
	if err := s.turn.take(ctx); err != nil {
		return false, err
	}
	defer s.turn.give()
	if s.state == absent || s.state == ended {
		s.state = ended
		return s.released, nil
	}
	g := *q.grant
	g.copied = s.copied
	withdraw := s.state == unknown
	call := g.kind.release(&g, withdraw)
	call.Inline = q.redlock.config.NodeTimeout
	r := q.redlock.nodes[i].transport.Run(ctx, call)
	s.tried = s.tried || r.Copies
	if r.Err == nil {
		s.released = q.redlock.client.noteDenied(ctx, r.Value) == int64(1) || s.tried && held && !withdraw && !s.copied
		s.state = ended
	}
	return s.released, r.Err
}

// undoLater ends the request in the background.
func (q *round) undoLater(ctx context.Context) {
	for i := range q.seats {
		q.redlock.background(func() { q.releaseOn(ctx, i, false, func(bool, error) {}) })
	}
}

// extend makes the grant end d from now.
func (q *round) extend(ctx context.Context, d time.Duration) error {
	t, err := q.redlock.askAll(ctx, q.redlock.config.NodeTimeout, nil, (*quorumCount).isDecided,
		func(ctx context.Context, i int, tell func(bool, error)) { tell(q.ask(ctx, i, d)) })
	switch {
	case t.won():
		return nil
	case t.lost():
		q.undoLater(ctx)
		return ErrNotHeld
	default:
		return cmp.Or(err, t.failure())
	}
}

// release returns as soon as a majority has nothing of the request any more. A majority
// that did not have it when it was asked proves that it was not held, unless the lease ran
// out on the way: a server that had it until then says the same, and the others may have
// ended the grant before that. What was over before it was asked was held by a majority only if one says
// so: another owner may have been granted it, though a server still had the grant.
func (q *round) release(ctx context.Context, expires time.Time) error {
	held := time.Now().Before(expires)
	t, err := q.redlock.askAll(ctx, q.redlock.config.NodeTimeout, nil, (*quorumCount).isDecided,
		func(ctx context.Context, i int, tell func(bool, error)) { q.releaseOn(ctx, i, held, tell) })
	switch {
	case t.lost() && time.Now().Before(expires), !held && !t.won() && t.isMajority(t.yes+t.no):
		return ErrNotHeld
	case t.isMajority(t.yes + t.no): // it may have been held, and is not any more
		q.redlock.count(q, -1)
		return nil
	default:
		return cmp.Or(err, t.failure())
	}
}

// askAll asks every server at once, with a context that ends after the limit, and counts the answers until they are
// enough. The first that ask tells is that of the server.
// The requests for which the caller no longer waits go on.
//
// askAll returns the context's error as soon as that ends, and [ErrClosed] as soon
// as abort is closed.
func (r *Redlock) askAll(
	ctx context.Context, limit time.Duration, abort <-chan struct{}, enough func(*quorumCount) bool,
	ask func(ctx context.Context, i int, tell func(yes bool, err error)),
) (*quorumCount, error) {
	t := &quorumCount{nodes: r.nodes, granted: make([]bool, len(r.nodes))}
	if err := ctx.Err(); err != nil {
		return t, err
	}
	if r.isClosing() { // the process may be about to end
		enough = (*quorumCount).isComplete
	}
	replies := make(chan func(), len(r.nodes)) // also those that are no longer waited for
	for i := range r.nodes {
		r.background(func() {
			asked, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
			defer cancel()
			var first sync.Once
			ask(asked, i, func(yes bool, err error) {
				if err != nil && asked.Err() != nil {
					err = fmt.Errorf("no answer within %v", limit)
				}
				first.Do(func() { replies <- func() { t.count(i, yes, err) } })
			})
		})
	}
	for !enough(t) {
		count, _, err := transport.Await(ctx, replies, Forever, abort)
		if err != nil {
			return t, err
		}
		count()
	}
	return t, nil
}

// A quorumCount counts the answers of an odd number of servers.
type quorumCount struct {
	nodes   []node
	granted []bool // which said yes
	yes, no int
	errs    []error // why the others said neither
	refused int     // of those, that answered with an error
}

// count counts the answer of one more.
func (t *quorumCount) count(i int, yes bool, err error) {
	switch {
	case err != nil:
		t.errs = append(t.errs, fmt.Errorf("%s: %w", t.nodes[i].addr, err))
		if transport.IsRefusal(err) {
			t.refused++
		}
	case yes:
		t.yes++
		t.granted[i] = true
	default:
		t.no++
	}
}

// isComplete reports whether all have been heard of.
func (t *quorumCount) isComplete() bool { return t.yes+t.no+len(t.errs) == len(t.nodes) }

// isDecided reports whether there is a majority either way, or all have been heard of.
func (t *quorumCount) isDecided() bool { return t.won() || t.lost() || t.isComplete() }

func (t *quorumCount) isMajority(n int) bool { return n > len(t.nodes)/2 }
func (t *quorumCount) won() bool             { return t.isMajority(t.yes) }
func (t *quorumCount) lost() bool            { return t.isMajority(t.no) }

// failure says why there is no majority either way.
func (t *quorumCount) failure() error {
	err := fmt.Errorf("no majority of %d servers in time: %d said yes and %d no", len(t.nodes), t.yes, t.no)
	for _, why := range t.errs {
		err = fmt.Errorf("%w; %w", err, why)
	}
	return err
}
