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
			return ev.sees(func(e *history.Event) bool {
				return e.Op == history.Access && e.Type == history.OK && e.Lock != ""
			})
		},
		judge: func(_ context.Context, ev *evidence, f *findings) {
			useWithinLease(ev, f)
			if n := f.counts["unowned"]; n > 0 {
				f.doubt("%s named an owner that is not known to have held the lock", say.Count(n, "access"))
			}
			if n := f.counts["untold"]; n > 0 {
				f.doubt("%s may belong to a hold of an owner whose account can't be told", say.Count(n, "access"))
			}
			f.valid = say.Count(f.counts["uses"], "access") + " began while the lock was held"
			if n := f.counts["outlived"]; n > 0 {
				f.valid += fmt.Sprintf("; %d of them ended after the lease", n)
			}
		},
	}
}

// A holderKey is who an access belongs to; by owner, or by process.
type holderKey struct {
	lock, owner string
	process     int
}

// A validity is a span of validity with its hold.
type validity struct {
	holding.Span
	hold     *holding.Hold
	farthest int // of it and those before it in a list, the one that lasts longest
}

// validitySpans are the validities of all to whom an access may belong.
type validitySpans map[holderKey][]validity

func useWithinLease(ev *evidence, f *findings) {
	holdings := ev.holdings()
	validities := validitiesOf(holdings)
	f.used(2 * len(holdings.Holds) * int(unsafe.Sizeof(validity{})))
	ops, untold := ev.operations(), untold(ev)
	doubtful := memoized(holdings.Doubtful)
	for i := range ops {
		op := &ops[i]
		e := op.Invoke
		if e.Op != history.Access || e.Lock == "" || !op.OK() {
			continue
		}
		key, last := validities.of(e)
		f.counts["uses"]++
		switch {
		case last == nil:
			if other := ev.excluded(op, doubtful(e.Lock)); other != nil {
				f.add(useWithoutLock(op, other))
			} else {
				f.counts["unowned"]++
			}
		case e.Time > last.Until && key.process != history.NoProcess && untold[key]:
			f.counts["untold"]++
		case e.Time > last.Until:
			f.add(useAfterLease(ev, op, last, ev.held()[holdings.PlaceOf(last.hold)]))
		case op.Complete.Time > last.Until:
			f.counts["outlived"]++
		}
	}
}

// memoized is a function of a lock that is computed once for each.
func memoized[T any](compute func(lock string) T) func(lock string) T {
	known := map[string]T{}
	return func(lock string) T {
		value, is := known[lock]
		if !is {
			value = compute(lock)
			known[lock] = value
		}
		return value
	}
}

// excluded is the hold because of which an access was made without the lock: of another
// owner, that held it alone and for certain all the time. It is nil if there is none, if
// the account of the owner of the access can't be told, or if the access names no owner
// and its process never asked for the lock.
func (ev *evidence) excluded(op *history.Operation, doubtful map[string]string) *holding.Hold {
	e := op.Invoke
	if doubtful[e.LockOwner()] != "" {
		return nil
	}
	if e.Owner == "" && !slices.ContainsFunc(ev.onLock(e.Lock), func(a *history.Operation) bool {
		return a.Invoke.Op == history.Acquire && a.Invoke.Process == e.Process && a.Invoke.Time <= e.Time && doubtful[a.Invoke.Owner] == ""
	}) {
		return nil
	}
	holds := ev.heldOf(e.Lock)
	at := sort.Search(len(holds), func(i int) bool { return holds[i].Start >= e.Time })
	for _, h := range slices.Backward(holds[:at]) {
		alone := h.Mode == history.Exclusive || h.Mode == history.Write
		if alone && h.Owner != e.LockOwner() && h.Process != e.Process && h.End > op.Complete.Time {
			return h
		}
		if h.Mode == history.Exclusive {
			break // those before it have ended
		}
	}
	return nil
}

func useWithoutLock(op *history.Operation, other *holding.Hold) Violation {
	return Violation{
		Kind: UseAfterLease, Lock: other.Lock, Resource: op.Invoke.Resource,
		Events: events(other.Proof.Complete.Index, op.Invoke.Index, op.Complete.Index),
		From:   op.Invoke.Time, Until: op.Complete.Time,
		Explanation: fmt.Sprintf("%s used %s under %q from %s, and had not been granted the lock; %s held it for certain from %s until after that",
			caller(op), resource(op.Invoke), other.Lock, seconds(op.Invoke.Time), holder(other), seconds(other.Start)),
	}
}

