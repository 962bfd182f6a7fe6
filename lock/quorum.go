package lock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockchaos/lockchaos/lock/internal/transport"
)

var errClosedRequest = errors.New("not asked any more")

// A node is one of the servers of a [Redlock].
type node struct {
	*Client
	addr string
}

// A round is one request for a lock that is sent to several servers: the same
// owner and the same request everywhere. A waiter asks with a new one each time.
type round struct {
	redlock *Redlock
	grant   *grant // what is the same everywhere
	counted bool   // it is among the holds of its owner, whose mutex guards this

	mu     sync.Mutex
	closed bool // no grant is asked for any more
	over   bool // its lease was, when its release was asked for last
	votes  []vote
}

// A vote is what is known of the request at one server.
type vote struct {
	state    voteState
	asks     int  // how often it was asked for a grant,
	replies  int  // and how often that came to something: else it is under way, or no caller awaits it
	refused  bool // the last time
	copied   bool // a copy of that may be on its way
	tried    bool // to release it, and the answer is lost
	answered bool // a release, which
	released bool // ended the grant
}

type voteState int

const (
	absent  voteState = iota // nothing is there, nor on its way
	unknown                  // no answer yet, or it was lost
	present
)

// askServers makes a round of a grant, and returns as soon as a majority has granted it, or as soon as none will; then it takes
// back what was granted first. [ErrNotAcquired] says that a majority has nothing of it: they refused, or it was taken back.
func (g *grant) askServers(ctx context.Context) (answer, error) {
	r := g.kind.redlock
	if g.round != nil {
		g.request = rand.Text()
		g.id = g.request
	}
	same := *g
	same.round = nil // else a waiter would keep all its rounds
	q := &round{redlock: r, grant: &same, votes: make([]vote, len(r.nodes))}
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
	if g.waits && ctx.Err() == nil && !errors.Is(err, ErrClosed) && !t.isMajority(t.refused) {
		err = again{err}
	}
	return answer{}, err
}

