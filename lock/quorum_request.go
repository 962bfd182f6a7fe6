package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockchaos/lockchaos/lock/internal/transport"
)

// A quorumRequest is one request for a lock that is sent to several servers: the same
// owner and the same request everywhere. Once a majority has granted it, it is
// the keeper of its hold.
type quorumRequest struct {
	redlock *Redlock
	grant   *grant // what is the same everywhere
	counted bool   // it is among the holds of its owner, whose mutex guards this

	mu     sync.Mutex
	closed bool // no grant is asked for any more
	undone bool // it was given up by undo, and not by a release
	votes  []vote
}

// A vote is what is known of the request at one server.
type vote struct {
	state    voteState
	answered bool // a release, which
	released bool // ended the grant
}

type voteState int

const (
	unasked voteState = iota
	asked             // no answer yet; the goroutine that awaits it undoes the grant of an undone request
	absent            // nothing is there, nor on its way
	unknown           // the answer was lost
	present
)

var (
	errUnresponsive  = fmt.Errorf("not asked: it left %d requests without an answer", maxUnanswered)
	errClosedRequest = errors.New("not asked any more")
)

// newRequest is a new request with those options.
func (r *Redlock) newRequest(name string, o Options) *quorumRequest {
	here := r.nodes[0].object(name, kinds.mutex)
	g := here.grant(o)
	g.copied = true // a server may be asked anew while an earlier request is under way
	return &quorumRequest{redlock: r, grant: g, votes: make([]vote, len(r.nodes))}
}

// requestAll sends the request to all servers and returns as soon as a majority has
// granted it, with the end of the lease, or as soon as none will; then it takes
// back what was granted first. [ErrNotAcquired] says that a majority has nothing
// of it: they refused, as the count tells, or it was taken back.
func (q *quorumRequest) requestAll(ctx context.Context) (time.Time, quorumCount, error) {
	r := q.redlock
	expires := r.expires(time.Now(), q.grant.lease)
	t := r.newCount()
	err := r.askAll(ctx, min(r.config.NodeTimeout, time.Until(expires)), r.closing, func(ctx context.Context, i int) (bool, error) {
		return q.ask(ctx, i, q.grant.lease)
	}, t.count)
	if err == nil && t.won() && time.Now().Before(expires) {
		return expires, t, nil
	}
	confirmed := 0
	if err == nil {
		confirmed, err = q.undo(ctx, t)
	}
	definite := t.isMajority(t.no + confirmed)
	late := fmt.Errorf("granted when the lease of %v was over already", q.grant.lease)
	switch {
	case err != nil: // perhaps before anything was sent
		r.background(func() { _, _ = q.undo(context.WithoutCancel(ctx), t) })
	case t.won() && definite:
		err = fmt.Errorf("%w: %w", ErrNotAcquired, late)
	case t.won():
		err = fmt.Errorf("%w, and taken back on %d of %d servers", late, confirmed, t.yes)
	case definite:
		err = t.withErrors(ErrNotAcquired)
	default:
		err = t.failure()
	}
	return time.Time{}, t, err
}

// ask has one server grant the request, or make the grant end d from now. Where it isn't known to be present it is asked
// for anew, so that a server that was out of reach, or lost it, makes up for it.
func (q *quorumRequest) ask(ctx context.Context, i int, d time.Duration) (granted bool, err error) {
	n := q.redlock.nodes[i]
	s, first, err := q.next(i, d)
	if err != nil {
		return false, err
	}
	r := n.run(ctx, s)
	if err = r.Err; err == nil && r.Value != int64(0) {
		var numbers [4]int64
		numbers, err = outcomeOf(r.Value)
		granted = numbers[0] == 1
	}
	q.mu.Lock()
	v := &q.votes[i]
	switch {
	case granted:
		v.state = present
	case !first && err != nil: // as before
	case !first, r.Copies || transport.MayArrive(err): // an earlier request may be on its way
		v.state = unknown
	case v.state == asked: // else it was asked anew meanwhile
		v.state = absent
	}
	unwanted := q.undone && v.state >= unknown
	q.mu.Unlock()
	if unwanted {
		_, _ = q.releaseOn(ctx, i, true)
	}
	return granted, err
}

// next is the call for one server, and whether it is the first.
func (q *quorumRequest) next(i int, d time.Duration) (s transport.Call, first bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	v := &q.votes[i]
	switch {
	case q.closed:
		return s, false, errClosedRequest
	case v.state == present:
		return q.grant.kind.extend(q.grant, d), false, nil
	case q.redlock.nodes[i].isUnresponsive(q.redlock.config.NodeTimeout):
		return s, false, errUnresponsive
	}
	first = v.state == unasked
	v.state = unknown
	if first {
		v.state = asked
	}
	g := *q.grant
	g.lease = d
	return g.kind.acquire(&g), first, nil
}

// releaseOn releases the request at one server. If no answer comes, it goes on in the
// background.
func (q *quorumRequest) releaseOn(ctx context.Context, i int, withdraw bool) (released bool, err error) {
	n := q.redlock.nodes[i]
	r := n.run(ctx, q.grant.kind.release(q.grant, withdraw))
	released, err = n.isReleased(ctx, r.Value), r.Err
	q.recordRelease(i, released, err)
	if err != nil && (!transport.IsRefusal(err) || transport.IsPassing(err)) {
		n.inFlight.Add(1)
		q.redlock.background(func() {
			defer n.inFlight.Add(-1)
			g := *q.grant
			g.object = object{client: n.Client, name: g.name, keys: g.keys, kind: g.kind}
			released, err := g.retryRelease(ctx, withdraw)
			q.recordRelease(i, released, err)
		})
	}
	return released, err
}

