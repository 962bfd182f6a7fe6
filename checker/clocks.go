package checker

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
)

// CheckWithin is [Check] for a history whose stamps are of several clocks, each of
// which may be wrong by up to off, the same amount all the time. The events of a clock
// have its name, and those without one are of the clock of their process.
//
// A violation stands if those that it is about break the property with every order of their events that is possible
// then. A property that held is Valid only if it depends on the order of holds alone, and no hold follows
// one of another clock so soon that the two may have overlapped. All else is
// Unknown, and the summary names the two holds that are too close.
func CheckWithin(ctx context.Context, h *history.History, off time.Duration, checkers ...Checker) Report {
	report := Check(ctx, h, checkers...)
	if off <= 0 || len(clocksOf(h.Events)) < 2 {
		return report
	}
	if len(checkers) == 0 {
		checkers = Standard()
	}
	w := skewed{history: h, record: report.Record, off: off}
	w.near()
	var verdicts []Verdict
	for i := range report.Results {
		r := &report.Results[i]
		at := slices.IndexFunc(checkers, func(c Checker) bool { return c.Name() == r.Name })
		if at >= 0 && r.Name != Assumptions().Name() {
			w.doubt(ctx, r, checkers[at])
		}
		verdicts = append(verdicts, r.Verdict)
	}
	report.Verdict = Worst(verdicts...)
	return report
}

// skewed judges again what was found by the stamps alone.
type skewed struct {
	history *history.History
	record  *holding.Record
	off     time.Duration // how wrong a clock may be
	// What keeps the order of holds from being certain, of any lock and of those that are no mutex; empty if it is.
	close, closeOther string
	pairs             int               // that are too close
	clocks            map[string]string // by owner
}

// Bounds of what is tried for one violation.
const (
	mostOrders   = 4096
	mostInvolved = 2000 // events
)

func (w *skewed) doubt(ctx context.Context, r *Result, c Checker) {
	switch r.Verdict {
	case Valid:
		if why, tooClose := w.hides(ctx, r, c); why != "" {
			r.Verdict = Unknown
			if tooClose {
				r.TooClose = w.pairs
			}
			r.Summary = fmt.Sprintf("no violation by the stamps, but clocks that are wrong by %v may hide one: %s", w.off, why)
		}
	case Invalid:
		found, first := r.Total, r.Violations[0].Explanation
		tried := true
		if c.stretched != nil {
			r.Violations = holding.Filter(c.stretched(4*w.off).Check(ctx, w.history).Violations, func(v Violation) bool {
				// Events of clients prove it, and no observation of a server, which has a clock of its own.
				return !slices.ContainsFunc(v.Events, func(at int64) bool { return w.history.Events[at].Process < 0 })
			})
			tried = false
		} else {
			r.Violations = holding.Filter(r.Violations, func(v Violation) bool {
				stands, possible := w.stands(ctx, c, v)
				tried = tried && possible
				return stands
			})
		}
		for i := range r.Violations {
			w.least(&r.Violations[i])
		}
		if r.Total = len(r.Violations); r.Total > 0 {
			r.Summary = fmt.Sprintf("%d of %d violations are there even if each clock is wrong by %v, the first: %s", r.Total, found, w.off, r.Violations[0].Explanation)
		} else {
			r.Verdict = Unknown
			if tried && found <= MaxListed {
				r.TooClose = w.pairs
			}
			r.Summary = fmt.Sprintf("clocks that are wrong by %v may explain what the stamps show (%d): %s", w.off, found, cmp.Or(w.tooClose(r), first))
		}
	case Unknown:
	}
}

// hides says why a property that held by the stamps may not hold with clocks that are wrong, and whether that is for holds that
// are too close; empty if it holds with any.
func (w *skewed) hides(ctx context.Context, r *Result, c Checker) (why string, tooClose bool) {
	switch {
	case c.stretched != nil: // it is about lengths between two instants
		shorter := 4 * w.off
		if shorter < ProgressBound && c.stretched(-shorter).Check(ctx, w.history).Verdict == Valid || w.history.End() < ProgressBound-2*w.off {
			return "", false
		}
		return fmt.Sprintf("a lock may have been free for %v", ProgressBound), false
	case r.Name == MutualExclusion().Name(), r.Name == Ownership().Name(), r.Name == Linearizability().Name(),
		r.Name == UseWithinLease().Name() && r.Coverage["unowned"] == 0:
		return w.tooClose(r), true
	case r.Name == FencingOrder().Name():
		return cmp.Or(w.tooClose(r), w.closeOther), w.closeOther == ""
	default:
		return "this property depends on the order of more than holds", false
	}
}

// tooClose names the two events whose order is not certain, in the result that is about them.
func (w *skewed) tooClose(r *Result) string {
	if w.close == "" || r.Name == MutualExclusion().Name() || r.Name == Capacity().Name() {
		return w.close
	}
	return "which of two holds came first is not certain"
}

