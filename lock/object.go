package lock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/lockchaos/lockchaos/lock/internal/transport"
)

// A kind is a sort of lock: the calls by which one is asked for, extended and
// released, and how its waiters behave. Everything else is common to all of
// them: waiting, renewing, undoing, and knowing when to stop believing.
type kind struct {
	// acquire asks for the grant. The reply is
	//   - {1, the owner's grants, fencing token}, where the token may be left out;
	//     or 1 for {1, 1};
	//   - {0, ms until it is worth to ask again without a message; 0 if that isn't
	//     known}; third the place in a queue, if there is one, and fourth the number of
	//     the ticket, if there are tickets;
	//   - {-1, 0} if waiting is no use, for the reason in denied.
	//
	// Asking once more for a grant that is held changes nothing but its end, and
	// asking for one that was released or withdrawn is refused.
	acquire func(g *grant) transport.Call
	// extend moves the grant's end. The reply is 1, or 0 if it is not held.
	extend func(g *grant, d time.Duration) transport.Call
	// release ends the grant. The reply is 1, or 0 if it was not held. To
	// withdraw makes also sure that a copy of the request that is still on its
	// way gets nothing, and that nothing is left in a queue.
	release func(g *grant, withdraw bool) transport.Call
	// force ends all grants of a lock. The reply is 1 if there were any. Optional.
	force func(o *object) transport.Call
	// queued says that a refused request may have left something in a queue,
	// which is taken out when the wait ends.
	queued bool
	// plain says that the scripts are those of a [Mutex].
	plain bool
	// tickets says that waiters draw tickets, and are granted the lock by its release.
	tickets bool
	// traceless says that a release may leave no mark, so that a repetition finds
	// nothing.
	traceless bool
	// endless says that a grant has no end of its own, so that a server which doesn't find
	// it any more may have forgotten the request alone.
	endless bool
	// fenced says that grants have tokens.
	fenced bool
	// broad says that a message which was lost may have been for any waiter,
	// and not just for whichever is the first.
	broad bool
	// poll bounds the time between two requests of a waiter. Zero: maxPoll.
	poll time.Duration
	// spin asks again after these pauses, and listens to no messages.
	spin *Backoff
	// denied is why a request was refused that waiting doesn't help.
	denied error
	// invalid is what is wrong with how the lock was made.
	invalid error
}

// kinds are those that depend on no client.
var kinds = struct{ mutex, fenced, fair, read, write *kind }{ //nolint:gochecknoglobals // they never change
	newMutexKind(false), newMutexKind(true), newFairKind(), newSideKind("read"), newSideKind("write"),
}

// An object is a lock of some kind: a name and a client.
type object struct {
	client *Client
	name   string
	keys   *keys
	kind   *kind
}

func (c *Client) object(name string, k *kind) object {
	return object{client: c, name: name, keys: c.keys.get(c.config.Prefix, name), kind: k}
}

// objectIn is a lock that shares no key with those of other kinds.
func (c *Client) objectIn(part, name string, k *kind) object {
	return object{client: c, name: name, keys: newKeys(c.config.Prefix+":"+part, name), kind: k}
}

// Name returns the lock's name.
func (o *object) Name() string { return o.name }

// acquire asks for a grant and waits for it as the options say.
func (o *object) acquire(ctx context.Context, opt Options) (*Hold, error) {
	h, err := o.acquireOr(ctx, opt)
	if err != nil {
		return nil, fmt.Errorf("acquire lock %q: %w", o.name, err)
	}
	return h, nil
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
	if err == nil && !a.granted {
		err = ErrNotAcquired
	}
	if waited {
		c.tell(ctx, Waited, g.leased(a), time.Since(begin), err)
	}
	if err != nil {
		err = refusal(err)
		c.tell(ctx, endOf(err), g.leased(a), time.Since(begin), err)
		return nil, err
	}
	return g.makeHold(ctx, a, begin), nil
}

