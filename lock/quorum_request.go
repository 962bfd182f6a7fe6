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
	grant   *grant         // what is the same everywhere
	acquire transport.Call // and so are the requests
	release transport.Call
	counted bool // among the holds of its owner; theirs to guard

	mu       sync.Mutex
	closed   bool // nothing is asked for any more:
	undone   bool // it was given up, and not released
	states   []nodeState
	releases []releaseReply
}

// nodeState is whether a server has granted a request, as far as is known.
type nodeState int

const (
	unasked nodeState = iota
	asked             // the goroutine that awaits the answer takes it back if it was dropped
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
	g.encodeIdentity()
	g.copied = true // a server may be asked anew while an earlier request is under way
	return &quorumRequest{
		redlock: r, grant: g, acquire: g.kind.acquire(g), release: g.kind.release(g, false),
		states: make([]nodeState, n), releases: make([]releaseReply, n),
	}
}

// on is the grant of one server.
func (b *quorumRequest) on(i int) *grant {
	g := *b.grant
	g.object = object{client: b.redlock.nodes[i].Client, name: g.name, keys: g.keys, kind: g.kind}
	return &g
}

// requestAll sends the request to all servers and returns as soon as a majority has
// granted it, with the end of the lease, or as soon as none will; then it takes
// back what was granted first. [ErrNotAcquired] says that a majority has nothing
// of it: they refused, as the count tells, or it was taken back.
func (b *quorumRequest) requestAll(ctx context.Context) (time.Time, quorumCount, error) {
	r := b.redlock
	expires := r.expires(time.Now(), b.grant.lease)
	t := r.newCount()
	err := askAll(ctx, r, min(r.config.NodeTimeout, time.Until(expires)), r.closing, b.askNode, t.count)
	if err != nil {
		r.background(func() { _, _ = b.undo(context.WithoutCancel(ctx), t) })
		return time.Time{}, t, err
	}
	if t.won() && time.Now().Before(expires) {
		return expires, t, nil
	}
	confirmed, err := b.undo(ctx, t)
	if err != nil { // perhaps before anything was sent
		r.background(func() { _, _ = b.undo(context.WithoutCancel(ctx), t) })
		return time.Time{}, t, err
	}
	definite := t.isMajority(t.no + confirmed)
	switch {
	case t.won():
		late := fmt.Errorf("granted when the lease of %v was over already", b.grant.lease)
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
func (b *quorumRequest) askNode(ctx context.Context, i int) (bool, error) {
	v := b.redlock.nodes[i]
	if v.unresponsive(b.redlock.config.NodeTimeout) {
		return false, errUnresponsive
	}
	if !b.markAsked(i, asked) {
		return false, errClosedRequest
	}
	r := v.transport.Run(ctx, b.acquire.Copy(), nil)
	v.noteReply(r.Err)
	granted := false
	if r.Err == nil {
		var numbers [4]int64
		numbers, r.Err = outcomeOf(r.Value)
		granted = numbers[0] == 1
	}
	now := outcome(granted, r)
	if unwanted := b.record(i, now); unwanted {
		_, _ = b.releaseOn(ctx, i, true)
	}
	return granted, r.Err
}

// markAsked notes that a server is going to be asked, unless the request is closed.
func (b *quorumRequest) markAsked(i int, s nodeState) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.states[i] = s
	}
	return !b.closed
}

