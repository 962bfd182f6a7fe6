package checker

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"time"
	"unsafe"

	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
)

// UseWithinLease is the checker of "use-within-lease": a process that uses a resource
// under a lock is still entitled to believe that it holds the lock.
//
// It judges the accesses that name a lock. An access belongs to the holds of
// the owner that it names, or if it names none, to those of its process and of
// the owner p<process>. It is a violation,
// use-after-lease, if it was answered ok and was invoked after the validity of
// those holds had ended: after the expiry that the holder was told, after the
// invoke of its own last release, or after it was told that the lock was lost.
// An access that was invoked before the end and answered after it may have
// been done in time: the summary counts those, but nothing is proven. One with
// an unknown outcome or that the resource refused proves nothing either.
//
// So is an access without the lock: by an owner (or, if it names none, a process that
// had asked for the lock) that was never granted it, while another owner held it alone
// and for certain from before the access was sent until after it was answered.
//
// It is not the service's fault: the lock did its job, and the holder did not
// notice. Where an access names a lock but nothing in the history shows that
// its owner ever held it, nor that another one did, the verdict is Unknown; so it is
// where an access that names no owner comes after all known holds of its process, which
// may hold the lock for an owner whose account can't be told.
func UseWithinLease() Checker {
	return &property{
		name: "use-within-lease", engine: "interval sweep",
		applies: func(ev *evidence) bool {
			return ev.any(func(l *holding.Lock) bool { return slices.ContainsFunc(l.Accesses, (*holding.Op).OK) })
		},
		judge: func(_ context.Context, ev *evidence, f *findings) {
			for _, l := range ev.Locks() {
				useWithinLease(l, f)
			}
			if n := f.counts["unowned"]; n > 0 {
				f.doubt("%s named an owner that is not known to have held the lock", say.Count(n, "access"))
			}
			if n := f.counts["untold"]; n > 0 {
				f.doubt("%s may belong to a hold of an owner whose account can't be told", say.Count(n, "access"))
			}
			f.valid = say.Count(f.counts["accesses"], "access") + " began while the lock was held"
			if n := f.counts["outlived"]; n > 0 {
				f.valid += fmt.Sprintf("; %d of them ended after the lease", n)
			}
		},
	}
}

// A user is who an access belongs to: an owner, or a process where the access names none.
type user struct {
	owner   int32
	process int
}

func ownerUser(owner int32) user { return user{owner, history.NoProcess} }

// A validity is a span of validity with its hold.
type validity struct {
	holding.Span
	hold     *holding.Grant
	farthest int // of it and those before it in a list, the one that lasts longest
}

// validitySpans are the validities of all to whom an access may belong.
type validitySpans map[user][]validity

func useWithinLease(l *holding.Lock, f *findings) {
	if len(l.Accesses) == 0 {
		return
	}
	validities := validitiesOf(l)
	f.used(2 * len(l.Holds) * int(unsafe.Sizeof(validity{})))
	untold := map[int]bool{} // processes that may hold the lock for an owner whose account can't be told
	for _, op := range l.Ops {
		if op.Verb == holding.Acquire && !op.Failed() && l.Doubtful[op.Owner] != "" {
			untold[op.Process] = true
		}
	}
	for _, op := range l.Accesses {
		if !op.OK() {
			continue
		}
		f.counts["accesses"]++
		sent := op.Invoke.Time
		last := validities.of(op)
		switch {
		case last == nil:
			if other := excluded(l, op); other != nil {
				f.add(useWithoutLock(l, op, other))
			} else {
				f.counts["unowned"]++
			}
		case sent > last.Until && op.Unnamed() && untold[op.Process]:
			f.counts["untold"]++
		case sent > last.Until:
			f.add(useAfterLease(l, op, last))
		case op.Complete.Time > last.Until:
			f.counts["outlived"]++
		}
	}
}

// excluded is the hold because of which an access was made without the lock: of another
// owner, that held it alone and for certain all the time. It is nil if there is none, if
// the account of the owner of the access can't be told, or if the access names no owner
// and its process never asked for the lock.
func excluded(l *holding.Lock, op *holding.Op) *holding.Grant {
	if l.Doubtful[op.Owner] != "" {
		return nil
	}
	if op.Unnamed() && !slices.ContainsFunc(l.Ops, func(a *holding.Op) bool {
		return a.Verb == holding.Acquire && a.Process == op.Process && a.Invoke.Time <= op.Invoke.Time && l.Doubtful[a.Owner] == ""
	}) {
		return nil
	}
	at := sort.Search(len(l.Holds), func(i int) bool { return l.Holds[i].Start >= op.Invoke.Time })
	for _, h := range slices.Backward(l.Holds[:at]) {
		alone := h.Mode() == holding.Exclusive || h.Mode() == holding.Write
		if alone && h.Owner() != op.Owner && h.Process() != op.Process && h.End > op.Complete.Time {
			return h
		}
		if h.Mode() == holding.Exclusive {
			break // those before it have ended
		}
	}
	return nil
}

