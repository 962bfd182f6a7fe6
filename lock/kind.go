package lock

import (
	"cmp"
	"context"
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
	// queued says that a refused request may have left something in a queue, which is taken
	// out when the wait ends, or [Config.Heartbeat] after the last request.
	queued bool
	// usesMutexScripts says that the scripts are those of a [Mutex]: a release may leave no mark, so that a repetition
	// finds nothing.
	usesMutexScripts bool
	// tickets says that waiters draw tickets, and are granted the lock by its release.
	tickets bool
	// hasNoLease says that a grant has no end of its own, so that a server which doesn't find
	// it any more may have forgotten the request alone.
	hasNoLease bool
	// fenced says that grants have tokens.
	fenced bool
	// spin says how long a waiter pauses, which listens to no messages.
	spin func(tries int) time.Duration
	// redlock sends the requests to several servers.
	redlock *Redlock
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
	keys   keys
	kind   *kind
}

func (c *Client) object(name string, k *kind) object {
	return object{client: c, name: name, keys: keysOf(c.config.Prefix, name), kind: k}
}

// objectIn is a lock that shares no key with those of other kinds.
func (c *Client) objectIn(part, name string, k *kind) object {
	return object{client: c, name: name, keys: keysOf(c.config.Prefix, name).in(part), kind: k}
}

// Name returns the lock's name.
func (o *object) Name() string { return o.name }

func (o *object) check(opt Options) error {
	wrong := mistakes{opt.Validate(), o.kind.invalid}
	wrong.note(o.name == "", "empty name: give the lock a name")
	margin := o.client.config.margin(opt.Lease)
	wrong.note(opt.Lease >= time.Millisecond && opt.Lease <= margin,
		"lease of %v: give more than the %v that are left out for clock drift", opt.Lease, margin)
	return errors.Join(wrong...)
}

// run sends a call that is no request for a grant, and returns the values of its reply, of
// which there are so many, nil with an error. What too few replicas have is an error, and not undone.
func (o *object) run(ctx context.Context, s transport.Call, n int) (values []any, err error) {
	values = make([]any, n)
	if err := o.check(Options{}); err != nil {
		return values, err
	}
	s.Inline = shortTimeout
	r := o.client.send(ctx, s)
	if err := cmp.Or(r.Err, r.Unacked); err != nil {
		return values, refusal(err)
	}
	several, ok := r.Value.([]any)
	if !ok {
		several = []any{r.Value}
	}
	if len(several) != n {
		return values, fmt.Errorf("strange reply %v", r.Value)
	}
	return several, nil
}

// change has a script change something, which is no request for a grant. One of the keys is a mark for copies of this call.
func (o *object) change(ctx context.Context, script string, keys []string, args ...any) (int64, error) {
	s := on(script, keys, args...)
	s.Acked = true
	v, err := o.run(ctx, s, 1)
	return number(v[0]), err
}

// wrap says of an error what failed; nil stays nil.
func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}

// number reads a value of a reply.
func number(v any) int64 {
	n, _ := v.(int64)
	return n
}

func (o *object) forceUnlock(ctx context.Context) (bool, error) {
	ended, err := o.run(ctx, o.kind.force(o), 1)
	return number(ended[0]) == 1, wrap(err, "force unlock %q", o.name)
}
