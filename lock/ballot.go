package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// A ballot is one request for a lock that is put to several servers: the same
// owner and the same request everywhere. Once a majority has granted it, it is
// the keeper of its hold.
type ballot struct {
	redlock *Redlock
	grant   *grant // what is the same everywhere
	acquire call   // and so are the requests
	release call
	counted bool // among the holds of its owner; theirs to guard

	mu      sync.Mutex
	over    bool // nothing is asked for any more:
	dropped bool // it was given up, and not released
	at      []standing
	ended   []ending
}

// standing is whether a server has granted a ballot, as far as is known.
type standing int

const (
	unasked standing = iota
	asked            // the goroutine that awaits the answer takes it back if it was dropped
	absent           // nothing is there
	doubted          // the answer was lost
	present
)

// ending is what a server said to a release, if it said something.
type ending struct{ said, released bool }

var (
	errSilent = fmt.Errorf("not asked: it left %d requests without an answer", maxUnanswered)
	errOver   = errors.New("not asked any more")
)

// ballot is a new request with those options.
func (r *Redlock) ballot(name string, o Options) *ballot {
	n, first := len(r.voters), r.voters[0]
	here := first.object(name, first.kinds.mutex)
	g := here.grant(o)
	g.introduce()
	g.copied = true // a server may be asked anew while an earlier request is under way
	return &ballot{
		redlock: r, grant: g, acquire: g.kind.acquire(g), release: g.kind.release(g, false),
		at: make([]standing, n), ended: make([]ending, n),
	}
}

// on is the grant of one server.
func (b *ballot) on(i int) *grant {
	g := *b.grant
	g.object = object{client: b.redlock.voters[i].Client, name: g.name, keys: g.keys, kind: g.kind}
	return &g
}

// cast puts the ballot to all servers and returns as soon as a majority has
// granted it, with the end of the lease, or as soon as none will; then it takes
// back what was granted first. [ErrNotAcquired] says that a majority has nothing
// of it: they refused, as the tally tells, or it was taken back.
func (b *ballot) cast(ctx context.Context) (time.Time, tally, error) {
	r := b.redlock
	expires := r.expires(time.Now(), b.grant.lease)
	t := r.tally()
	err := poll(ctx, r, min(r.config.NodeTimeout, time.Until(expires)), r.closing, b.ask, t.hear)
	if err != nil {
		r.background(func() { _, _ = b.takeBack(context.WithoutCancel(ctx), t) })
		return time.Time{}, t, err
	}
	if t.won() && time.Now().Before(expires) {
		return expires, t, nil
	}
	confirmed, err := b.takeBack(ctx, t)
	if err != nil { // perhaps before anything was sent
		r.background(func() { _, _ = b.takeBack(context.WithoutCancel(ctx), t) })
		return time.Time{}, t, err
	}
	definite := t.most(t.no + confirmed)
	switch {
	case t.won():
		late := fmt.Errorf("granted when the lease of %v was over already", b.grant.lease)
		if definite {
			return time.Time{}, t, fmt.Errorf("%w: %w", ErrNotAcquired, late)
		}
		return time.Time{}, t, fmt.Errorf("%w, and taken back on %d of %d servers", late, confirmed, t.yes)
	case definite:
		return time.Time{}, t, t.remarks(ErrNotAcquired)
	default:
		return time.Time{}, t, t.failure()
	}
}

// ask puts the ballot to one server.
func (b *ballot) ask(ctx context.Context, i int) (bool, error) {
	v := b.redlock.voters[i]
	if v.silent(b.redlock.config.NodeTimeout) {
		return false, errSilent
	}
	if !b.begin(i, asked) {
		return false, errOver
	}
	r := v.road.run(ctx, b.acquire.copy())
	v.hear(r.err)
	granted := false
	if r.err == nil {
		var numbers [4]int64
		numbers, r.err = outcomeOf(r.value)
		granted = numbers[0] == 1
	}
	now := outcome(granted, r.err)
	if now == absent && r.copies { // one of which may come yet
		now = doubted
	}
	if unwanted := b.note(i, now); unwanted {
		_, _ = b.end(ctx, i, true)
	}
	return granted, r.err
}