func useWithoutLock(l *holding.Lock, op *holding.Op, other *holding.Grant) Violation {
	return Violation{
		Kind: UseAfterLease, Lock: l.Name, Resource: l.Record().Name(op.Resource),
		Events: events(other.Proof.Complete.Index, op.Invoke.Index, op.Complete.Index),
		From:   op.Invoke.Time, Until: op.Complete.Time,
		Explanation: fmt.Sprintf("%s used %s under %q from %s, and had not been granted the lock; %s held it for certain from %s until after that",
			caller(l.Record(), op), resource(l, op), l.Name, seconds(op.Invoke.Time), holder(l, other), seconds(other.Start)),
	}
}

// validitiesOf are the validities of each owner and of each process, in order of their
// beginnings.
func validitiesOf(l *holding.Lock) validitySpans {
	validities := validitySpans{}
	for _, h := range l.Holds {
		for _, span := range h.Belief {
			for _, by := range [...]user{ownerUser(h.Owner()), {process: h.Process()}} {
				validities[by] = append(validities[by], validity{Span: span, hold: h})
			}
		}
	}
	for _, list := range validities {
		slices.SortStableFunc(list, func(a, b validity) int { return cmp.Compare(a.From, b.From) })
		for i := range list {
			if list[i].farthest = i; i > 0 && list[list[i-1].farthest].Until > list[i].Until {
				list[i].farthest = list[i-1].farthest
			}
		}
	}
	return validities
}

// of is of the validities that had begun when an access was sent, of those whom it may belong to,
// the one that lasts longest; nil if there is none.
func (b validitySpans) of(op *holding.Op) *validity {
	last := b.at(ownerUser(op.Owner), op.Invoke.Time)
	if op.Unnamed() {
		if other := b.at(user{process: op.Process}, op.Invoke.Time); last == nil || other != nil && other.Until >= last.Until {
			last = other
		}
	}
	return last
}

func (b validitySpans) at(by user, t time.Duration) *validity {
	list := b[by]
	at := sort.Search(len(list), func(i int) bool { return list[i].From > t })
	if at == 0 {
		return nil
	}
	return &list[list[at-1].farthest]
}

func useAfterLease(l *holding.Lock, op *holding.Op, b *validity) Violation {
	h := b.hold
	why, since, proof := validityEnded(l, b, op.Invoke.Time)
	v := Violation{
		Kind: UseAfterLease, Lock: l.Name, Resource: l.Record().Name(op.Resource),
		Events: events(proof, op.Invoke.Index, op.Complete.Index),
		From:   op.Invoke.Time, Until: op.Complete.Time,
		Explanation: fmt.Sprintf("%s used %s under %q from %s, %s after %s at %s",
			holder(l, h), resource(l, op), l.Name, seconds(op.Invoke.Time),
			say.Span(op.Invoke.Time-since), why, seconds(since)),
	}
	if other := otherHolder(l, op.Invoke.Time, h.Owner()); other != nil {
		v.Explanation += fmt.Sprintf("; %s had been granted the lock at %s", holder(l, other), seconds(other.Start))
	}
	return v
}

// validityEnded is why a holder was not entitled to its validity any more, since when, and
// the event that shows it, of those before now.
func validityEnded(l *holding.Lock, b *validity, now time.Duration) (why string, since time.Duration, proof int64) {
	h, until := b.hold, b.Until
	const released = "it had sent its release"
	if r := h.Release; r != nil && b.From == until && r.Invoke.Time < until { // an answer came later, and was believed at its instant
		return released, r.Invoke.Time, r.Invoke.Index
	}
	first := sort.Search(len(l.Ops), func(i int) bool { return l.Ops[i].Invoke.Time >= until })
	for _, op := range l.Ops[first:] {
		if op.Invoke.Time > until {
			break
		}
		if op.Verb == holding.Release && op.Owner == h.Owner() {
			return released, until, op.Invoke.Index
		}
	}
	for _, told := range l.Losts {
		if told.Owner == h.Owner() && told.Invoke.Time == until {
			return "it had been told that the lock was lost", until, told.Invoke.Index
		}
	}
	for _, x := range h.Extensions {
		if x.Verb == holding.Extend && x.Failed() && x.Complete.Time == until {
			return "it had been told that it did not hold the lock", until, x.Complete.Index
		}
	}
	proof = h.Proof.Complete.Index
	for _, x := range h.Extensions {
		if x.OK() && x.Complete.Time <= now {
			proof = x.Complete.Index
		}
	}
	return "its lease had run out", until, proof
}

// otherHolder is who else held the lock at t: the latest to begin.
func otherHolder(l *holding.Lock, t time.Duration, but int32) *holding.Grant {
	at := sort.Search(len(l.Holds), func(i int) bool { return l.Holds[i].Start > t })
	for _, h := range slices.Backward(l.Holds[max(0, at-8):at]) {
		if h.Owner() != but && h.End > t {
			return h
		}
	}
	return nil
}

// resource names what was accessed.
func resource(l *holding.Lock, op *holding.Op) string {
	if op.Resource == 0 {
		return "the resource"
	}
	return strconv.Quote(l.Record().Name(op.Resource))
}
