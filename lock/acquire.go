package lock

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/lockchaos/lockchaos/lock/internal/transport"
)

const (
	// shortTimeout is how long a caller waits for the answer to a request that it sends by itself:
	// so long a call whose context ends may go on. A server that is silent for longer is asked again
	// by another goroutine, whose answer the caller needn't await.
	shortTimeout = 25 * time.Millisecond
	// longTimeout is that for a release. Where its answer is lost, the next one can't tell whether the first one
	// released the lock or whether it was lost, so a server that is slow for a moment is awaited.
	longTimeout = 250 * time.Millisecond
	// answerLimit is how long a request is awaited after the end of [Options.Wait], however long the Redis client repeats it.
	answerLimit = 5 * time.Second
)

// A grant is one request for a lock. Its request tells it from all others, so
// that asking, extending and releasing may each be repeated. Once granted, it
// is the keeper of its hold.
type grant struct {
	object
	identity

	id        string // the request in leases; that of the identity may be another caller's
	anonymous bool   // no owner was given
	lease     time.Duration
	watched   bool            // kept alive by the watchdog until its end
	waits     bool            // if it is refused at first
	place     int64           // in a queue, as the server said
	displaced bool            // it was lost once, and given back
	asked     time.Time       // before the request that was refused last
	number    int64           // under which the ticket was in the queue then; 0: none was
	waited    bool            // it was not granted at once
	answer    answer          // that granted it
	ticket    string          // that it may have drawn
	left      bool            // something of it may be on the server, though it isn't granted,
	taken     bool            // since it was granted, and doesn't count
	late      bool            // copies of its first request may come, which know no mark
	settled   <-chan struct{} // closed once that is not under way any more; nil if it isn't known to be
	tried     bool            // to release it while it was held, and the answer is lost
	changed   bool            // the server was asked to release or to extend it
	round     *round          // of a Redlock, the last one,
	doubt     error           // and why one before may have left something
}

// identity is whose a grant is, as the server knows it.
type identity struct {
	request, owner string

	copied bool // there may be copies of the request on their way
	passed int  // how often it was passed on in memory
}

// held is what a plain lock is while this request holds it alone.
func (c *identity) held() string { return "held " + c.request + " " + c.owner }

// answer is the server's to one try. The zero answer is a refusal.
type answer struct {
	granted bool
	handed  bool // by the release before, and for a short lease at first
	holds   int
	token   int64
	expires time.Time
	ttl     time.Duration // of a refusal: until the lock runs out
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
	if !c.enter() {
		return nil, ErrClosed
	}
	defer c.tasks.Done()
	begin := time.Now()
	g, err := o.ask(ctx, opt, begin)
	if g.waited {
		c.tell(ctx, Waited, g.leased(), time.Since(begin), err)
	}
	if err != nil {
		c.tell(ctx, endOf(err), g.leased(), time.Since(begin), err)
		return nil, err
	}
	h := newHold(g.leased(), g)
	h.client = c
	switch {
	case !g.watched:
	case g.answer.handed && g.lease > handedLease:
		h.watch = newWatch(g.lease, handedLease/4, handedPeriod)
	default:
		h.watch = newWatch(g.lease, g.lease/3, g.lease/3)
	}
	c.tell(ctx, Acquired, h.lease, time.Since(begin), nil)
	h.start()
	return h, nil
}

// grant is a new request with those options.
func (o *object) grant(opt Options) *grant {
	request := rand.Text()
	return &grant{
		object: *o, id: request,
		identity: identity{request: request, owner: cmp.Or(opt.Owner, request+"o")}, // and not the request, which others may be told
		lease:    cmp.Or(opt.Lease, o.client.config.Watchdog),
		watched:  opt.Lease == 0, waits: opt.Wait > 0, anonymous: opt.Owner == "",
	}
}