// begin notes that a server is going to be asked, unless the ballot is over.
func (b *ballot) begin(i int, s standing) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.over {
		b.at[i] = s
	}
	return !b.over
}

// note notes what is known of a server, and reports whether it may have granted
// what is no longer wanted.
func (b *ballot) note(i int, s standing) (unwanted bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.at[i] = s
	return b.dropped && s >= doubted
}

// outcome is what is known after a server was asked for a grant.
func outcome(granted bool, err error) standing {
	switch {
	case granted:
		return present
	case err == nil || isRefusal(err):
		return absent
	default:
		return doubted
	}
}

// end releases the ballot at one server. If no answer comes, it goes on in the
// background.
func (b *ballot) end(ctx context.Context, i int, withdraw bool) (released bool, err error) {
	v, s := b.redlock.voters[i], b.release.copy()
	if withdraw {
		s = b.grant.kind.release(b.grant, true)
	}
	r := v.road.run(ctx, s)
	released, err = r.value == int64(1), r.err
	b.parted(i, released, err)
	if err != nil && (!isRefusal(err) || isPassing(err)) {
		v.begin()
		b.redlock.background(func() {
			defer v.done()
			released, err := b.on(i).insist(ctx, withdraw)
			b.parted(i, released, err)
		})
	}
	return released, err
}

// parted notes what a server said to a release, if it said something.
func (b *ballot) parted(i int, released bool, err error) {
	b.redlock.voters[i].hear(err)
	if err != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended[i].said {
		b.ended[i] = ending{said: true, released: released}
	}
}

// takeBack ends the ballot, so that nothing is left of it: on the servers that
// granted it, and on those whose answer was lost. It returns how many of them have
// confirmed that, once the former have answered and a majority has nothing, or
// all have answered, or the time is over. What is left is done in the background.
func (b *ballot) takeBack(ctx context.Context, t tally) (confirmed int, err error) {
	b.mu.Lock()
	b.over, b.dropped = true, true
	before := slices.Clone(b.at)
	b.mu.Unlock()
	granted, some := 0, false
	for _, s := range before {
		some = some || s >= doubted
		if s == present {
			granted++
		}
	}
	if !some {
		return 0, nil
	}
	err = poll(ctx, b.redlock, b.redlock.config.NodeTimeout, nil,
		func(ctx context.Context, i int) (bool, error) {
			if before[i] < doubted {
				return false, nil
			}
			_, err := b.end(ctx, i, true)
			return true, err
		},
		func(i int, had bool, err error) bool {
			if before[i] == present {
				granted--
			}
			if had && err == nil {
				confirmed++
			}
			return granted == 0 && t.most(t.no+confirmed)
		})
	return confirmed, err
}

// renewal is the call that makes the ballot end d from now at one server. Where
// it isn't known to be present it is asked for anew, so that a server that was
// out of reach, or lost it, makes up for it.
func (b *ballot) renewal(i int, d time.Duration) (call, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.over:
		return call{}, errOver
	case b.at[i] == present:
		return b.grant.kind.extend(b.grant, d), nil
	case b.redlock.voters[i].silent(b.redlock.config.NodeTimeout):
		return call{}, errSilent
	}
	b.at[i] = doubted
	g := *b.grant
	g.lease = d
	return b.grant.kind.acquire(&g), nil
}

