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

	mu       sync.Mutex
	closed   bool // no grant is asked for any more
	undone   bool // it was given up by undo, and not by a release
	states   []nodeState
	releases []releaseReply
}

// nodeState is whether a server has granted a request, as far as is known.
type nodeState int

const (
	unasked nodeState = iota
	asked             // no answer yet; the goroutine that awaits it undoes the grant of an undone request
	absent            // nothing is there, nor on its way
	unknown           // the answer was lost
	present
)

// releaseReply is the answer of a server to a release, if there was one.
type releaseReply struct{ answered, released bool }

var (
	errUnresponsive  = fmt.Errorf("not asked: it left %d requests without an answer", maxUnanswered)
	errClosedRequest = errors.New("not asked any more")
)

// newRequest is a new request with those options.
func (r *Redlock) newRequest(name string, o Options) *quorumRequest {
	n, first := len(r.nodes), r.nodes[0]
	here := first.object(name, kinds.mutex)
	g := here.grant(o)
	g.copied = true // a server may be asked anew while an earlier request is under way
	return &quorumRequest{
		redlock: r, grant: g,
		states: make([]nodeState, n), releases: make([]releaseReply, n),
	}
}

// on is the grant of one server.
func (q *quorumRequest) on(i int) *grant {
	g := *q.grant
	g.object = object{client: q.redlock.nodes[i].Client, name: g.name, keys: g.keys, kind: g.kind}
	return &g
}

// requestAll sends the request to all servers and returns as soon as a majority has
// granted it, with the end of the lease, or as soon as none will; then it takes
// back what was granted first. [ErrNotAcquired] says that a majority has nothing
// of it: they refused, as the count tells, or it was taken back.
func (q *quorumRequest) requestAll(ctx context.Context) (time.Time, quorumCount, error) {
	r := q.redlock
	expires := r.expires(time.Now(), q.grant.lease)
	t := r.newCount()
	err := r.askAll(ctx, min(r.config.NodeTimeout, time.Until(expires)), r.closing, q.askNode, t.count)
	if err != nil {
		r.background(func() { _, _ = q.undo(context.WithoutCancel(ctx), t) })
		return time.Time{}, t, err
	}
	if t.won() && time.Now().Before(expires) {
		return expires, t, nil
	}
	confirmed, err := q.undo(ctx, t)
	if err != nil { // perhaps before anything was sent
		r.background(func() { _, _ = q.undo(context.WithoutCancel(ctx), t) })
		return time.Time{}, t, err
	}
	definite := t.isMajority(t.no + confirmed)
	switch {
	case t.won():
		late := fmt.Errorf("granted when the lease of %v was over already", q.grant.lease)
		if definite {
			return time.Time{}, t, fmt.Errorf("%w: %w", ErrNotAcquired, late)
		}
		return time.Time{}, t, fmt.Errorf("%w, and taken back on %d of %d servers", late, confirmed, t.yes)
	case definite:
		return time.Time{}, t, t.withErrors(ErrNotAcquired)
	default:
		return time.Time{}, t, t.failure()
	}
}

// askNode sends the request to one server.
func (q *quorumRequest) askNode(ctx context.Context, i int) (bool, error) {
	n := q.redlock.nodes[i]
	if n.unresponsive(q.redlock.config.NodeTimeout) {
		return false, errUnresponsive
	}
	if !q.markAsked(i) {
		return false, errClosedRequest
	}
	r := n.transport.Run(ctx, q.grant.kind.acquire(q.grant), nil)
	n.noteReply(r.Err)
	granted := false
	if r.Err == nil {
		var numbers [4]int64
		numbers, r.Err = outcomeOf(r.Value)
		granted = numbers[0] == 1
	}
	now := outcome(granted, r)
	if unwanted := q.record(i, now); unwanted {
		_, _ = q.releaseOn(ctx, i, true)
	}
	return granted, r.Err
}

// markAsked notes that a server is going to be asked, unless the request is closed.
func (q *quorumRequest) markAsked(i int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		q.states[i] = asked
	}
	return !q.closed
}

// record notes what is known of a server, and reports whether it may have granted
// what is no longer wanted.
func (q *quorumRequest) record(i int, s nodeState) (unwanted bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s != absent || q.states[i] == asked { // else a renewal was sent meanwhile
		q.states[i] = s
	}
	return q.undone && s >= unknown
}

// outcome is what is known after a server was asked for a grant.
func outcome(granted bool, r transport.Reply) nodeState {
	switch {
	case granted:
		return present
	case r.Copies || transport.MayArrive(r.Err): // it may come yet
		return unknown
	default:
		return absent
	}
}

