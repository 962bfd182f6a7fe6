package checker

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"time"

	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
)

// UseWithinLease is the checker of "use-within-lease": a process that uses a resource
// under a lock is still entitled to believe that it holds the lock. It judges the accesses that name a lock.
//
// One that was answered ok and was invoked after the validity of the holds that it may belong to is a violation; so is
// one by a client that was never granted the lock while another owner held it alone and for certain. Where nothing shows
// whose access it was, the verdict is Unknown. It is not the service's fault: the lock did its job, and the holder did
// not notice.
func UseWithinLease() Checker {
	return Checker{
		name: "use-within-lease", engine: "interval sweep",
		of: func(l *holding.Lock) bool { return slices.ContainsFunc(l.Accesses, (*holding.Op).OK) },
		judge: func(_ context.Context, _ *evidence, locks []*holding.Lock, f *findings) {
			for _, l := range locks {
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

// A validity is a span of validity with its hold.
type validity struct {
	holding.Span
	hold *holding.Grant
}

func useWithinLease(l *holding.Lock, f *findings) {
	asked, untold := map[int]time.Duration{}, map[int]bool{} // by process: since when, and whether for an owner whose account can't be told
	for _, op := range l.Ops {
		switch {
		case op.Verb != holding.Acquire:
		case l.Doubtful[op.Owner] != "":
			untold[op.Process] = untold[op.Process] || !op.Failed()
		default:
			if _, before := asked[op.Process]; !before {
				asked[op.Process] = op.Invoke.Time
			}
		}
	}
	var validities []validity // in order of their beginnings
	for _, h := range l.Holds {
		for _, span := range h.Belief {
			validities = append(validities, validity{span, h})
		}
	}
	validities = sorted(validities, func(v validity) time.Duration { return v.From })
	longest := map[user]*validity{} // of those that had begun
	for _, op := range l.Accesses {
		if !op.OK() {
			continue
		}
		for ; len(validities) > 0 && validities[0].From <= op.Invoke.Time; validities = validities[1:] {
			v := &validities[0]
			for _, by := range [...]user{{v.hold.Owner(), history.NoProcess}, {process: v.hold.Process()}} {
				if before := longest[by]; before == nil || v.Until >= before.Until {
					longest[by] = v
				}
			}
		}
		f.counts["accesses"]++
		last := longest[user{op.Owner, history.NoProcess}]
		if other := longest[user{process: op.Process}]; op.Unnamed() && other != nil && (last == nil || other.Until >= last.Until) {
			last = other
		}
		since, before := asked[op.Process]
		switch {
		case last == nil:
			other := (*holding.Grant)(nil)
			if l.Doubtful[op.Owner] == "" && (!op.Unnamed() || before && since <= op.Invoke.Time) {
				other = excluding(l, op)
			}
			if other != nil {
				f.add(accessed(l, op, caller(l.Record(), op), other.Proof.Complete.Index,
					"and had not been granted the lock; %s held it for certain from %s until after that", holder(l, other), seconds(other.Start)))
			} else {
				f.counts["unowned"]++
			}
		case op.Invoke.Time > last.Until && op.Unnamed() && untold[op.Process]:
			f.counts["untold"]++
		case op.Invoke.Time > last.Until:
			f.add(useAfterLease(l, op, last))
		case op.Complete.Time > last.Until:
			f.counts["outlived"]++
		}
	}
}

// excluding is the hold because of which an access was made without the lock: of another
// owner, that held it alone and for certain all the time. It is nil if there is none.
func excluding(l *holding.Lock, op *holding.Op) *holding.Grant {
	at := sort.Search(len(l.Holds), func(i int) bool { return l.Holds[i].Start >= op.Invoke.Time })
	for _, h := range slices.Backward(l.Holds[:at]) {
		alone := h.Mode() == holding.Exclusive || h.Mode() == holding.Write
		if alone && h.Owner() != op.Owner && h.Process() != op.Process && h.End > op.Complete.Time {
			return h
		}
		if h.Mode() == holding.Exclusive && h.End > h.Start {
			break // those before one that was held for certain have ended
		}
	}
	return nil
}

// accessed is the violation that an access is.
func accessed(l *holding.Lock, op *holding.Op, by string, proof int64, format string, args ...any) Violation {
	resource := "the resource"
	if op.Resource != 0 {
		resource = strconv.Quote(l.Record().Name(op.Resource))
	}
	v := violation(UseAfterLease, l.Name, op.Span(), events(proof, op.Invoke.Index, op.Complete.Index), "%s used %s under %q from %s, %s",
		by, resource, l.Name, seconds(op.Invoke.Time), fmt.Sprintf(format, args...))
	v.Resource = l.Record().Name(op.Resource)
	return v
}

func useAfterLease(l *holding.Lock, op *holding.Op, b *validity) Violation {
	why, since, proof := validityEnded(l, b, op.Invoke.Time)
	v := accessed(l, op, holder(l, b.hold), proof, "%s after %s at %s", say.Span(op.Invoke.Time-since), why, seconds(since))
	if h := another(l, b.hold.Owner(), holding.Span{From: op.Invoke.Time, Until: op.Invoke.Time + 1}); h != nil {
		v.Explanation += fmt.Sprintf("; %s had been granted the lock at %s", holder(l, h), seconds(h.Start))
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
	proof = h.Proof.Complete.Index
	for _, x := range h.Extensions {
		switch {
		case x.Verb == holding.Extend && x.Failed() && x.Complete.Time == until:
			return "it had been told that it did not hold the lock", until, x.Complete.Index
		case x.OK() && x.Complete.Time <= now:
			proof = x.Complete.Index
		}
	}
	return "its lease had run out", until, proof
}