// near looks for holds of different clocks, of which one excludes the other, that are so close that which came first
// is not certain. The order of holds is all that exclusion, ownership and the tokens of a mutex depend on: what else an
// owner did is stamped by the same clock as its hold.
func (w *skewed) near() {
	w.clocks = map[string]string{}
	for i := range w.history.Events {
		e := &w.history.Events[i]
		if e.Process < 0 || e.Op == history.Declare {
			continue
		}
		owner, clock := e.LockOwner(), clockOf(e)
		if had, ok := w.clocks[owner]; ok && had != clock {
			w.close = fmt.Sprintf("the events of owner %s are of several clocks", owner)
			return
		}
		w.clocks[owner] = clock
	}
	least := history.Never
	for _, l := range w.record.Locks() {
		if l.Kind != history.KindMutex {
			w.closeOther = fmt.Sprintf("lock %q is no mutex", l.Name)
		}
		if l.Semaphore() {
			w.close = w.closeOther
			return
		}
		var open []*holding.Grant // whose ends may be after the next beginning
		for _, g := range sorted(l.Holds, func(g *holding.Grant) time.Duration { return extent(g).From }) {
			from, b := extent(g).From, w.clocks[w.record.Name(g.Owner())]
			open = slices.DeleteFunc(open, func(o *holding.Grant) bool { return extent(o).Until <= from-2*w.off })
			for _, o := range open {
				a := w.clocks[w.record.Name(o.Owner())]
				if a == b || !excludes(l, o, g) {
					continue
				}
				w.pairs++
				if gap := from - extent(o).Until; gap < least {
					least = gap
					w.close = fmt.Sprintf("%s held %q until %s (%s), and %s was granted it at %s (%s): clocks that may differ by %v do not tell which came first",
						holder(l, o), l.Name, seconds(extent(o).Until), a, holder(l, g), seconds(from), b, 2*w.off)
				}
			}
			open = append(open, g)
		}
	}
	if w.pairs > 1 {
		w.close += fmt.Sprintf(" (nor of %d other pairs)", w.pairs-1)
	}
}

// extent is from the first to the last instant of a hold that a judgement looks at.
func extent(g *holding.Grant) holding.Span {
	return holding.Span{From: min(g.Start, g.End), Until: max(g.Start, g.End)}
}

// least says for how long two clients held a lock at the least, if the clocks are as wrong as they may be. The time for
// which two holds overlap is least where one of them is shifted as far as it may be, to either side.
func (w *skewed) least(v *Violation) {
	l := w.record.Lock(v.Lock)
	if v.Kind != DoubleGrant || l == nil {
		return
	}
	two := holding.Filter(l.Holds, func(g *holding.Grant) bool { return slices.Contains(v.Events, g.Proof.Complete.Index) && g.Certain() })
	if len(two) != 2 || w.clocks[w.record.Name(two[0].Owner())] == w.clocks[w.record.Name(two[1].Owner())] {
		return
	}
	a, b := extent(two[0]), extent(two[1])
	least := history.Never
	for _, shift := range []time.Duration{-2 * w.off, 0, 2 * w.off} {
		least = min(least, min(a.Until, b.Until+shift)-max(a.From, b.From+shift))
	}
	if least > 0 && least < v.Until-v.From {
		v.Least = least
		v.Explanation += fmt.Sprintf(", by the stamps; for %s at the least, if each clock is wrong by %v", say.Span(least), w.off)
	}
}

// stands reports whether a violation is there however wrong the clocks are, and whether that could be tried.
func (w *skewed) stands(ctx context.Context, c Checker, v Violation) (stands, tried bool) {
	events := w.involved(v)
	clocks := clocksOf(events)
	changes := func(e history.Event) bool { return e.Op == history.Declare && e.From > 0 } // the capacity of a semaphore, at an instant of no clock
	if v.Kind == NotLinearizable && slices.ContainsFunc(events, changes) || len(events) == 0 || len(events) > mostInvolved || len(clocks) > 2 {
		return false, false
	}
	second := append(clocks, "", "")[1]
	all := shifts(events, second, 2*w.off)
	return len(all) > 0 && !slices.ContainsFunc(all, func(by time.Duration) bool {
		// Another kind does not show this one. (An update may seem to be lost, where accesses of others are left out.)
		return !slices.ContainsFunc(c.find(ctx, evidenceOf(shifted(events, second, by, 2*w.off))).violations, func(o Violation) bool { return o.Kind == v.Kind })
	}), len(all) > 0
}

