package lock

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lockchaos/lockchaos/lock/internal/transport"
	"github.com/lockchaos/lockchaos/lock/internal/wakeup"
)

const (
	// shortTimeout is how long a caller waits for the answer to a request that it sends by itself:
	// so long a call whose context ends may go on. A server that is silent for longer is asked again
	// by a goroutine, which the caller can leave.
	shortTimeout = 25 * time.Millisecond
	// longTimeout is that for a release. Where its answer is lost, the next one can't tell whether the first one
	// released the lock or whether it was lost, so a server that is slow for a moment is awaited.
	longTimeout = 250 * time.Millisecond
)

// A grant is one request for a lock. Its request tells it from all others, so
// that asking, extending and releasing may each be repeated. Once granted, it
// is the keeper of its hold.
type grant struct {
	object
	identity

	id        string // the request in leases; that of the identity may be another caller's
	named     string // the owner in leases
	anonymous bool   // no owner was given
	lease     time.Duration
	watched   bool           // kept alive by the watchdog until its end
	waits     bool           // if it is refused at first
	place     int64          // in a queue, as the server said
	displaced bool           // it was lost once, and given back
	refused   refused        // when the server last did
	waiter    *wakeup.Waiter // that messages reach; nil while none do
	failures  int            // of requests, one after the other, that the wait outlived
	tried     bool           // to release it while it was held, and the answer is lost
	ending    bool           // the server was asked to release it
	moved     bool           // or to extend it by its owner
	late      *lateCopies    // of a first request whose answer was lost, which is not passed on; nil: there are none
}

// identity is whose a grant is, as the server knows it.
type identity struct {
	request, owner string

	copied bool // there may be copies of the request on their way
	passed int  // how often it was passed on in memory
}

// held is what a plain lock is while this request holds it alone.
func (c *identity) held() string { return "held " + c.request + " " + c.owner }

// answer is the server's to one try. The zero answer is a refusal, and so is one without an
// answer for a reason that may pass: the outcome is unknown then.
type answer struct {
	granted   bool
	handed    bool // by the release before, and for a short lease at first
	denied    bool // a refusal that waiting doesn't change
	holds     int
	token     int64
	expires   time.Time
	ttl       time.Duration // of a refusal: until the lock runs out
	place     int64         // of a refusal: in the queue, if there is one
	displaced bool          // the place in the queue had been lost, and others may have been served
	unacked   error         // of a grant: too few replicas have it
	at        refused       // of a refusal
	failed    error         // why there was no answer, if a waiter is to ask again
}

// refused is a refusal: what a waiter knows for sure about its place in the queue.
type refused struct {
	sent   time.Time // before the request that was refused
	ticket int64     // the number under which the ticket was in the queue then; 0: none was
}

// acquire asks for a grant and waits for it as the options say.
func (o *object) acquire(ctx context.Context, opt Options) (*Hold, error) {
	h, err := o.acquireOr(ctx, opt)
	return h, wrap(err, "acquire lock %q", o.name)
}

func (o *object) acquireOr(ctx context.Context, opt Options) (*Hold, error) {
	c := o.client
	if err := o.check(opt); err != nil {
		return nil, err
	}
	if !c.call() {
		return nil, ErrClosed
	}
	defer c.calls.Done()
	begin := time.Now()
	g, a, waited, err := o.ask(ctx, opt, begin)
	for errors.Is(err, errLate) {
		g, a, waited, err = o.ask(ctx, opt, begin)
	}
	if waited {
		c.tell(ctx, Waited, g.leased(a), time.Since(begin), err)
	}
	if err != nil {
		c.tell(ctx, endOf(err), g.leased(a), time.Since(begin), err)
		return nil, err
	}
	return g.makeHold(ctx, a, begin), nil
}

// grant is a new request with those options.
func (o *object) grant(opt Options) *grant {
	g := &grant{
		object: *o, identity: identity{request: rand.Text(), owner: opt.Owner}, named: opt.Owner, lease: opt.Lease,
		watched: opt.Lease == 0, waits: opt.Wait > 0, anonymous: opt.Owner == "",
	}
	g.id = g.request
	if g.watched {
		g.lease = o.client.config.Watchdog
	}
	if g.anonymous {
		g.owner = g.request + "o" // and not the request, which others may be told
		g.named = g.owner
		if g.shares() {
			g.named = g.id // the grant may be passed on, whose owner another caller has been
		}
	}
	return g
}