// recordRelease notes the first answer of a server to a release.
func (q *quorumRequest) recordRelease(i int, released bool, err error) {
	q.redlock.nodes[i].noteReply(err)
	q.mu.Lock()
	defer q.mu.Unlock()
	if v := &q.votes[i]; err == nil && !v.answered {
		v.answered, v.released = true, released
	}
}

// undo ends the request, so that nothing is left of it: on the servers that
// granted it, and on those whose answer was lost. It returns how many of them have
// confirmed that, once the former have answered and a majority has nothing, or
// all have answered, or the time is over. What is left is done in the background.
func (q *quorumRequest) undo(ctx context.Context, t quorumCount) (confirmed int, err error) {
	q.mu.Lock()
	q.closed, q.undone = true, true
	before := slices.Clone(q.votes)
	q.mu.Unlock()
	granted := 0
	for _, v := range before {
		if v.state == present {
			granted++
		}
	}
	mayBe := func(v vote) bool { return v.state >= unknown }
	if !slices.ContainsFunc(before, mayBe) {
		return 0, nil
	}
	err = q.redlock.askAll(ctx, q.redlock.config.NodeTimeout, nil,
		func(ctx context.Context, i int) (bool, error) {
			if !mayBe(before[i]) {
				return false, nil
			}
			_, err := q.releaseOn(ctx, i, true)
			return true, err
		},
		func(i int, had bool, err error) bool {
			if before[i].state == present {
				granted--
			}
			if had && err == nil {
				confirmed++
			}
			return granted == 0 && t.isMajority(t.no+confirmed)
		})
	return confirmed, err
}

// extend makes the grant end d from now.
func (q *quorumRequest) extend(ctx context.Context, d time.Duration) error {
	r := q.redlock
	t := r.newCount()
	gaveUp := r.askAll(ctx, r.config.NodeTimeout, nil,
		func(ctx context.Context, i int) (bool, error) { return q.ask(ctx, i, d) }, t.count)
	switch {
	case t.won():
		return nil
	case t.lost():
		r.background(func() { _, _ = q.undo(context.WithoutCancel(ctx), r.newCount()) })
		return ErrNotHeld
	case gaveUp != nil:
		return t.withErrors(gaveUp)
	default:
		return t.failure()
	}
}

func (q *quorumRequest) expires(sent time.Time, lease time.Duration) time.Time {
	return q.redlock.expires(sent, lease)
}

func (q *quorumRequest) tell(ctx context.Context, kind EventKind, l Lease, took time.Duration, err error) {
	q.redlock.tell(ctx, kind, l, took, err)
}

// Extend is for the hold.
func (q *quorumRequest) Extend(ctx context.Context, l Lease, d time.Duration) (time.Time, error) {
	return extendHold(ctx, q, l, d, q.grant.watched)
}

// Release is for the hold.
func (q *quorumRequest) Release(ctx context.Context, l Lease) error {
	begin := time.Now()
	err := q.releaseAll(ctx, l.Expires)
	if err == nil {
		q.redlock.holds.add(q, -1)
	}
	q.redlock.tell(ctx, Released, l, time.Since(begin), err)
	return err
}

// releaseAll returns as soon as a majority has nothing of the request any more. A majority
// that did not have it when it was asked proves that it was not held, unless the lease ran
// out on the way: a server that had it until then says the same, and the others may have
// ended the grant before that. What was over before it was asked was held by a majority only if one says
// so: another owner may have been granted it, though a server still had the grant.
func (q *quorumRequest) releaseAll(ctx context.Context, expires time.Time) error {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	over, t := !time.Now().Before(expires), q.redlock.newCount()
	err := q.redlock.askAll(ctx, q.redlock.config.NodeTimeout, nil, q.releaseAt, t.count)
	switch {
	case err != nil:
		return err
	case t.no == len(t.nodes), t.lost() && (over || time.Now().Before(expires)), over && !t.won() && t.isMajority(t.yes+t.no):
		return ErrNotHeld
	case t.isMajority(t.yes + t.no): // it may have been held, and is not any more
		return nil
	default:
		return t.failure()
	}
}

// releaseAt ends the request at one server, unless that is known to be over.
func (q *quorumRequest) releaseAt(ctx context.Context, i int) (released bool, err error) {
	q.mu.Lock()
	v := q.votes[i]
	q.mu.Unlock()
	if v.answered || v.state == unasked || v.state == absent {
		return v.released, nil
	}
	return q.releaseOn(ctx, i, v.state != present)
}

// leased is the grant as plain data.
func (q *quorumRequest) leased(expires time.Time) Lease {
	l := q.grant.leased(answer{expires: expires})
	l.Node = "" // there are several
	return l
}

// hold is the handle on a request that a majority granted.
func (q *quorumRequest) hold(ctx context.Context, expires, begin time.Time) *Hold {
	r := q.redlock
	l := q.leased(expires)
	l.Holds = r.holds.add(q, 1)
	h := newHold(l, q)
	h.hooks = q
	if q.grant.watched {
		h.watch = newWatch(q.grant.lease, q.grant.lease/3, q.grant.lease/3)
	}
	r.tell(ctx, Acquired, l, time.Since(begin), nil)
	h.start()
	return h
}

func (q *quorumRequest) taskGroup() *taskGroup { return q.redlock.taskGroup }

func (q *quorumRequest) onLost(l Lease) {
	q.redlock.holds.add(q, -1)
	q.tell(context.Background(), Lost, l, 0, nil)
}