// request sends the round to all servers, and returns the end of the lease.
func (q *round) request(ctx context.Context) (time.Time, quorumCount, error) {
	r, lease := q.redlock, q.grant.lease
	expires := r.client.expires(time.Now(), lease)
	t := quorumCount{nodes: r.nodes}
	err := r.askAll(ctx, min(r.config.NodeTimeout, time.Until(expires)), r.closing, func(ctx context.Context, i int) (bool, error) {
		return q.ask(ctx, i, lease)
	}, t.count, t.enough)
	if err == nil && t.won() && time.Now().Before(expires) {
		return expires, t, nil
	}
	confirmed, reason := 0, t.failure()
	if err == nil {
		confirmed, err = q.undo(ctx, t.no)
	}
	if t.won() {
		reason = fmt.Errorf("granted when the lease of %v was over already", lease)
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
	q.mu.Lock()
	v := &q.votes[i]
	if q.closed {
		q.mu.Unlock()
		return false, errClosedRequest
	}
	var s transport.Call
	if v.state == present {
		s = q.grant.kind.extend(q.grant, d)
	} else {
		v.state = unknown
		g := *q.grant
		g.lease = d
		s = g.kind.acquire(&g)
	}
	v.asks++
	q.mu.Unlock()
	r := q.redlock.send(ctx, i, s)
	if err = r.Err; err == nil && r.Value != int64(0) {
		var numbers [4]int64
		numbers, err = outcomeOf(r.Value)
		granted = numbers[0] == 1
	}
	q.mu.Lock()
	if !r.Left {
		v.replies++
	}
	v.refused = err == nil && !granted
	v.copied = v.copied || v.asks > 1 || r.Copies
	switch {
	case granted:
		v.state = present
	case v.asks == 1 && !r.Copies && (!r.Sent || !transport.MayArrive(err)):
		v.state = absent
	case err == nil: // an earlier request may be on its way
		v.state = unknown
	}
	undo := granted && v.answered // a release, before, and the server has lost the mark that it left
	q.mu.Unlock()
	if undo {
		_, _ = q.releaseOn(ctx, i, true)
	}
	return granted, err
}

// releaseOn releases the request at one server. If no answer comes, it goes on in the
// background. It leaves a mark where a copy may be on its way: marks for all took a tenth of the cycle of row redlock-3 of
// docs/benchmarks.md. Without one, a repetition that finds nothing is taken to have released it before, unless the lease
// was over when that was asked for: then it had ended by itself, and another owner may have been granted the lock.
func (q *round) releaseOn(ctx context.Context, i int, withdraw bool) (released bool, err error) {
	v := &q.votes[i]
	release := func(ctx context.Context) (bool, error) {
		g := *q.grant
		q.mu.Lock()
		if v.state == absent { // the request, which was awaited when it was to be released, was never sent or was refused
			q.mu.Unlock()
			return false, nil
		}
		g.copied = v.copied || v.asks != v.replies
		q.mu.Unlock()
		r := q.redlock.send(ctx, i, g.kind.release(&g, withdraw))
		released := q.redlock.client.isReleased(ctx, r.Value)
		q.mu.Lock()
		defer q.mu.Unlock()
		released = released || r.Err == nil && !withdraw && !g.copied && !q.over && (v.tried || r.Copies)
		v.tried = v.tried || r.Copies
		if r.Err == nil && !v.answered { // the first answer
			v.answered, v.released = true, released
		}
		return released, r.Err
	}
	released, err = release(ctx)
	if err != nil && (!transport.IsRefusal(err) || transport.IsPassing(err)) {
		q.redlock.background(func() {
			_ = q.redlock.retryForAWhile(ctx, func(ctx context.Context) error {
				ctx, cancel := context.WithTimeout(ctx, q.redlock.config.NodeTimeout)
				defer cancel()
				_, err := release(ctx)
				return err
			})
		})
	}
	return released, err
}

// undo ends the request, so that nothing is left of it: on the servers that
// granted it, and on those that may have. no of the others refused it. It returns how many have
// confirmed that, once those that granted it have answered and a majority has nothing, or
// all have answered but those whose first answer is awaited still, or the time is over. What is left is done in the
// background.
func (q *round) undo(ctx context.Context, no int) (confirmed int, err error) {
	q.mu.Lock()
	q.closed = true
	before := slices.Clone(q.votes)
	q.mu.Unlock()
	granted, awaited := 0, 0
	tally := func(v vote, n int) {
		if v.state == present {
			granted += n
		}
		if v.state != absent && v.asks == v.replies {
			awaited += n
		}
	}
	for _, v := range before {
		tally(v, 1)
	}
	err = q.redlock.askAll(ctx, q.redlock.config.NodeTimeout, nil,
		func(ctx context.Context, i int) (bool, error) {
			if before[i].state == absent {
				return false, nil
			}
			_, err := q.releaseOn(ctx, i, true)
			return true, err
		},
		func(i int, had bool, err error) {
			tally(before[i], -1)
			if had && err == nil && !before[i].refused { // which is counted already
				confirmed++
			}
		},
		func() bool { return awaited == 0 || granted == 0 && len(before)/2 < no+confirmed })
	return confirmed, err
}

// undoLater is undo in the background.
func (q *round) undoLater(ctx context.Context) {
	q.redlock.background(func() { _, _ = q.undo(context.WithoutCancel(ctx), 0) })
}

// extend makes the grant end d from now.
func (q *round) extend(ctx context.Context, d time.Duration) error {
	r := q.redlock
	t := quorumCount{nodes: r.nodes}
	gaveUp := r.askAll(ctx, r.config.NodeTimeout, nil,
		func(ctx context.Context, i int) (bool, error) { return q.ask(ctx, i, d) }, t.count, t.enough)
	switch {
	case t.won():
		return nil
	case t.lost():
		q.undoLater(ctx)
		return ErrNotHeld
	case gaveUp != nil:
		return t.withErrors(gaveUp)
	default:
		return t.failure()
	}
}

// release returns as soon as a majority has nothing of the request any more. A majority
// that did not have it when it was asked proves that it was not held, unless the lease ran
// out on the way: a server that had it until then says the same, and the others may have
// ended the grant before that. What was over before it was asked was held by a majority only if one says
// so: another owner may have been granted it, though a server still had the grant.
func (q *round) release(ctx context.Context, expires time.Time) error {
	q.mu.Lock()
	over := !time.Now().Before(expires)
	q.closed, q.over = true, over
	q.mu.Unlock()
	t := quorumCount{nodes: q.redlock.nodes}
	err := q.redlock.askAll(ctx, q.redlock.config.NodeTimeout, nil, func(ctx context.Context, i int) (bool, error) {
		q.mu.Lock()
		v := q.votes[i]
		q.mu.Unlock()
		if v.answered { // known to be over
			return v.released, nil
		}
		return q.releaseOn(ctx, i, v.state != present)
	}, t.count, t.enough)
	switch {
	case err != nil:
		return err
	case t.no == len(t.nodes), t.lost() && (over || time.Now().Before(expires)), over && !t.won() && t.isMajority(t.yes+t.no):
		return ErrNotHeld
	case t.isMajority(t.yes + t.no): // it may have been held, and is not any more
		q.redlock.count(q, -1)
		return nil
	default:
		return t.failure()
	}
}

// send sends a call to one server. The servers are asked by goroutines of their own, which a call may use.
func (r *Redlock) send(ctx context.Context, i int, s transport.Call) transport.Reply {
	s.Inline = r.config.NodeTimeout
	return r.nodes[i].transport.Run(ctx, s)
}

// askAll asks every server at once, with a context that ends after the limit or when
// all have answered, and passes the answers to hear, one after the other, until they are enough.
// The requests for which the caller no longer waits go on.
//
// askAll returns the context's error as soon as that ends, and [ErrClosed] as soon
// as abort is closed.
func (r *Redlock) askAll(
	ctx context.Context, limit time.Duration, abort <-chan struct{},
	ask func(ctx context.Context, i int) (bool, error), hear func(i int, yes bool, err error), enough func() bool,
) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	type reply struct {
		i   int
		yes bool
		err error
	}
	asked, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	replies := make(chan reply, len(r.nodes)) // also those that are no longer waited for
	var answers atomic.Int64
	answered := func() {
		if answers.Add(1) == int64(len(r.nodes)) {
			cancel()
		}
	}
	for i := range r.nodes {
		r.background(func() {
			yes, err := ask(asked, i)
			if err != nil && asked.Err() != nil {
				err = fmt.Errorf("no answer within %v", limit)
			}
			replies <- reply{i, yes, err}
			answered()
		})
	}
	for n := 0; n < len(r.nodes) && !enough(); n++ {
		a, _, err := transport.Await(ctx, replies, Forever, abort)
		if err != nil {
			return err
		}
		hear(a.i, a.yes, a.err)
	}
	if r.isClosing() { // the process may be about to end
		_, _, _ = transport.Await(ctx, asked.Done(), Forever, nil)
	}
	return nil
}