// involved are the events that prove a violation, and all others of those who made
// them: what breaks a property breaks it beside any other clients, too. It has none
// where that is not so.
func (w *skewed) involved(v Violation) []history.Event {
	owners, processes := parties(w.record, v)
	var with func(*holding.Op) bool
	switch v.Kind {
	case DoubleGrant, Reentrancy, FenceRegress, FenceDuplicate, PrematureLoss, ForeignRelease, NotLinearizable:
		with = func(op *holding.Op) bool { return op.Verb != holding.Access && owners[op.Owner] }
	case UseAfterLease: // of its processes, and of the owners for which they acted
		for op := range w.record.Ops() {
			owners[op.Owner] = owners[op.Owner] || processes[op.Process]
		}
		with = func(op *holding.Op) bool { return owners[op.Owner] || processes[op.Process] }
	case StaleAccess:
		with = func(op *holding.Op) bool { return op.Verb == holding.Access && processes[op.Process] }
	default:
		return nil
	}
	return joined(exhibits(w.record, w.history, v, with))
}

// clockOf names the clock that stamped an event; empty for a declaration, whose time
// means nothing.
func clockOf(e *history.Event) string {
	switch {
	case e.Op == history.Declare:
		return ""
	case e.Clock != "":
		return "clock " + e.Clock
	default:
		return "process " + strconv.Itoa(e.Process)
	}
}

// clocksOf are the clocks of some events, in order of their first; no more than three, as no caller asks for more.
func clocksOf(events []history.Event) (clocks []string) {
	for i := range events {
		if c := clockOf(&events[i]); c != "" && len(clocks) < 3 && !slices.Contains(clocks, c) {
			clocks = append(clocks, c)
		}
	}
	return clocks
}

// SeveralClocks is an error if events name more than one clock. [Check] takes all stamps for
// those of one clock, so its verdict on such events would be of their stamps and not of the lock:
// [CheckWithin] judges them, if it is known how wrong the clocks may be.
func SeveralClocks(events []history.Event) error {
	clocks := map[string]bool{}
	for i := range events {
		if e := &events[i]; e.Process >= 0 { // faults and declarations have no clock of a client
			clocks[e.Clock] = true
		}
	}
	if len(clocks) < 2 {
		return nil
	}
	names := slices.Sorted(maps.Keys(clocks))
	return fmt.Errorf("the stamps are of %d clocks, such as %q and %q, and nothing says how wrong each may be",
		len(names), cmp.Or(names[0], "one without a name"), names[1])
}

// shifts are those of a clock, up to most in both directions, that together make all orders of the instants that a
// judgement of the events compares; none if there are too many.
func shifts(events []history.Event, clock string, most time.Duration) []time.Duration {
	if clock == "" {
		return []time.Duration{0}
	}
	drifts := []time.Duration{0}
	for i := range events {
		drifts = append(drifts, events[i].Drift)
	}
	slices.Sort(drifts)
	instants := map[bool][]time.Duration{} // by whether they are of that clock
	for i := range events {
		e := &events[i]
		if e.Op == history.Declare {
			continue
		}
		list := append(instants[clockOf(e) == clock], e.Time)
		if e.From > 0 {
			list = append(list, e.From)
		}
		for _, drift := range slices.Compact(drifts) {
			if e.Expires > 0 {
				list = append(list, e.Expires-drift)
			}
			if e.Lease > 0 {
				list = append(list, e.Time+e.Lease-drift)
			}
		}
		instants[clockOf(e) == clock] = list
	}
	mine := instants[true]
	slices.Sort(mine)
	all := []time.Duration{-most, most} // which most often show that the order matters
	for _, a := range instants[false] {
		from, _ := slices.BinarySearch(mine, a-most)
		for _, b := range mine[from:] {
			if b > a+most || len(all) > 64*mostOrders {
				break
			}
			all = append(all, max(a-b-1, -most), a-b, min(a-b+1, most))
		}
	}
	slices.Sort(all[2:])
	if all = slices.Compact(all); len(all) > mostOrders {
		return nil
	}
	return all
}

// shifted is the history of some events if one clock is shifted: all of it is so much later that no shift up to most
// leads before 0.
func shifted(events []history.Event, clock string, by, most time.Duration) *history.History {
	others := holding.Filter(events, func(e history.Event) bool { return clockOf(&e) != clock }) // which are first at the same stamp
	h := &history.History{Events: append(others, holding.Filter(events, func(e history.Event) bool { return clockOf(&e) == clock })...)}
	for i := range h.Events {
		e, later := &h.Events[i], most+2
		if e.Op == history.Declare {
			e.Time = 0
			continue
		}
		if clockOf(e) == clock {
			later += by
		}
		for _, at := range [...]*time.Duration{&e.Time, &e.Expires, &e.From} {
			if *at > 0 || at == &e.Time {
				*at = max(*at+later, 1)
			}
		}
	}
	slices.SortStableFunc(h.Events, func(a, b history.Event) int { return cmp.Compare(a.Time, b.Time) })
	for i := range h.Events {
		h.Events[i].Index = int64(i)
	}
	return h
}
