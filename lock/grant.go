package lock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lockchaos/lockchaos/lock/internal/transport"
	"github.com/lockchaos/lockchaos/lock/internal/wakeup"
)

// A grant is one request for a lock. Its request tells it from all others, so
// that asking, extending and releasing may each be repeated. Once granted, it
// is the keeper of its hold.
type grant struct {
	object
	claim

	id        string // the request in leases; that of the claim may be another caller's
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

	ending bool // the server was asked to release it
	moved  bool // or to extend it by its owner
}

// claim is whose a grant is, as the server knows it.
type claim struct {
	request, owner string

	copied  bool      // there may be copies of the request on their way
	unheard time.Time // when a first request was sent whose answer was lost; zero: none was
	passed  int       // how often it was passed on in memory
}

// held is what a plain lock is while this request holds it alone.
func (c *claim) held() string { return "held " + c.request + " " + c.owner }

// answer is the server's to one try. The zero answer is a refusal, and so is one without an
// answer for a reason that may pass: the outcome is unknown then.
type answer struct {
	granted   bool
	handed    bool // by who released it, and for a short lease at first
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
	copies    bool          // of the request there may be on their way
}

// request is the task of asking once.
type request struct {
	grant  *grant
	answer answer
	sent   bool // it may have reached the server; for send and late alone
	tried  int  // how often it was sent, and not for too short a time
}

func (r *request) send(ctx context.Context) error {
	g := r.grant
	sent := time.Now()
	return r.read(ctx, g.client.transport.Run(ctx, r.call(), nil), sent)
}

func (r *request) call() transport.Call {
	s := r.grant.kind.acquire(r.grant)
	s.Abort, s.Acked, s.Tried = r.grant.client.closing, true, r.tried
	return s
}

// read reads the reply to what was sent then.
func (r *request) read(ctx context.Context, reply transport.Reply, sent time.Time) error {
	r.sent = r.sent || reply.Sent
	copies := r.answer.copies || reply.Copies
	a, err := r.grant.answerOf(ctx, reply, sent)
	r.answer = a
	r.answer.copies = copies
	if r.grant.waits && transport.IsPassing(err) {
		r.answer.failed, err = err, nil
	}
	return err
}

// sendDirectly sends the request by the goroutine of its caller. done is false if it is to be sent by another one.
func (r *request) sendDirectly(ctx context.Context) (done bool, err error) {
	c, sent := r.grant.client, time.Now()
	reply, tried := c.direct(ctx, r.call(), transport.ShortPatience)
	if !tried {
		return false, nil
	}
	err = r.read(ctx, reply, sent)
	if reply.Err == nil {
		return true, err
	}
	if !transport.IsTimeout(reply.Err) {
		r.tried++
	}
	if !c.transport.Final(reply.Err) {
		return false, nil
	}
	if err != nil { // its caller is a task
		c.tasks.Go(func() { r.late(ctx, err) })
	}
	return true, err
}

func (r *request) late(ctx context.Context, err error) {
	if g := r.grant; r.sent && (err != nil || r.answer.failed != nil || r.answer.granted || g.queued()) {
		_ = g.withdraw(ctx)
	}
}

// copiesComeLate is when a request by one command whose answer was lost is withdrawn once more: so long after it was
// sent. A copy that comes after the first withdrawal knows no mark, and would hold the lock until its lease ends; no
// copy is expected after markLife.
var copiesComeLate = []time.Duration{time.Second, 4 * time.Second, markLife} //nolint:gochecknoglobals // a constant

// askFirst asks for a plain lock by one command, sent by the caller's goroutine. It grants a lock that
// is free, and so without a ticket, but for one whose lease ran out. ok is false where all else is to be
// asked for: the lock is held, or wasn't asked for in this way, or the answer is not known yet.
func (g *grant) askFirst(ctx context.Context) (a answer, ok bool, err error) {
	c := g.client
	if !g.kind.plain || g.kind.fenced || g.keys.contended.Load() {
		return answer{}, false, nil
	}
	returned := false
	defer func() { // also where a hook of the Redis client panics
		if !returned {
			g.abandon(ctx)
		}
	}()
	s := transport.NewCommand("set", g.keys.lock, g.held(), "px", milliseconds(g.lease), "nx")
	s.Acked = true
	sent := time.Now()
	r, tried := c.direct(ctx, s, transport.ShortPatience)
	returned = true
	switch {
	case !tried, r.Err != nil && !r.Copies:
		return answer{}, false, nil
	case r.Err == nil && r.Value == "OK": // and not a refusal of which a hook or a proxy made something else
		a = answer{granted: true, holds: 1, expires: c.expires(sent, g.lease)}
		if time.Now().Before(a.expires) {
			return a, true, nil
		}
	}
	g.copied, g.unheard = true, sent // or it was granted too late
	if r.Err != nil && !g.waits && c.transport.Final(r.Err) {
		return answer{}, false, r.Err
	}
	return answer{}, false, nil
}