// renewed reads the reply to it.
func (b *ballot) renewed(i int, r reply[any]) vote {
	v := vote{err: r.err}
	if fields, asked := r.value.([]any); asked && len(fields) > 0 {
		v.yes = fields[0] == int64(1)
	} else {
		v.yes = r.value == int64(1)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if v.err == nil || b.at[i] == doubted {
		b.at[i] = outcome(v.yes, v.err)
	}
	return v
}

// vote is what a server says to one of several ballots.
type vote struct {
	yes bool
	err error
}

// extend makes ballots end d from now, and returns what became of each.
func (r *Redlock) extend(ctx context.Context, ballots []*ballot, d time.Duration) []error {
	tallies := make([]tally, len(ballots))
	known := make([]bool, len(ballots))
	for i := range ballots {
		tallies[i] = r.tally()
	}
	gaveUp := poll(ctx, r, r.config.NodeTimeout, nil,
		func(ctx context.Context, i int) ([]vote, error) { return r.extendAt(ctx, i, ballots, d), nil },
		func(i int, votes []vote, err error) bool {
			all := true
			for k := range ballots {
				v := vote{err: err}
				if err == nil {
					v = votes[k]
				}
				known[k] = tallies[k].hear(i, v.yes, v.err) || known[k]
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
			r.background(func() { _, _ = b.takeBack(context.WithoutCancel(ctx), r.tally()) })
		case gaveUp != nil:
			errs[k] = t.remarks(gaveUp)
		default:
			errs[k] = t.failure()
		}
	}
	return errs
}

// extendAt asks one server, in one pipeline.
func (r *Redlock) extendAt(ctx context.Context, i int, ballots []*ballot, d time.Duration) []vote {
	votes := make([]vote, len(ballots))
	var calls []call
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
	replies, _ := r.voters[i].commit(ctx, calls...)
	for j, reply := range replies {
		r.voters[i].hear(reply.err)
		votes[of[j]] = ballots[of[j]].renewed(i, reply)
	}
	return votes
}

// Extend is for the hold.
func (b *ballot) Extend(ctx context.Context, l Lease, d time.Duration) (time.Time, error) {
	begin := time.Now()
	expires := b.redlock.expires(begin, d)
	err := b.redlock.extend(ctx, []*ballot{b}, d)[0]
	b.redlock.tell(ctx, Extended, l, time.Since(begin), err)
	if err == nil && b.grant.watched && l.Expires.After(expires) {
		expires = l.Expires
	}
	return expires, err
}

// Release is for the hold.
func (b *ballot) Release(ctx context.Context, l Lease) error {
	begin := time.Now()
	err := b.giveBack(ctx)
	if err == nil {
		b.redlock.holds.remove(b)
	}
	b.redlock.tell(ctx, Released, l, time.Since(begin), err)
	return err
}

// giveBack returns as soon as a majority has nothing of the ballot any more.
func (b *ballot) giveBack(ctx context.Context) error {
	b.mu.Lock()
	b.over = true
	b.mu.Unlock()
	t := b.redlock.tally()
	err := poll(ctx, b.redlock, b.redlock.config.NodeTimeout, nil, b.releaseAt, t.hear)
	switch {
	case err != nil:
		return err
	case t.lost():
		return ErrNotHeld
	case t.most(t.yes + t.no): // it may have been held, and is not any more
		return nil
	default:
		return t.failure()
	}
}

// releaseAt ends the ballot at one server, unless that is known to be over.
func (b *ballot) releaseAt(ctx context.Context, i int) (released bool, err error) {
	b.mu.Lock()
	before, ended := b.at[i], b.ended[i]
	b.mu.Unlock()
	if ended.said || before == unasked {
		return ended.released, nil
	}
	return b.end(ctx, i, before != present)
}

// leased is the grant as plain data.
func (b *ballot) leased(expires time.Time) Lease {
	l := b.grant.leased(answer{expires: expires})
	l.Node = "" // there are several
	return l
}

// hold is the handle on a ballot that was won.
func (b *ballot) hold(ctx context.Context, expires, begin time.Time) *Hold {
	r := b.redlock
	l := b.leased(expires)
	l.Holds = r.holds.add(b)
	h := newHold(l, b)
	h.clock, h.minder = &r.clock, b
	r.tell(ctx, Acquired, l, time.Since(begin), nil)
	h.start()
	if b.grant.watched {
		r.watchdog.add(h, b)
	}
	return h
}

func (b *ballot) life() *life { return b.redlock.life }

func (b *ballot) onLost(_ *Hold, l Lease) {
	b.redlock.holds.remove(b)
	b.redlock.observe(Lost, l, 0, nil)
}

func (b *ballot) onEnd(h *Hold) {
	if b.grant.watched {
		b.redlock.watchdog.remove(h)
	}
}

func (b *ballot) onMove(h *Hold) {
	if b.grant.watched {
		b.redlock.watchdog.hurry(h)
	}
}