// ask makes a request, and waits with it until the time after begin is over for which the options say so. Without an
// error the lock is granted.
func (o *object) ask(ctx context.Context, opt Options, begin time.Time) (g *grant, a answer, waited bool, err error) {
	g = o.grant(opt)
	c := o.client
	if !c.enter() { // until what is to be undone is a task of its own
		return g, answer{}, false, ErrClosed
	}
	defer c.tasks.Done()
	asks, returned := false, false
	defer func() { // also where a hook of the Redis client panics
		if asks {
			c.queues.asked(g, returned && err == nil, waited)
		}
		if err != nil || !returned {
			g.endCopies(ctx, c.tasks.Go)
		}
		if !returned {
			g.abandon(ctx)
		}
	}()
	a, err = g.askFirst(ctx)
	// A caller whose first request got no answer may hold the lock: behind another one in the queue, which then
	// asks for nothing, neither would notice until the lease is over. It asks the server by itself.
	if err == nil && !a.granted && g.waits && g.shares() && !g.copied {
		if w := c.queues.join(g.queueKey()); w == nil {
			asks = true
		} else {
			waited = true
			a, asks, err = g.waitLocally(ctx, w, begin, opt.Wait)
		}
	}
	if err == nil && !a.granted {
		a, err = g.begin(ctx)
		switch {
		case err != nil || a.granted:
		case g.waits:
			waited = true
			a, err = g.wait(ctx, a, begin, opt.Wait)
		case g.copied: // a copy would be granted the lock later
			_, err = g.undo(ctx, false, ErrNotAcquired, errors.New("refused, and a copy of the request may be on its way"))
		default:
			err = ErrNotAcquired
		}
	}
	returned = true
	return g, a, waited, refusal(err)
}

// abandon withdraws a request in which a hook of the Redis client panicked: the caller may
// recover, and the lock must not stay behind. The hook may panic again.
func (g *grant) abandon(ctx context.Context) {
	if g.waiter != nil {
		g.client.wakeups.Leave(g.waiter, false)
	}
	g.client.background(func() {
		defer func() { _ = recover() }() // the caller has it from the request itself
		g.withdraw(ctx)
	})
}

// lateCopies are those of a first request whose answer was lost. A copy that comes after the end of the grant knows no
// mark, and would hold the lock until its lease ends.
type lateCopies struct {
	ended atomic.Bool // the grant was not made, was released or was lost
}

// copiesComeLate is when they are withdrawn: so long after the request was sent, if the grant has ended by then. No copy
// is expected after markLife.
var copiesComeLate = []time.Duration{time.Second, 4 * time.Second, markLife} //nolint:gochecknoglobals // a constant

// expectCopies withdraws the copies of a request that was sent then, until none can come any more or the client is
// closed.
func (g *grant) expectCopies(ctx context.Context, sent time.Time, run func(func())) {
	g.copied, g.late = true, &lateCopies{}
	same := *g // which goes on changing
	run(func() {
		var closed error
		for _, after := range copiesComeLate {
			if closed == nil {
				closed = transport.Sleep(context.WithoutCancel(ctx), time.Until(sent.Add(after)), same.client.closing)
				if same.late.ended.Load() {
					same.withdraw(ctx)
				}
			}
		}
	})
}

// endCopies withdraws what a first request whose answer was lost was or will be granted, once the grant has ended.
func (g *grant) endCopies(ctx context.Context, run func(func())) {
	if g.late != nil && !g.late.ended.Swap(true) {
		run(func() { g.withdraw(ctx) })
	}
}