// ask makes a request, and waits with it until the time after begin is over for
// which the options say so.
func (o *object) ask(ctx context.Context, opt Options, begin time.Time) (g *grant, a answer, waited bool, err error) {
	g = o.grant(opt)
	if !o.client.enter() { // until what is to be undone is a task of its own
		return g, answer{}, false, ErrClosed
	}
	defer o.client.tasks.Done()
	a, ok, err := g.askFirst(ctx)
	if ok {
		return g, a, false, nil
	}
	defer func() {
		if !g.unheard.IsZero() && (err != nil || !a.granted) {
			g.withdrawFirst(ctx)
		}
	}()
	if err != nil {
		return g, a, false, err
	}
	// A caller whose first request got no answer may hold the lock: behind another one in the queue, which then
	// asks for nothing, neither would notice until the lease is over. It asks the server by itself.
	queues := g.waits && g.shares() && !g.copied
	if queues {
		if w := o.client.queues.join(g.queueKey()); w != nil {
			waited = true
			var granted bool
			if a, granted, err = g.waitLocally(ctx, w, begin, opt.Wait); granted || err != nil {
				return g, a, waited, err
			}
		}
	}
	returned := false
	defer func() { // also where a hook of the Redis client panics
		if queues {
			o.client.queues.asked(g, returned && err == nil && a.granted, waited)
		}
		if !returned {
			g.abandon(ctx)
		}
	}()
	a, err = g.begin(ctx)
	if err == nil && !a.granted {
		waited = g.waits
		a, err = g.afterRefusal(ctx, a, begin, opt.Wait)
	}
	returned = true
	return g, a, waited, err
}

// abandon withdraws a request in which a hook of the Redis client panicked: the caller may
// recover, and the lock must not stay behind. The hook may panic again.
func (g *grant) abandon(ctx context.Context) {
	if g.waiter != nil {
		g.client.wakeups.Leave(g.waiter, false)
	}
	g.client.background(func() {
		defer func() { _ = recover() }() // the caller has it from the request itself
		_ = g.withdraw(ctx)
	})
}

// grant is a new request with those options.
func (o *object) grant(opt Options) *grant {
	g := &grant{
		object: *o, claim: claim{request: rand.Text(), owner: opt.Owner}, named: opt.Owner, lease: opt.Lease,
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

func (o *object) check(opt Options) error {
	var errs []error
	if err := opt.Validate(); err != nil {
		errs = append(errs, err)
	}
	if o.kind.invalid != nil {
		errs = append(errs, o.kind.invalid)
	}
	if o.name == "" {
		errs = append(errs, errors.New("empty name: give the lock a name"))
	}
	if margin := o.client.config.margin(opt.Lease); opt.Lease >= time.Millisecond && opt.Lease <= margin {
		errs = append(errs, fmt.Errorf("lease of %v: give more than the %v that are left out for clock drift", opt.Lease, margin))
	}
	return errors.Join(errs...)
}

// run sends a call that is no request for a grant, and returns the values of its reply, of
// which there are so many.
func (o *object) run(ctx context.Context, s transport.Call, n int) ([]any, error) {
	if err := o.check(Options{}); err != nil {
		return nil, err
	}
	v, err := await(ctx, o.client, s.Abort, func(ctx context.Context) (any, error) {
		r := o.client.transport.Run(ctx, s, nil)
		return r.Value, r.Err
	})
	if err != nil {
		return nil, refusal(err)
	}
	values, several := v.([]any)
	if !several {
		values = []any{v}
	}
	if len(values) != n {
		return nil, fmt.Errorf("strange reply %v", v)
	}
	return values, nil
}

// number reads a value of a reply.
func number(v any) int64 {
	n, _ := v.(int64)
	return n
}

func (o *object) forceUnlock(ctx context.Context) (bool, error) {
	v, err := o.run(ctx, o.kind.force(o), 1)
	if err != nil {
		return false, fmt.Errorf("force unlock %q: %w", o.name, err)
	}
	return number(v[0]) == 1, nil
}