// withdrawFirst takes back what a first request whose answer was lost was or will be granted. Its caller is a task.
func (g *grant) withdrawFirst(ctx context.Context) {
	g.client.tasks.Go(func() {
		_ = g.withdraw(ctx)
		g.withdrawLate(ctx)
	})
}

// withdrawLate takes it back again, until no copy can come any more or the client is closed.
func (g *grant) withdrawLate(ctx context.Context) {
	var closed error
	for _, after := range copiesComeLate {
		if left := time.Until(g.unheard.Add(after)); left > 0 && closed == nil {
			closed = transport.Sleep(context.WithoutCancel(ctx), left, g.client.closing)
			_ = g.withdraw(ctx)
		}
	}
}

// try asks once. Whatever it returns but a grant, or a failure that the wait outlives,
// leaves nothing behind that outlives the lease: an unknown outcome is undone in the
// background.
func (g *grant) try(ctx context.Context) (a answer, err error) {
	c := g.client
	r := &request{grant: g}
	gaveUp := false
	done, err := r.sendDirectly(ctx)
	if !done {
		unheard := r.sent
		if gaveUp, err = c.carryOut(ctx, c.closing, r); gaveUp && unheard {
			c.tasks.Go(func() { _ = g.withdraw(ctx) })
		}
	}
	if !gaveUp {
		a = r.answer
	}
	g.copied, g.displaced = g.copied || a.copies, g.displaced || a.displaced
	switch {
	case err == nil && a.denied && g.copied:
		return g.undo(ctx, false, fmt.Errorf("%w: %w", ErrNotAcquired, g.kind.denied), errCopied)
	case err == nil && a.denied:
		return a, fmt.Errorf("%w: %w", ErrNotAcquired, g.kind.denied)
	case err != nil:
		return a, err
	case a.failed != nil:
		g.displaced = g.displaced || g.place != 0 // it may have been granted unheard, and have lost its place since
		a.ttl = pauseAfter(g.failures)
		g.failures++
		return a, nil // the failure is in the answer, and the wait goes on
	case !a.granted:
		g.failures = 0
		g.keys.contended.Store(true)
		g.place, g.refused = a.place, a.at // here, since a request that was given up may be answered yet
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

// errForgotten says that a server which was to take permits back found none.
var errForgotten = errors.New("the server has forgotten the request: its permits may still be taken")

// undo takes back a grant that doesn't count, or a place in a queue. It returns the first
// error if that is confirmed, and the second one if it isn't.
func (g *grant) undo(ctx context.Context, granted bool, undone, reason error) (answer, error) {
	if err := ctx.Err(); err != nil {
		g.client.background(func() { _ = g.withdraw(ctx) })
		if errors.Is(reason, err) {
			return answer{}, reason
		}
		return answer{}, fmt.Errorf("%w: %w", reason, err)
	}
	released, err := await(ctx, g.client, nil, func(ctx context.Context) (bool, error) {
		return g.retryRelease(ctx, true)
	})
	if granted && err == nil && !released && g.kind.endless {
		err = errForgotten
	}
	if err != nil {
		return answer{}, fmt.Errorf("%w; take the grant back: %w", reason, err)
	}
	return answer{}, undone
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
	displaced := g.kind.queued && numbers[3] == 1
	if numbers[0] <= 0 {
		return answer{
			denied: numbers[0] < 0, ttl: time.Duration(numbers[1]) * time.Millisecond,
			place: numbers[2], at: refused{sent, numbers[3]}, displaced: displaced,
		}, nil
	}
	return answer{
		granted: true, holds: int(numbers[1]), token: numbers[2],
		expires: g.client.expires(sent, g.lease), unacked: r.Unacked, displaced: displaced,
	}, nil
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

// withdraw makes sure that nothing is left of the request, even if it is still
// on its way.
func (g *grant) withdraw(ctx context.Context) error {
	_, err := g.retryRelease(ctx, true)
	return err
}

// retryRelease releases until an answer arrives. It outlives ctx, and tries for a
// bounded time.
func (g *grant) retryRelease(ctx context.Context, withdraw bool) (released bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), withdrawLimit)
	defer cancel()
	err = g.client.retryUntilAnswered(ctx, func() (err error) {
		released, err = g.end(ctx, withdraw)
		return err
	})
	return released, err
}

// end sends one request to release.
func (g *grant) end(ctx context.Context, withdraw bool) (released bool, err error) {
	r := g.client.transport.Run(ctx, g.kind.release(g, withdraw), nil)
	return g.client.isReleased(ctx, r.Value), r.Err
}

// extended reads the reply to an extension.
func extended(r transport.Reply) error {
	switch {
	case r.Err != nil:
		return r.Err
	case r.Value != int64(1):
		return ErrNotHeld
	default:
		return r.Unacked
	}
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

// afterRefusal waits, if the request does. One that doesn't is over, and is withdrawn
// where a copy of it may be on its way, which would be granted the lock later.
func (g *grant) afterRefusal(ctx context.Context, a answer, begin time.Time, limit time.Duration) (answer, error) {
	switch {
	case g.waits:
		return g.wait(ctx, a, begin, limit)
	case g.copied:
		return g.undo(ctx, false, ErrNotAcquired, errCopied)
	default:
		return a, nil
	}
}

// errCopied is why a refusal isn't definite yet.
var errCopied = errors.New("refused, and a copy of the request may be on its way")

// leased is the grant as plain data.
func (g *grant) leased(a answer) Lease {
	place := g.place
	if g.displaced {
		place = 0
	}
	length := g.lease
	if a.handed {
		length = min(length, handedLease)
	}
	return Lease{
		Name: g.name, Owner: g.named, Request: g.id, Holds: a.holds, Token: a.token, Queued: place,
		Length: length, Expires: a.expires, Node: g.client.node,
	}
}

func (g *grant) makeHold(ctx context.Context, a answer, begin time.Time) *Hold {
	c := g.client
	h := newHold(g.leased(a), g)
	h.hooks = g
	switch {
	case !g.watched:
	case a.handed && g.lease > handedLease:
		h.watch = newWatch(g.lease, handedLease/4, handedPeriod)
	default:
		h.watch = newWatch(g.lease, g.lease/3, g.lease/3)
	}
	c.tell(ctx, Acquired, h.lease, time.Since(begin), nil)
	h.start()
	return h
}

func (g *grant) taskGroup() *taskGroup { return g.client.taskGroup }

func (g *grant) onLost(_ *Hold, l Lease) {
	g.client.queues.leave(g)
	g.client.observe(Lost, l, 0, nil)
}

func (g *grant) observe(kind EventKind, l Lease, took time.Duration, err error) {
	g.client.observe(kind, l, took, err)
}

func (g *grant) expires(sent time.Time, lease time.Duration) time.Time {
	return g.client.expires(sent, lease)
}

// renew is for the watchdog.
func (g *grant) renew(ctx context.Context, lease time.Duration) error { return g.extend(ctx, lease) }

// Extend is for the hold.
func (g *grant) Extend(ctx context.Context, l Lease, d time.Duration) (time.Time, error) {
	c := g.client
	g.moved = true
	sent := time.Now()
	err := g.extend(ctx, d)
	c.tell(ctx, Extended, l, time.Since(sent), err)
	expires := c.expires(sent, d)
	if err != nil {
		return expires, err
	}
	if g.watched && l.Expires.After(expires) {
		expires = l.Expires
	}
	return expires, nil
}

// extend makes the grant end d from now.
func (g *grant) extend(ctx context.Context, d time.Duration) error {
	c := g.client
	s := g.kind.extend(g, d)
	s.Acked = true
	_, err := await(ctx, c, nil, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, extended(c.transport.Run(ctx, s, nil))
	})
	return err
}

// release is the task of a release.
type release struct {
	grant *grant
	call  transport.Call
	sent  atomic.Bool // it was sent, or is about to be
	reply transport.Reply
}

func (r *release) send(ctx context.Context) error {
	g := r.grant
	copies := r.reply.Copies
	r.reply = g.client.transport.Run(ctx, r.call, &r.sent)
	r.reply.Copies = r.reply.Copies || copies
	return r.reply.Err
}

func (*release) late(context.Context, error) {}

// Release is for the hold.
func (g *grant) Release(ctx context.Context, l Lease) error {
	c := g.client
	begin := time.Now()
	if c.queues.pass(g, l.Expires) {
		c.tell(ctx, Released, l, time.Since(begin), nil)
		return nil
	}
	g.ending = true
	c.queues.leave(g)
	held := time.Now().Before(l.Expires)
	r := &release{grant: g}
	gaveUp, err := false, error(nil)
	r.call = g.kind.release(g, false)
	first, tried := c.direct(ctx, r.call, transport.LongPatience)
	if tried {
		r.reply, err = first, first.Err
		r.sent.Store(first.Sent)
		if err != nil && !transport.IsTimeout(err) {
			r.call.Tried++
		}
	}
	if !tried || err != nil && !c.transport.Final(err) {
		gaveUp, err = c.carryOut(ctx, nil, r)
	}
	until := time.Now().Add(withdrawLimit)
	for tries := 0; !gaveUp && transport.IsBusy(err) && c.pause(ctx, tries, time.Until(until)); tries++ {
		gaveUp, err = c.carryOut(ctx, nil, r)
	}
	switch {
	case err != nil:
		g.tried = g.tried || held && r.sent.Load() && transport.MayArrive(err)
	case c.isReleased(ctx, r.reply.Value):
		if !held && g.copied {
			// The lease was over, and a copy of the request that came after that may have taken the lock
			// for a client that no longer wants it: this release shows nothing of the hold.
			err = ErrNotHeld
		}
	case g.kind.traceless && !g.copied && (g.tried || held && r.reply.Copies):
		// It is most likely gone by a release whose answer was lost. Whether the
		// server had lost it before can't be told any more.
	default:
		err = ErrNotHeld
	}
	if !g.unheard.IsZero() {
		c.background(func() { g.withdrawLate(ctx) })
	}
	c.tell(ctx, Released, l, time.Since(begin), err)
	return err
}