// ask makes a request, and waits with it until the time after begin is over for which the options say so. Without an
// error the lock is granted.
func (o *object) ask(ctx context.Context, opt Options, begin time.Time) (g *grant, err error) {
	g = o.grant(opt)
	c := o.client
	if !c.enter() { // until what is to be undone is a task of its own
		return g, ErrClosed
	}
	defer c.tasks.Done()
	asks, ended := false, false
	defer func() { // also where a hook of the Redis client panics: the caller may recover, and the lock must not stay behind
		if asks {
			c.queues.asked(g, ended && err == nil)
		}
		if !ended || err != nil && (g.left || g.late) {
			g.withdrawLater(ctx, c.tasks.Go)
		}
	}()
	if err = g.askFirst(ctx); g.answer.granted {
		ended = true
		return g, nil
	}
	ctx, cancel := bounded(ctx, begin, opt.Wait)
	defer cancel()
	// A caller whose first request got no answer may hold the lock: behind another one in the queue, which then
	// asks for nothing, neither would notice until the lease is over. It asks the server by itself.
	if err == nil && g.waits && g.shares() && !g.copied {
		if w := c.queues.join(g.queueKey()); w == nil {
			asks = true
		} else {
			asks, err = g.waitLocally(ctx, w, begin, opt.Wait)
		}
	}
	if err == nil && !g.answer.granted {
		err = g.askOn(ctx, begin, opt.Wait)
	}
	if g.left && endOf(err) == Refused {
		err = g.undo(ctx, err)
	}
	ended = true
	return g, refusal(unanswered(ctx, err))
}

// bounded is a context that ends a while after the end of a wait, in which a request that is in flight then is answered.
func bounded(ctx context.Context, begin time.Time, wait time.Duration) (context.Context, context.CancelFunc) {
	if wait <= 0 || wait > Forever-answerLimit {
		return ctx, func() {}
	}
	return context.WithDeadlineCause(ctx, begin.Add(wait+answerLimit), errNoAnswer)
}

// errNoAnswer is why a bounded context has ended before that of the caller.
var errNoAnswer = fmt.Errorf("no answer within %v of the end of the wait", answerLimit)

