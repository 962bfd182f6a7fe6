package lock

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Member is one of the locks of a [MultiLock].
type Member struct {
	// Locker grants it, under that Name.
	Locker Locker
	Name   string
	// Deployment says where the lock is kept, in a way that all who share it agree
	// on: their members are asked for in the order of Deployment and Name. Default:
	// "", which suits as long as no two members share a name.
	Deployment string
}

// A MultiLock is several locks as one: all of them are held, or none. The members
// may be of any kind, and live on different servers. It is safe for concurrent
// use, and holds nothing itself.
//
// The members are asked for one after the other, always in the order of their
// Deployment and Name, and those that were granted are kept while it waits for
// the next one. So callers can't wait for each other in a circle, in whatever
// order each of them lists the members. What was granted is given back before a
// call returns without a hold.
//
// Every member is granted for the lease that was asked for, and no longer. The
// hold ends when the first of them does: the first grant is the oldest, so the
// time that the others took is missing at its end. Where it runs out before the
// last member is granted, all are given back and asked for anew, as long as
// [Options.Wait] allows. Members with a watchdog renew themselves, and the hold's
// [Lease.Expires] follows. Once a member is lost, the hold is lost; the others
// stay held until it is released, or for as long as their leases.
//
// Extend extends all members at the same time. If one of them fails, the hold
// ends when the first of them does. Release releases all, also where one fails;
// it returns [ErrNotHeld] if all of them are over and one was not held any more.
// Where the Locker or the Keeper of a member panics, the others are extended or released
// all the same before the panic goes on.
//
// In the hold's lease, Name lists the names of the members, once each and joined
// by "+"; Holds and Length are the smallest of any member; Token is 0, for each
// member has its own: see [MultiLock.Leases].
//
// [Options.Wait] bounds the wait for all members together. [ErrNotAcquired] says that one of
// them is held by another owner, or that the lease ran out on the way, and that all are
// confirmed not to be held.
type MultiLock struct {
	name    string
	members []Member // in the order in which they are asked for
}

// NewMultiLock returns the lock of those members. Two of the same Deployment and
// Name are refused.
func NewMultiLock(members ...Member) (*MultiLock, error) {
	var wrong mistakes
	wrong.note(len(members) == 0, "no members: give at least one")
	m := &MultiLock{members: slices.Clone(members)}
	slices.SortFunc(m.members, compareMembers)
	var names []string
	for i, member := range m.members {
		wrong.note(member.Locker == nil, "member %q has no Locker", member.Name)
		wrong.note(member.Name == "", "a member without a name: give every lock one")
		wrong.note(i > 0 && compareMembers(m.members[max(i, 1)-1], member) == 0,
			"member %q is there twice: name it once, or tell the two apart by their Deployment", member.Name)
		if !slices.Contains(names, member.Name) {
			names = append(names, member.Name)
		}
	}
	if err := errors.Join(wrong...); err != nil {
		return nil, fmt.Errorf("make MultiLock: %w", err)
	}
	m.name = strings.Join(names, "+")
	return m, nil
}

func compareMembers(a, b Member) int {
	return cmp.Or(cmp.Compare(a.Deployment, b.Deployment), cmp.Compare(a.Name, b.Name))
}

// Name returns the names of the members, once each and joined by "+".
func (m *MultiLock) Name() string { return m.name }

// Leases returns what each member granted for a hold of a MultiLock, in the order
// in which they were asked; nothing for another hold.
func (m *MultiLock) Leases(h *Hold) []Lease {
	if h == nil {
		return nil
	}
	var leases []Lease
	if b, ok := h.keeper.(*bundle); ok {
		for _, part := range b.holds {
			leases = append(leases, part.Lease())
		}
	}
	return leases
}

// Acquire asks for all members, as the options say.
func (m *MultiLock) Acquire(ctx context.Context, o Options) (h *Hold, err error) {
	defer func() { err = wrap(err, "acquire locks %q", m.name) }()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o.Owner = cmp.Or(o.Owner, rand.Text())
	for begin := time.Now(); ; {
		h, err = m.take(ctx, o, begin)
		if !errors.Is(err, errAged) || remaining(begin, o.Wait) <= 0 {
			return h, err
		}
	}
}

// errAged says that the first members ran out while the others were asked for.
var errAged = fmt.Errorf("%w: a lease ran out before the last lock was granted", ErrNotAcquired)

// remaining is what is left of a wait.
func remaining(begin time.Time, wait time.Duration) time.Duration {
	if wait == Forever {
		return wait
	}
	return max(wait-time.Since(begin), 0)
}