// releaseOn releases the request at one server. If no answer comes, it goes on in the
// background.
func (q *quorumRequest) releaseOn(ctx context.Context, i int, withdraw bool) (released bool, err error) {
	n := q.redlock.nodes[i]
	r := n.transport.Run(ctx, q.grant.kind.release(q.grant, withdraw), nil)
	released, err = n.isReleased(ctx, r.Value), r.Err
	q.recordRelease(i, released, err)
	if err != nil && (!transport.IsRefusal(err) || transport.IsPassing(err)) {
		n.begin()
		q.redlock.background(func() {
			defer n.done()
			released, err := q.on(i).retryRelease(ctx, withdraw)
			q.recordRelease(i, released, err)
		})
	}
	return released, err
}

// recordRelease notes the answer of a server to a release, if there was one.
func (q *quorumRequest) recordRelease(i int, released bool, err error) {
	q.redlock.nodes[i].noteReply(err)
	if err != nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.releases[i].answered {
		q.releases[i] = releaseReply{answered: true, released: released}
	}
}

// undo ends the request, so that nothing is left of it: on the servers that
// granted it, and on those whose answer was lost. It returns how many of them have
// confirmed that, once the former have answered and a majority has nothing, or
// all have answered, or the time is over. What is left is done in the background.
func (q *quorumRequest) undo(ctx context.Context, t quorumCount) (confirmed int, err error) {
	q.mu.Lock()
	q.closed, q.undone = true, true
	before := slices.Clone(q.states)
	q.mu.Unlock()
	granted, some := 0, false
	for _, s := range before {
		some = some || s >= unknown
		if s == present {
			granted++
		}
	}
	if !some {
		return 0, nil
	}
	err = q.redlock.askAll(ctx, q.redlock.config.NodeTimeout, nil,
		func(ctx context.Context, i int) (bool, error) {
			if before[i] < unknown {
				return false, nil
			}
			_, err := q.releaseOn(ctx, i, true)
			return true, err
		},
		func(i int, had bool, err error) bool {
			if before[i] == present {
				granted--
			}
			if had && err == nil {
				confirmed++
			}
			return granted == 0 && t.isMajority(t.no+confirmed)
		})
	return confirmed, err
}

// renewal is the call that makes the grant end d from now at one server. Where
// it isn't known to be present it is asked for anew, so that a server that was
// out of reach, or lost it, makes up for it.
func (q *quorumRequest) renewal(i int, d time.Duration) (transport.Call, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return transport.Call{}, errClosedRequest
	case q.states[i] == present:
		return q.grant.kind.extend(q.grant, d), nil
	case q.redlock.nodes[i].unresponsive(q.redlock.config.NodeTimeout):
		return transport.Call{}, errUnresponsive
	}
	q.states[i] = unknown
	g := *q.grant
	g.lease = d
	return q.grant.kind.acquire(&g), nil
}

// extendAt asks one server.
func (q *quorumRequest) extendAt(ctx context.Context, i int, d time.Duration) (bool, error) {
	s, err := q.renewal(i, d)
	if err != nil {
		return false, err
	}
	n := q.redlock.nodes[i]
	r := n.transport.Run(ctx, s, nil)
	n.noteReply(r.Err)
	if r.Err != nil {
		return false, r.Err
	}
	numbers, err := [4]int64{}, error(nil)
	if r.Value != int64(0) {
		numbers, err = outcomeOf(r.Value)
	}
	extended := numbers[0] == 1
	q.mu.Lock()
	defer q.mu.Unlock()
	q.states[i] = unknown // an earlier request may be on its way
	if extended {
		q.states[i] = present
	}
	return extended, err
}

// extend makes the grant end d from now.
func (q *quorumRequest) extend(ctx context.Context, d time.Duration) error {
	r := q.redlock
	t := r.newCount()
	gaveUp := r.askAll(ctx, r.config.NodeTimeout, nil,
		func(ctx context.Context, i int) (bool, error) { return q.extendAt(ctx, i, d) }, t.count)
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
// ended the grant before that.
func (q *quorumRequest) releaseAll(ctx context.Context, expires time.Time) error {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	over, t := !time.Now().Before(expires), q.redlock.newCount()
	err := q.redlock.askAll(ctx, q.redlock.config.NodeTimeout, nil, q.releaseAt, t.count)
	switch {
	case err != nil:
		return err
	case t.no == len(t.nodes), t.lost() && (over || time.Now().Before(expires)):
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
	before, ended := q.states[i], q.releases[i]
	q.mu.Unlock()
	if ended.answered || before == unasked || before == absent {
		return ended.released, nil
	}
	return q.releaseOn(ctx, i, before != present)
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