// unanswered says of an error whether the end of a bounded context is why.
func unanswered(bounded context.Context, err error) error {
	if errors.Is(err, context.DeadlineExceeded) && errors.Is(context.Cause(bounded), errNoAnswer) {
		return fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	return err
}

// copiesComeLate are the pauses after which copies of a first request whose answer was lost are withdrawn, once the grant has
// ended. A copy that comes after that end knows no mark, and would hold the lock until its lease ends. No copy is expected
// after markLife. After the same pauses a withdrawal is repeated that no server answered: a ticket would be served.
var copiesComeLate = []time.Duration{0, time.Second, 3 * time.Second, markLife} //nolint:gochecknoglobals // a constant

// askFirst asks for a plain lock by one command: row uncontended-1 of docs/benchmarks.md falls by a tenth without this, and row
// uncontended-16 by a fifth. It grants a lock that is free, and so without a ticket, but for one whose lease ran
// out. A refusal says nothing: the lock is held, or wasn't asked for in this way, or the answer is not known yet.
func (g *grant) askFirst(ctx context.Context) error {
	c := g.client
	if !g.kind.usesMutexScripts || g.kind.fenced || c.config.ReplicaAcks > 0 || c.isContended(g.name).Load() || c.queues.has(g) {
		return nil
	}
	s := transport.Call{Name: "set", Keys: []string{g.keys.lock}, Args: []any{g.held(), "px", milliseconds(g.lease), "nx"}, Inline: shortTimeout}
	sent := time.Now()
	r := c.transport.Try(ctx, s)
	a := answer{granted: true, holds: 1, expires: c.expires(sent, g.lease)}
	switch {
	case r.Err == nil && r.Value == "OK" && time.Now().Before(a.expires): // and not a refusal of which a hook or a proxy made something else
		g.answer = a
	case r.Copies, r.Err == nil && r.Value != nil: // or it was granted too late
		g.copied, g.late, g.settled = true, true, r.UnderWay
		if !g.waits && c.transport.Final(r.Err) {
			return r.Err
		}
	}
	return nil
}

// askOn asks until the lock is granted or the wait is over.
func (g *grant) askOn(ctx context.Context, begin time.Time, limit time.Duration) error {
	c := g.client
	p := &pending{poll: maxPoll, spin: g.kind.spin, begin: begin, limit: limit, channel: g.keys.channel, request: g.request}
	if g.kind.queued {
		p.poll = min(p.poll, c.config.Heartbeat/3)
	}
	if g.handsOver() {
		p.channel = c.inbox
		if c.wakeups.Listens(c.inbox) {
			p.waiter = c.wakeups.Join(c.inbox, g.request) // a message may come right behind the refusal,
			<-p.waiter.Wake                               // and none before
		}
	}
	granted, err := c.wait(ctx, p, func(ctx context.Context, message string) (bool, time.Duration, error) {
		a, ok := g.handed(message)
		var err error
		if !ok {
			a, err = g.try(ctx)
		}
		if g.answer = a; a.granted && !p.waited {
			c.isContended(g.name).Store(false)
		}
		return a.granted, a.ttl, err
	})
	if err == nil && !granted {
		err = ErrNotAcquired
	}
	g.waited = g.waited || p.waited && g.waits
	return err
}

// try asks once. What it leaves on a server where it wasn't granted, for longer than the lease, [grant.left] says.
func (g *grant) try(ctx context.Context) (answer, error) {
	if g.kind.redlock != nil {
		return g.askServers(ctx)
	}
	c := g.client
	g.draw()
	s := g.kind.acquire(g)
	s.Abort, s.Acked, s.Inline = c.closing, true, shortTimeout
	sent := time.Now()
	r := c.send(ctx, s)
	g.copied = g.copied || r.Copies
	g.left = g.left || g.copied
	numbers, err := [4]int64{}, r.Err
	if c.noteDenied(ctx, r.Value); err == nil {
		numbers, err = outcomeOf(r.Value)
	}
	switch {
	case g.waits && transport.IsPassing(err):
		g.displaced = g.displaced || g.place != 0 // it may have been granted unheard, and have lost its place since
		return answer{}, again{err}
	case err != nil:
		g.left = g.left || r.Sent
		return answer{}, err
	}
	g.displaced = g.displaced || g.kind.queued && numbers[3] == 1
	switch {
	case numbers[0] < 0: // waiting doesn't help
		return answer{}, fmt.Errorf("%w: %w", ErrNotAcquired, g.kind.denied)
	case numbers[0] == 0:
		c.isContended(g.name).Store(true)
		g.left = g.left || g.waits && g.kind.queued || g.ticket != ""
		g.place, g.asked, g.number = numbers[2], sent, numbers[3]
		return answer{ttl: time.Duration(numbers[1]) * time.Millisecond}, nil
	}
	a := answer{granted: true, holds: int(numbers[1]), token: numbers[2], expires: c.expires(sent, g.lease)}
	switch {
	case r.Unacked != nil:
		err = fmt.Errorf("%w: %w", ErrNotReplicated, r.Unacked)
	case !time.Now().Before(a.expires):
		err = fmt.Errorf("%w: granted when the lease of %v was over already", ErrNotAcquired, g.lease)
	default:
		return a, nil
	}
	g.left, g.taken = true, true
	return answer{}, err
}

// errForgotten says that a server which was to take permits back found none.
var errForgotten = errors.New("the server has forgotten the request: its permits may still be taken")

// undo takes back what is left of a request, and returns why it was refused once that is confirmed. Else it may have the lock.
func (g *grant) undo(ctx context.Context, refused error) error {
	err := ctx.Err()
	if err == nil {
		err = g.client.await(ctx, nil, func() error { return g.withdraw(ctx) })
	}
	if g.left = isUnheard(err); err != nil {
		return fmt.Errorf("%s; take the grant back: %w", refused.Error(), err)
	}
	return refused
}

// isUnheard reports whether a withdrawal came to an error that is not the answer of a server.
func isUnheard(err error) bool {
	return err != nil && !transport.IsRefusal(err) && !errors.Is(err, errForgotten)
}

// withdraw makes sure that nothing is left of the request, even if it is still on its way. It outlives ctx, and tries
// for a bounded time.
func (g *grant) withdraw(ctx context.Context) error {
	released := false
	err := g.client.retryForAWhile(ctx, func(ctx context.Context) error {
		r := g.client.transport.Run(ctx, g.kind.release(g, true))
		released = g.client.noteDenied(ctx, r.Value) == int64(1)
		return r.Err
	})
	if err == nil && g.taken && !released && g.kind.hasNoLease {
		err = errForgotten
	}
	return err
}

// withdrawLater is withdraw in a goroutine that run runs, also of what late copies of a first request are granted: as soon as
// the client itself has none under way any more, and after the pauses. While the grant is asked for, that is a task, which Close
// awaits also where it was called before. It looks at nothing that an extension or a release may be changing: the hold may be
// lost while one is under way.
func (g *grant) withdrawLater(ctx context.Context, run func(func())) {
	run(func() {
		defer func() { _ = recover() }() // a hook that panics; the caller has it from the request itself
		underWay := g.settled
		for pauses := copiesComeLate; len(pauses) > 0; {
			_, settled, closed := transport.Await(context.WithoutCancel(ctx), underWay, pauses[0], g.client.closing)
			switch {
			case settled: // also before a pause that is not over
				underWay = nil
			case closed != nil && underWay != nil: // it is a task, as this is
				_ = g.withdraw(ctx)
				<-underWay
			default:
				pauses = pauses[1:]
			}
			err := g.withdraw(ctx)
			if closed != nil || !g.late && !isUnheard(err) {
				return
			}
		}
	})
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
func (g *grant) leased() Lease {
	a := g.answer
	place, length, owner := g.place, g.lease, g.owner
	if g.displaced {
		place = 0
	}
	if a.handed && g.watched {
		length = min(length, handedLease)
	}
	if g.shares() { // it may be passed on, or have been: the server knows the owner of another caller
		owner = g.id
	}
	return Lease{
		Name: g.name, Owner: owner, Request: g.id, Holds: a.holds, Token: a.token, Queued: place,
		Length: length, Expires: a.expires, Node: g.client.node,
	}
}

// onLost is called once, after the hold was lost.
func (g *grant) onLost(l Lease) {
	if g.round != nil {
		g.kind.redlock.count(g.round, -1)
	}
	g.client.queues.leave(g)
	if g.copied {
		g.withdrawLater(context.Background(), g.client.background)
	}
	g.client.tell(context.Background(), Lost, l, 0, nil)
}

// Extend is for the hold. An end that a watchdog keeps becomes no sooner.
func (g *grant) Extend(ctx context.Context, l Lease, d time.Duration) (time.Time, error) {
	g.changed = true
	sent := time.Now()
	err := g.extend(ctx, d)
	expires := g.client.expires(sent, d)
	if g.watched && l.Expires.After(expires) {
		expires = l.Expires
	}
	return expires, err
}

// extend makes the grant end d from now.
func (g *grant) extend(ctx context.Context, d time.Duration) error {
	if g.round != nil {
		return g.round.extend(ctx, d)
	}
	s := g.kind.extend(g, d)
	s.Acked, s.Inline = true, shortTimeout
	r := g.client.send(ctx, s)
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
	begin := time.Now()
	err := error(nil)
	switch {
	case g.round != nil:
		err = g.round.release(ctx, l.Expires)
	case !g.client.queues.pass(g, l.Expires):
		if err = g.release(ctx, l.Expires); err == nil && g.late { // else the hold is lost: see onLost
			g.withdrawLater(ctx, g.client.background)
		}
	}
	g.client.tell(ctx, Released, l, time.Since(begin), err)
	return err
}

// release ends the grant, which may be believed in until then, on the server.
func (g *grant) release(ctx context.Context, expires time.Time) error {
	c := g.client
	g.changed = true
	if g.settled != nil { // a client that is busy sends it later, and a next request for the lock would find it held by that
		_, _, _ = transport.Await(ctx, g.settled, longTimeout, c.closing)
	}
	c.queues.leave(g)
	begin := time.Now()
	held := begin.Before(expires)
	for tries := 0; ; tries++ {
		s := g.kind.release(g, false)
		s.Inline = longTimeout
		r := c.send(ctx, s)
		g.tried = g.tried || held && r.Copies
		switch {
		case transport.IsBusy(r.Err) && time.Since(begin) < withdrawLimit && transport.Sleep(ctx, pauseAfter(tries), c.closing) == nil:
		case r.Err != nil:
			return r.Err
		case c.noteDenied(ctx, r.Value) == int64(1):
			if !held && g.copied {
				// The lease was over, and a copy of the request that came after that may have taken the lock
				// for a client that no longer wants it: this release shows nothing of the hold.
				return ErrNotHeld
			}
			return nil
		case g.kind.usesMutexScripts && !g.copied && g.tried:
			// A Mutex leaves no mark. It is most likely gone by a release whose answer was lost. Whether the
			// server had lost it before can't be told any more.
			return nil
		default:
			return ErrNotHeld
		}
	}
}