// askFirst asks for a plain lock by one command, sent by the caller's goroutine: row uncontended-1 of docs/benchmarks.md
// falls by a tenth without this. It grants a lock that is free, and so without a ticket, but for one whose lease ran
// out. A refusal says nothing: the lock is held, or wasn't asked for in this way, or the answer is not known yet.
func (g *grant) askFirst(ctx context.Context) (answer, error) {
	c := g.client
	if !g.kind.usesMutexScripts || g.kind.fenced || g.keys.contended.Load() {
		return answer{}, nil
	}
	s := transport.NewCommand("set", g.keys.lock, g.held(), "px", milliseconds(g.lease), "nx")
	s.Acked = true
	sent := time.Now()
	r, tried := c.direct(ctx, s, shortTimeout)
	switch {
	case !tried, r.Err != nil && !r.Copies:
		return answer{}, nil
	case r.Err == nil && r.Value == "OK": // and not a refusal of which a hook or a proxy made something else
		a := answer{granted: true, holds: 1, expires: c.expires(sent, g.lease)}
		if time.Now().Before(a.expires) {
			return a, nil
		}
	}
	g.expectCopies(ctx, sent, c.tasks.Go) // or it was granted too late
	if r.Err != nil && !g.waits && c.transport.Final(r.Err) {
		return answer{}, r.Err
	}
	return answer{}, nil
}

// begin asks for the first time.
func (g *grant) begin(ctx context.Context) (answer, error) {
	wakeups := g.client.wakeups
	if g.handsOver() { // a message may come right behind the refusal
		g.waiter = wakeups.Attend(g.client.inbox, g.request)
	}
	a, err := g.try(ctx)
	if err == nil && a.granted {
		g.keys.contended.Store(false)
	}
	if g.waiter != nil && (err != nil || a.granted) {
		wakeups.Leave(g.waiter, false)
	}
	return a, err
}

// try asks once. Whatever it returns but a grant, or a failure that the wait outlives,
// leaves nothing behind that outlives the lease: an unknown outcome is undone in the
// background.
func (g *grant) try(ctx context.Context) (answer, error) {
	c := g.client
	s := g.kind.acquire(g)
	s.Abort, s.Acked = c.closing, true
	sent := time.Now()
	r, gaveUp := c.exchange(ctx, s, shortTimeout, func(r transport.Reply) {
		if numbers, err := outcomeOf(r.Value); r.Sent && (r.Err != nil || err != nil || numbers[0] == 1 || g.queued()) {
			g.withdraw(ctx)
		}
	})
	if gaveUp {
		return answer{}, r.Err
	}
	g.copied = g.copied || r.Copies
	a, err := g.answerOf(ctx, r, sent)
	g.displaced = g.displaced || a.displaced
	switch {
	case g.waits && transport.IsPassing(err):
		g.displaced = g.displaced || g.place != 0 // it may have been granted unheard, and have lost its place since
		a = answer{failed: err, ttl: pauseAfter(g.failures)}
		g.failures++
		return a, nil // the failure is in the answer, and the wait goes on
	case err != nil:
		if r.Sent {
			c.tasks.Go(func() { g.withdraw(ctx) })
		}
		return answer{}, err
	case a.denied && g.copied:
		return g.undo(ctx, false, fmt.Errorf("%w: %w", ErrNotAcquired, g.kind.denied), errors.New("a copy of the request may be on its way"))
	case a.denied:
		return a, fmt.Errorf("%w: %w", ErrNotAcquired, g.kind.denied)
	case !a.granted:
		g.failures = 0
		g.keys.contended.Store(true)
		g.place, g.refused = a.place, a.at
		return a, nil
	case a.unacked != nil:
		return g.undo(ctx, true, fmt.Errorf("%w: %w", ErrNotReplicated, a.unacked), a.unacked)
	case !time.Now().Before(a.expires):
		late := fmt.Errorf("granted when the lease of %v was over already", g.lease)
		return g.undo(ctx, true, fmt.Errorf("%w: %w", ErrNotAcquired, late), late)
	}
	return a, nil
}

// queued reports whether a refused request may have left something in a queue.
func (g *grant) queued() bool { return g.kind.queued || g.drawn() != "" }