// take asks for one member after the other. Without all of them it gives back what was granted, also where the context has
// ended or a member panics.
func (m *MultiLock) take(ctx context.Context, o Options, begin time.Time) (all *Hold, err error) {
	b, wait := &bundle{}, o.Wait
	defer func() {
		if all != nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), withdrawLimit)
		defer cancel()
		if stuck := b.Release(ctx, Lease{}); stuck != nil && !errors.Is(stuck, ErrNotHeld) {
			if endOf(err) == Refused { // which isn't the whole truth
				err = errors.New(err.Error())
			}
			err = fmt.Errorf("%w; take the grants back: %w", err, stuck)
		}
	}()
	for _, member := range m.members {
		left := remaining(begin, wait)
		o.Wait = left
		if ends := b.ends(); o.Lease > 0 && !ends.IsZero() {
			o.Wait = min(left, max(time.Until(ends), 0))
		}
		h, err := b.ask(ctx, member, o)
		switch {
		case err == nil:
			b.holds = append(b.holds, h)
		case o.Wait < left && errors.Is(err, ErrNotAcquired):
			return nil, errAged
		default:
			return nil, err
		}
	}
	if ends := b.ends(); !ends.IsZero() && !time.Now().Before(ends) {
		return nil, errAged
	}
	return b.hold(m.name, o), nil //nolint:contextcheck // the hold outlives the call
}

// A bundle is what the members of a MultiLock granted, and the keeper of the
// hold that stands for them.
type bundle struct{ holds []*Hold } // of the first members

// ask asks for one more member. A hold that a watchdog keeps has no end by which
// to bound the wait, so the wait ends when it is lost.
func (b *bundle) ask(ctx context.Context, member Member, o Options) (*Hold, error) {
	asking := ctx
	if o.Lease == 0 {
		for _, h := range b.holds {
			var cancel context.CancelFunc
			asking, cancel = h.Context(asking) //nolint:fatcontext // it ends with the first of them
			defer cancel()
		}
	}
	h, err := member.Locker.Acquire(asking, member.Name, o)
	if err != nil && ctx.Err() == nil && errors.Is(context.Cause(asking), ErrLost) {
		err = fmt.Errorf("%w while another was waited for: %v", ErrLost, err) //nolint:errorlint // an end of the context that is not the caller's
	}
	return h, err
}

// ends is when the first hold ends; zero if none does.
func (b *bundle) ends() time.Time {
	var first time.Time
	for _, h := range b.holds {
		if end := h.Lease().Expires; first.IsZero() || !end.IsZero() && end.Before(first) {
			first = end
		}
	}
	return first
}

// hold is the handle on all of them.
func (b *bundle) hold(name string, o Options) *Hold {
	l := Lease{Name: name, Owner: o.Owner, Request: rand.Text(), Holds: math.MaxInt, Length: cmp.Or(o.Lease, Forever), Expires: b.ends()}
	for _, part := range b.holds {
		p := part.Lease()
		l.Holds, l.Length = min(l.Holds, p.Holds), min(l.Length, cmp.Or(p.Length, Forever)) // another's lock may say no length
	}
	h := newHold(l, b)
	h.ends = b.ends
	for _, part := range b.holds {
		held, _ := part.Context(context.Background()) // until the part ends
		context.AfterFunc(held, func() {
			if errors.Is(context.Cause(held), ErrLost) {
				h.end(nil)
			}
		})
	}
	return h
}

// Extend is for the hold.
func (b *bundle) Extend(ctx context.Context, _ Lease, d time.Duration) (time.Time, error) {
	errs := b.each(func(h *Hold) error { return h.Extend(ctx, d) })
	return b.ends(), errors.Join(errs...)
}

// each calls f for every hold at once. Where a call panics, so does each, after the others
// have returned.
func (b *bundle) each(f func(h *Hold) error) []error {
	var calls sync.WaitGroup
	errs, panics := make([]error, len(b.holds)), make(chan any, len(b.holds))
	for i, h := range b.holds {
		calls.Go(func() {
			defer func() {
				if v := recover(); v != nil {
					panics <- v
				}
			}()
			errs[i] = f(h)
		})
	}
	calls.Wait()
	if len(panics) > 0 {
		panic(<-panics)
	}
	return errs
}

// Release is for the hold. It releases all that aren't known to be over. Its error is
// [ErrNotHeld] only if all are over now.
func (b *bundle) Release(ctx context.Context, _ Lease) error {
	errs := b.each(func(h *Hold) error {
		if err := h.Release(ctx); !errors.Is(err, ErrReleased) { // by a call before
			return err
		}
		return nil
	})
	over := func(err error) bool { return err == nil || errors.Is(err, ErrNotHeld) }
	if unknown := slices.DeleteFunc(slices.Clone(errs), over); len(unknown) > 0 {
		return errors.Join(unknown...)
	}
	return errors.Join(errs...)
}