// record notes what is known of a server, and reports whether it may have granted
// what is no longer wanted.
func (b *quorumRequest) record(i int, s nodeState) (unwanted bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s != absent || b.states[i] == asked { // else a renewal was sent meanwhile
		b.states[i] = s
	}
	return b.undone && s >= unknown
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
func (b *quorumRequest) releaseOn(ctx context.Context, i int, withdraw bool) (released bool, err error) {
	v, s := b.redlock.nodes[i], b.release.Copy()
	if withdraw {
		s = b.grant.kind.release(b.grant, true)
	}
	r := v.transport.Run(ctx, s, nil)
	released, err = r.Value == int64(1), r.Err
	b.recordRelease(i, released, err)
	if err != nil && (!transport.IsRefusal(err) || transport.IsPassing(err)) {
		v.begin()
		b.redlock.background(func() {
			defer v.done()
			released, err := b.on(i).retryRelease(ctx, withdraw)
			b.recordRelease(i, released, err)
		})
	}
	return released, err
}

// recordRelease notes the answer of a server to a release, if there was one.
func (b *quorumRequest) recordRelease(i int, released bool, err error) {
	b.redlock.nodes[i].noteReply(err)
	if err != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.releases[i].answered {
		b.releases[i] = releaseReply{answered: true, released: released}
	}
}

// undo ends the request, so that nothing is left of it: on the servers that
// granted it, and on those whose answer was lost. It returns how many of them have
// confirmed that, once the former have answered and a majority has nothing, or
// all have answered, or the time is over. What is left is done in the background.
func (b *quorumRequest) undo(ctx context.Context, t quorumCount) (confirmed int, err error) {
	b.mu.Lock()
	b.closed, b.undone = true, true
	before := slices.Clone(b.states)
	b.mu.Unlock()
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
	err = askAll(ctx, b.redlock, b.redlock.config.NodeTimeout, nil,
		func(ctx context.Context, i int) (bool, error) {
			if before[i] < unknown {
				return false, nil
			}
			_, err := b.releaseOn(ctx, i, true)
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
func (b *quorumRequest) renewal(i int, d time.Duration) (transport.Call, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return transport.Call{}, errClosedRequest
	case b.states[i] == present:
		return b.grant.kind.extend(b.grant, d), nil
	case b.redlock.nodes[i].unresponsive(b.redlock.config.NodeTimeout):
		return transport.Call{}, errUnresponsive
	}
	b.states[i] = unknown
	g := *b.grant
	g.lease = d
	return b.grant.kind.acquire(&g), nil
}

// renewed reads the reply to it.
func (b *quorumRequest) renewed(i int, r transport.Reply) nodeReply {
	v := nodeReply{err: r.Err}
	if fields, asked := r.Value.([]any); asked && len(fields) > 0 {
		v.yes = fields[0] == int64(1)
	} else {
		v.yes = r.Value == int64(1)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if v.yes {
		b.states[i] = present
	} else if v.err == nil { // an earlier request may be on its way
		b.states[i] = unknown
	}
	return v
}

// nodeReply is the answer of a server to one of several requests.
type nodeReply struct {
	yes bool
	err error
}

// extend makes grants end d from now, and returns what became of each.
func (r *Redlock) extend(ctx context.Context, ballots []*quorumRequest, d time.Duration) []error {
	tallies := make([]quorumCount, len(ballots))
	known := make([]bool, len(ballots))
	for i := range ballots {
		tallies[i] = r.newCount()
	}
	gaveUp := askAll(ctx, r, r.config.NodeTimeout, nil,
		func(ctx context.Context, i int) ([]nodeReply, error) { return r.extendAt(ctx, i, ballots, d), nil },
		func(i int, votes []nodeReply, err error) bool {
			all := true
			for k := range ballots {
				v := nodeReply{err: err}
				if err == nil {
					v = votes[k]
				}
				known[k] = tallies[k].count(i, v.yes, v.err) || known[k]
				all = all && known[k]
			}
			return all
		})
	errs := make([]error, len(ballots))
	for k, b := range ballots {
		switch t := &tallies[k]; {
		case t.won():
		case t.lost():
			errs[k] = ErrNotHeld
			r.background(func() { _, _ = b.undo(context.WithoutCancel(ctx), r.newCount()) })
		case gaveUp != nil:
			errs[k] = t.withErrors(gaveUp)
		default:
			errs[k] = t.failure()
		}
	}
	return errs
}

// extendAt asks one server, in one pipeline.
func (r *Redlock) extendAt(ctx context.Context, i int, ballots []*quorumRequest, d time.Duration) []nodeReply {
	votes := make([]nodeReply, len(ballots))
	var calls []transport.Call
	var of []int
	for k, b := range ballots {
		c, err := b.renewal(i, d)
		if err != nil {
			votes[k].err = err
			continue
		}
		calls, of = append(calls, c), append(of, k)
	}
	if len(calls) == 0 {
		return votes
	}
	replies, _ := r.nodes[i].transport.Commit(ctx, calls...)
	for j, reply := range replies {
		r.nodes[i].noteReply(reply.Err)
		votes[of[j]] = ballots[of[j]].renewed(i, reply)
	}
	return votes
}

// Extend is for the hold.
func (b *quorumRequest) Extend(ctx context.Context, l Lease, d time.Duration) (time.Time, error) {
	begin := time.Now()
	expires := b.redlock.expires(begin, d)
	err := b.redlock.extend(ctx, []*quorumRequest{b}, d)[0]
	b.redlock.tell(ctx, Extended, l, time.Since(begin), err)
	if err == nil && b.grant.watched && l.Expires.After(expires) {
		expires = l.Expires
	}
	return expires, err
}

// Release is for the hold.
func (b *quorumRequest) Release(ctx context.Context, l Lease) error {
	begin := time.Now()
	err := b.releaseAll(ctx, l.Expires)
	if err == nil {
		b.redlock.holds.remove(b)
	}
	b.redlock.tell(ctx, Released, l, time.Since(begin), err)
	return err
}

// releaseAll returns as soon as a majority has nothing of the request any more. A majority
// that did not have it when it was asked proves that it was not held, unless the lease ran
// out on the way: a server that had it until then says the same, and the others may have
// ended the grant before that.
func (b *quorumRequest) releaseAll(ctx context.Context, expires time.Time) error {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	over, t := !time.Now().Before(expires), b.redlock.newCount()
	err := askAll(ctx, b.redlock, b.redlock.config.NodeTimeout, nil, b.releaseAt, t.count)
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
func (b *quorumRequest) releaseAt(ctx context.Context, i int) (released bool, err error) {
	b.mu.Lock()
	before, ended := b.states[i], b.releases[i]
	b.mu.Unlock()
	if ended.answered || before == unasked || before == absent {
		return ended.released, nil
	}
	return b.releaseOn(ctx, i, before != present)
}

// leased is the grant as plain data.
func (b *quorumRequest) leased(expires time.Time) Lease {
	l := b.grant.leased(answer{expires: expires})
	l.Node = "" // there are several
	return l
}

// hold is the handle on a request that a majority granted.
func (b *quorumRequest) hold(ctx context.Context, expires, begin time.Time) *Hold {
	r := b.redlock
	l := b.leased(expires)
	l.Holds = r.holds.add(b)
	h := newHold(l, b)
	h.expiry, h.hooks = &r.expiry, b
	r.tell(ctx, Acquired, l, time.Since(begin), nil)
	h.start()
	if b.grant.watched {
		r.watchdog.add(h, b, r.watchdog.lease, r.watchdog.period, false)
	}
	return h
}

func (b *quorumRequest) taskGroup() *taskGroup { return b.redlock.taskGroup }

func (b *quorumRequest) onLost(_ *Hold, l Lease) {
	b.redlock.holds.remove(b)
	b.redlock.observe(Lost, l, 0, nil)
}

func (b *quorumRequest) onEnd(h *Hold) {
	if b.grant.watched {
		b.redlock.watchdog.remove(h)
	}
}

func (b *quorumRequest) onMove(h *Hold) {
	if b.grant.watched {
		b.redlock.watchdog.renewSoon(h)
	}
}