// wait asks again until the lock is granted or the wait is over. a is the
// refusal of the first try.
func (g *grant) wait(ctx context.Context, a answer, begin time.Time, limit time.Duration) (answer, error) {
	c := g.client
	p := pending{
		channel: g.keys.channel, request: g.request, wakesAll: g.kind.wakesAll,
		poll: g.kind.poll, spin: g.kind.spin, begin: begin, limit: limit,
	}
	if g.handsOver() {
		p.channel, p.wakesAll = c.inbox, true
		if g.waiter == nil {
			g.waiter = p.join(c)
		}
	}
	p.waiter = g.waiter
	granted, err := c.wait(ctx, p, a.ttl, func(ctx context.Context) (granted bool, after time.Duration, err error) {
		if p.waiter != nil {
			if h, ok := g.handed(c.wakeups.Take(p.waiter)); ok {
				a = h
				return true, 0, nil
			}
		}
		a, err = g.try(ctx)
		return a.granted, a.ttl, err
	})
	left := g.queued() || g.copied // something of it may have reached the server
	switch {
	case granted:
		return a, nil
	case err == nil && a.failed != nil:
		if left {
			c.background(func() { g.withdraw(ctx) })
		}
		return answer{}, a.failed
	case err == nil && left:
		return g.undo(ctx, false, ErrNotAcquired, errors.New("the wait is over"))
	case err == nil:
		return answer{}, ErrNotAcquired
	case (left || a.failed != nil) && (ctx.Err() != nil || errors.Is(err, ErrClosed) || errors.Is(err, ErrNotAcquired)):
		return g.undo(ctx, false, err, err)
	default: // of a request, which is being undone already
		return answer{}, err
	}
}

// errForgotten says that a server which was to take permits back found none.
var errForgotten = errors.New("the server has forgotten the request: its permits may still be taken")

// undo takes back a grant that doesn't count, or a place in a queue. It returns the first
// error if that is confirmed, and the second one if it isn't.
func (g *grant) undo(ctx context.Context, granted bool, undone, reason error) (answer, error) {
	if err := ctx.Err(); err != nil {
		g.client.background(func() { g.withdraw(ctx) })
		if errors.Is(reason, err) {
			return answer{}, reason
		}
		return answer{}, fmt.Errorf("%w: %w", reason, err)
	}
	type outcome struct {
		released bool
		err      error
	}
	o, err := await(ctx, g.client, nil, func() (o outcome) {
		o.released, o.err = g.retryRelease(ctx, true)
		return o
	}, nil)
	err = cmp.Or(err, o.err)
	if granted && err == nil && !o.released && g.kind.hasNoLease {
		err = errForgotten
	}
	if err != nil {
		return answer{}, fmt.Errorf("%w; take the grant back: %w", reason, err)
	}
	return answer{}, undone
}

// withdraw makes sure that nothing is left of the request, even if it is still on its way.
func (g *grant) withdraw(ctx context.Context) { _, _ = g.retryRelease(ctx, true) }

// retryRelease releases until an answer arrives. It outlives ctx, and tries for a
// bounded time.
func (g *grant) retryRelease(ctx context.Context, withdraw bool) (released bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), withdrawLimit)
	defer cancel()
	err = g.client.retryUntilAnswered(ctx, func() error {
		r := g.client.transport.Run(ctx, g.kind.release(g, withdraw), nil)
		released = g.client.isReleased(ctx, r.Value)
		return r.Err
	})
	return released, err
}

// answerOf reads the reply to a request that was sent then.
func (g *grant) answerOf(ctx context.Context, r transport.Reply, sent time.Time) (answer, error) {
	if r.Err != nil {
		return answer{}, r.Err
	}
	numbers, err := outcomeOf(r.Value)
	if err != nil {
		return answer{}, err
	}
	g.client.noteDenied(ctx, r.Value, len(numbers))
	a := answer{granted: numbers[0] > 0, denied: numbers[0] < 0, displaced: g.kind.queued && numbers[3] == 1}
	if a.granted {
		a.holds, a.token, a.unacked = int(numbers[1]), numbers[2], r.Unacked
		a.expires = g.client.expires(sent, g.lease)
	} else {
		a.ttl, a.place, a.at = time.Duration(numbers[1])*time.Millisecond, numbers[2], refused{sent, numbers[3]}
	}
	return a, nil
}