// A quorumCount counts the answers of an odd number of servers.
type quorumCount struct {
	nodes   []*node
	yes, no int
	errs    []error // why the others said neither
	refused int     // of those, that answered with an error
}

// count counts one more.
func (t *quorumCount) count(i int, yes bool, err error) {
	switch {
	case err != nil:
		t.errs = append(t.errs, fmt.Errorf("%s: %w", t.nodes[i].addr, err))
		if transport.IsRefusal(err) {
			t.refused++
		}
	case yes:
		t.yes++
	default:
		t.no++
	}
}

// enough reports whether the outcome is known: a majority
// either way, or none, and whether a majority said anything.
func (t *quorumCount) enough() bool {
	said := t.yes + t.no
	left := len(t.nodes) - said - len(t.errs)
	tied := !t.isMajority(t.yes+left) && !t.isMajority(t.no+left)
	return t.won() || t.lost() || tied && (t.isMajority(said) || !t.isMajority(said+left))
}

func (t *quorumCount) isMajority(n int) bool { return n > len(t.nodes)/2 }
func (t *quorumCount) won() bool             { return t.isMajority(t.yes) }
func (t *quorumCount) lost() bool            { return t.isMajority(t.no) }

// failure says why there is no majority either way.
func (t *quorumCount) failure() error {
	return t.withErrors(fmt.Errorf("no majority of %d servers: %d said yes and %d no", len(t.nodes), t.yes, t.no))
}

// withErrors adds what is wrong with servers to an error.
func (t *quorumCount) withErrors(err error) error {
	for _, why := range t.errs {
		err = fmt.Errorf("%w; %w", err, why)
	}
	return err
}