// validitiesOf are the validities of each owner and of each process, in order of their
// beginnings.
func validitiesOf(holdings *holding.Holdings) validitySpans {
	validities := validitySpans{}
	for i := range holdings.Holds {
		h := &holdings.Holds[i]
		byOwner := holderKey{lock: h.Lock, owner: h.Owner, process: history.NoProcess}
		byProcess := holderKey{lock: h.Lock, process: h.Process}
		for _, span := range h.Belief {
			validities[byOwner] = append(validities[byOwner], validity{Span: span, hold: h})
			validities[byProcess] = append(validities[byProcess], validity{Span: span, hold: h})
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

// of is who an access belongs to, and of the validities that had begun when it was sent
// the one that lasts longest; nil if there is none.
func (b validitySpans) of(e *history.Event) (holderKey, *validity) {
	if e.Owner != "" {
		key := holderKey{lock: e.Lock, owner: e.Owner, process: history.NoProcess}
		return key, b.at(key, e.Time)
	}
	key := holderKey{lock: e.Lock, process: e.Process}
	last := b.at(key, e.Time)
	named := b.at(holderKey{lock: e.Lock, owner: "p" + strconv.Itoa(e.Process), process: history.NoProcess}, e.Time)
	if last == nil || named != nil && named.Until > last.Until {
		last = named
	}
	return key, last
}

func (b validitySpans) at(key holderKey, t time.Duration) *validity {
	list := b[key]
	at := sort.Search(len(list), func(i int) bool { return list[i].From > t })
	if at == 0 {
		return nil
	}
	return &list[list[at-1].farthest]
}

// untold are the processes that may hold a lock for an owner whose account can't be
// told, and was left out.
func untold(ev *evidence) map[holderKey]bool {
	processes := map[holderKey]bool{}
	for _, lock := range ev.locks() {
		doubtful := ev.holdings().Doubtful(lock)
		if doubtful == nil {
			continue
		}
		for _, op := range ev.onLock(lock) {
			if e := op.Invoke; e.Op == history.Acquire && !op.Failed() && doubtful[e.Owner] != "" {
				processes[holderKey{lock: lock, process: e.Process}] = true
			}
		}
	}
	return processes
}

func useAfterLease(ev *evidence, op *history.Operation, b *validity, holds []*holding.Hold) Violation {
	h := b.hold
	why, since, proof := ev.validityEnded(b, op.Invoke.Time)
	v := Violation{
		Kind: UseAfterLease, Lock: h.Lock, Resource: op.Invoke.Resource,
		Events: events(proof, op.Invoke.Index, op.Complete.Index),
		From:   op.Invoke.Time, Until: op.Complete.Time,
		Explanation: fmt.Sprintf("%s used %s under %q from %s, %s after %s at %s",
			holder(h), resource(op.Invoke), h.Lock, seconds(op.Invoke.Time),
			say.Span(op.Invoke.Time-since), why, seconds(since)),
	}
	if other := otherHolder(holds, op.Invoke.Time, h.Owner); other != nil {
		v.Explanation += fmt.Sprintf("; %s had been granted the lock at %s", holder(other), seconds(other.Start))
	}
	return v
}

// validityEnded is why a holder was not entitled to its validity any more, since when, and
// the event that shows it, of those before now.
func (ev *evidence) validityEnded(b *validity, now time.Duration) (why string, since time.Duration, proof int64) {
	h, until, events := b.hold, b.Until, ev.history.Events
	if r := h.Release; r != nil && b.From == until && r.Invoke.Time < until { // an answer came later, and was believed at its instant
		return "it had sent its release", r.Invoke.Time, r.Invoke.Index
	}
	first := sort.Search(len(events), func(i int) bool { return events[i].Time >= until })
	for i := first; i < len(events) && events[i].Time == until; i++ {
		e := &events[i]
		if e.Lock != h.Lock || nameOf(e) != h.Owner {
			continue
		}
		switch {
		case e.Op == history.Release && e.Type == history.Invoke:
			return "it had sent its release", until, e.Index
		case e.Op == history.Lost:
			why, proof = "it had been told that the lock was lost", e.Index
		case e.Op == history.Extend && e.Type == history.Fail && why == "":
			why, proof = "it had been told that it did not hold the lock", e.Index
		}
	}
	if why != "" {
		return why, until, proof
	}
	proof = h.Proof.Complete.Index
	for i := range h.Extensions {
		if x := &h.Extensions[i]; x.OK() && x.Complete.Time <= now {
			proof = x.Complete.Index
		}
	}
	return "its lease had run out", until, proof
}

// otherHolder is who else held the lock at t: the latest to begin.
func otherHolder(holds []*holding.Hold, t time.Duration, but string) *holding.Hold {
	at := sort.Search(len(holds), func(i int) bool { return holds[i].Start > t })
	for i := at - 1; i >= 0 && i >= at-8; i-- {
		if h := holds[i]; h.Owner != but && h.End > t {
			return h
		}
	}
	return nil
}

// resource names what was accessed.
func resource(e *history.Event) string {
	if e.Resource == "" {
		return "the resource"
	}
	return strconv.Quote(e.Resource)
}