// outcomeOf reads the reply to a request for a grant: see [kind].
func outcomeOf(reply any) (numbers [4]int64, err error) {
	if reply == int64(1) {
		return [4]int64{1, 1}, nil
	}
	fields, _ := reply.([]any)
	if len(fields) < 2 {
		return numbers, fmt.Errorf("strange reply %v", reply)
	}
	for i, f := range fields[:min(len(fields), len(numbers))] {
		numbers[i], _ = f.(int64)
	}
	return numbers, nil
}

// leased is the grant as plain data.
func (g *grant) leased(a answer) Lease {
	place, length := g.place, g.lease
	if g.displaced {
		place = 0
	}
	if a.handed {
		length = min(length, handedLease)
	}
	return Lease{
		Name: g.name, Owner: g.named, Request: g.id, Holds: a.holds, Token: a.token, Queued: place,
		Length: length, Expires: a.expires, Node: g.client.node,
	}
}

func (g *grant) makeHold(ctx context.Context, a answer, begin time.Time) *Hold {
	h := newHold(g.leased(a), g)
	h.hooks = g
	switch {
	case !g.watched:
	case a.handed && g.lease > handedLease:
		h.watch = newWatch(g.lease, handedLease/4, handedPeriod)
	default:
		h.watch = newWatch(g.lease, g.lease/3, g.lease/3)
	}
	g.client.tell(ctx, Acquired, h.lease, time.Since(begin), nil)
	h.start()
	return h
}

func (g *grant) taskGroup() *taskGroup { return g.client.taskGroup }

func (g *grant) onLost(l Lease) {
	g.client.queues.leave(g)
	g.endCopies(context.Background(), g.client.background)
	g.tell(context.Background(), Lost, l, 0, nil)
}

func (g *grant) tell(ctx context.Context, kind EventKind, l Lease, took time.Duration, err error) {
	g.client.tell(ctx, kind, l, took, err)
}

func (g *grant) expires(sent time.Time, lease time.Duration) time.Time {
	return g.client.expires(sent, lease)
}

// Extend is for the hold.
func (g *grant) Extend(ctx context.Context, l Lease, d time.Duration) (time.Time, error) {
	g.moved = true
	return extendHold(ctx, g, l, d, g.watched)
}

// extend makes the grant end d from now.
func (g *grant) extend(ctx context.Context, d time.Duration) error {
	s := g.kind.extend(g, d)
	s.Acked = true
	r, _ := g.client.exchange(ctx, s, shortTimeout, nil)
	switch {
	case r.Err != nil:
		return r.Err
	case r.Value != int64(1):
		return ErrNotHeld
	default:
		return r.Unacked
	}
}

// Release is for the hold.
func (g *grant) Release(ctx context.Context, l Lease) error {
	c := g.client
	begin := time.Now()
	if c.queues.pass(g, l.Expires) {
		c.tell(ctx, Released, l, time.Since(begin), nil)
		return nil
	}
	g.ending = true
	if g.late != nil {
		g.late.ended.Store(true)
	}
	c.queues.leave(g)
	held := time.Now().Before(l.Expires)
	release := func() (transport.Reply, bool) {
		return c.exchange(ctx, g.kind.release(g, false), longTimeout, nil)
	}
	r, gaveUp := release()
	copies := r.Copies
	for tries := 0; !gaveUp && transport.IsBusy(r.Err) && c.pause(ctx, tries, time.Until(begin.Add(withdrawLimit))); tries++ {
		r, gaveUp = release()
		copies = copies || r.Copies
	}
	err := r.Err
	switch {
	case err != nil:
		g.tried = g.tried || held && r.Sent && transport.MayArrive(err)
	case c.isReleased(ctx, r.Value):
		if !held && g.copied {
			// The lease was over, and a copy of the request that came after that may have taken the lock
			// for a client that no longer wants it: this release shows nothing of the hold.
			err = ErrNotHeld
		}
	case g.kind.usesMutexScripts && !g.copied && (g.tried || held && copies):
		// A Mutex leaves no mark. It is most likely gone by a release whose answer was lost. Whether the
		// server had lost it before can't be told any more.
	default:
		err = ErrNotHeld
	}
	c.tell(ctx, Released, l, time.Since(begin), err)
	return err
}
