package oracle

import (
	"slices"
	"time"

	"github.com/lockchaos/lockchaos/history"
)

// A Finding is what a report says of one property.
type Finding struct {
	Verdict    string // valid, invalid or unknown
	Violations []Violation
}

// A Violation is one of a lock, by its kind.
type Violation struct{ Kind, Lock string }

// A Difference is something that a report says otherwise than the documents.
type Difference struct {
	// Property is what the report judged, or several properties where the documents tell no more than that one of them
	// is broken.
	Property string
	Text     string
}

const (
	valid   = "valid"
	invalid = "invalid"
	unknown = "unknown"
)

// has reports whether the finding names a violation of one of the kinds.
func (f Finding) has(lock string, kinds ...string) bool {
	return slices.ContainsFunc(f.Violations, func(v Violation) bool { return v.Lock == lock && slices.Contains(kinds, v.Kind) })
}

// sure reports whether a finding leaves nothing open: an invalid one may be of one lock, and say nothing of another.
func (f Finding) sure() bool { return f.Verdict == valid || f.Verdict == "" }

type comparison struct {
	*Opinion
	report  map[string]Finding
	lenient bool // what is missing in the report is no difference, where it is not called valid
	found   []Difference
}

// alarm is something that the report finds and the documents do not.
func (c *comparison) alarm(found bool, property, text string) {
	if found {
		c.found = append(c.found, Difference{Property: property, Text: text})
	}
}

// miss is something that the documents find and the report does not.
func (c *comparison) miss(missing bool, property, text string, of ...Finding) {
	c.alarm(missing && (!c.lenient || !slices.ContainsFunc(of, func(f Finding) bool { return !f.sure() })), property, text)
}

// Compare says where a report, by property, differs from what the documents say. A property that the report left out has
// no finding.
func (o *Opinion) Compare(report map[string]Finding) []Difference { return o.compare(report, false) }

// CompareLenient is Compare with a report of the same history whose stamps are less certain: what is invalid in it must be
// so, and what is valid, but all may be unknown.
func (o *Opinion) CompareLenient(report map[string]Finding) []Difference {
	return o.compare(report, true)
}

func (o *Opinion) compare(report map[string]Finding, lenient bool) []Difference {
	if o.misread() {
		return nil
	}
	c := &comparison{Opinion: o, report: report, lenient: lenient}
	for _, l := range o.Locks {
		if len(l.ops) > 0 {
			c.lock(l)
		}
		c.fairness(l)
		c.fencing(l)
	}
	c.unknowns()
	c.contention()
	c.uses()
	c.resource()
	const shortestWait = 10 * time.Second
	c.alarm(report["progress"].Verdict == invalid && o.until < shortestWait, "progress", "stuck for longer than the history")
	return c.found
}

// misread reports whether its times are in another unit, so that nothing is compared: no lease is as long as a millisecond,
// or several grants have an end, and each before its request.
func (o *Opinion) misread() bool {
	leases, ends, long, ahead := 0, 0, o.until < time.Millisecond, false
	for _, op := range o.ops {
		if !op.asksLease() {
			continue
		}
		if op.Lease > 0 || op.recorded > 0 {
			leases, long = leases+1, long || max(op.Lease, op.recorded-op.Time) >= time.Millisecond
		}
		if op.recorded > 0 {
			ends, ahead = ends+1, ahead || op.recorded >= op.Time
		}
	}
	return leases > 0 && !long || ends > 1 && !ahead
}

// lock compares what is said of one lock by mutual-exclusion, capacity, ownership and linearizability.
func (c *comparison) lock(l *Lock) {
	exclusion := c.report["mutual-exclusion"]
	if l.spec.Kind == history.KindSemaphore {
		exclusion = c.report["capacity"]
	}
	ownership, search := c.report["ownership"], c.report["linearizability"]
	convicted := exclusion.has(l.Name, "double-grant", "over-capacity") || ownership.has(l.Name, "foreign-release", "premature-loss")
	inner, searched := exclusion.has(l.Name, "reentrancy"), search.has(l.Name, "not-linearizable")
	sweep, order := "sweep of "+l.Mode, "linearizability of "+l.Mode

	c.alarm(l.Possible && (convicted || inner && l.inner && !l.changed), sweep, "convicts a possible history")
	c.alarm(l.Possible && searched, order, "convicts a possible history")
	if l.Possible || l.changed {
		return
	}
	convicted = convicted || inner
	c.miss(!l.rest && !convicted, sweep, "does not convict an impossible history", exclusion, ownership)
	c.miss(!convicted && exclusion.sure() && ownership.sure(), sweep, "calls an impossible history valid")
	c.miss(!l.rest && !searched, order, "does not convict an impossible history", search)
	c.miss(!searched && search.sure(), order, "calls an impossible history valid")
}

// unknowns compares the reasons for an unknown verdict.
func (c *comparison) unknowns() {
	for _, name := range []string{"mutual-exclusion", "capacity", "ownership", "linearizability"} {
		reason, granted, modes := false, false, ""
		for _, l := range c.Locks {
			semaphore := l.spec.Kind == history.KindSemaphore
			swept := name == "capacity" && semaphore || name == "mutual-exclusion" && !semaphore
			modes += l.Mode + " "
			granted = granted || len(l.grants) > 0 && (swept || name == "ownership" || name == "linearizability")
			reason = reason || l.changed || len(l.Doubts) > 0 || semaphore && l.spec.Capacity == 0 || swept && (l.late() || !l.certain())
		}
		c.alarm(c.report[name].Verdict == unknown && !c.lenient && !reason && granted, name, "unknown without a reason, "+modes)
	}
}

// contention compares whether the history shows anything: whether a process asked for a lock while another one held it.
func (c *comparison) contention() {
	may, must := false, false
	for _, l := range c.Locks {
		for i := range l.ops {
			for j := range l.ops {
				hold, request := &l.ops[i], &l.ops[j]
				if hold.granted() && request.Op == history.Acquire && hold.Process != request.Process && request.complete >= hold.Time {
					may = true
					must = must || !l.Doubts[hold.Owner] && hold.kind == history.OK && hold.complete < request.complete &&
						l.untouched(hold) > max(hold.complete, request.Time)
				}
			}
		}
	}
	f := c.report["assumptions"]
	c.alarm(f.Verdict == valid && !may, "assumptions", "there was no contention")
	c.miss(f.Verdict == unknown && must && !c.faults, "assumptions", "there was contention", f)
}

// fencing compares what is said of the tokens of a lock.
func (c *comparison) fencing(l *Lock) {
	f, is := c.report["fencing-order"]
	if !is {
		return
	}
	property, convicted := "fencing-order of "+l.Mode, f.has(l.Name, "fence-regress", "fence-duplicate")
	may, must := false, false
	switch {
	case l.spec.Fenced != nil && !*l.spec.Fenced:
	case l.spec.Kind == history.KindRW || l.spec.Kind == history.KindSemaphore:
		for _, a := range l.grants {
			for _, b := range l.grants {
				readers := a.Mode == history.Read && b.Mode == history.Read
				switch {
				case a == b || a.Token == 0 || b.Token == 0:
				case a.Token == b.Token && !readers:
					may, must = true, must || a.Owner != b.Owner && l.first(a) && l.first(b)
				case a.Token > b.Token && a.complete < b.Time:
					// Unless a is the inner grant of a hold that was granted without a token, which is not seen.
					may, must = true, must || l.first(b) && !l.earlier(a, func(o *operation) bool { return o.Token == 0 })
				}
			}
		}
	default:
		twice := func(g *operation) bool { return !l.first(g) } // what became of the first hold may not be told
		unseen := func(o operation) bool { return o.granted() && (o.kind != history.OK || o.Token == 0) }
		inner := c.report["mutual-exclusion"].has(l.Name, "reentrancy")
		c.alarm(l.inner && !l.inOrder && inner, property, "tokens out of order are no reentrancy")
		may = !l.inOrder // the order of grants that can't have been is judged by nothing here
		must = l.Possible && !l.inOrder && !inner && !slices.ContainsFunc(l.ops, unseen) && (f.Verdict != unknown || !slices.ContainsFunc(l.grants, twice))
	}
	c.alarm(convicted && !may, property, "tokens that can be in order are convicted")
	c.miss(!convicted && must && len(l.Doubts) == 0, property, "tokens that can't be in order are not convicted", f)
}

// fairness compares what is said of the order of a queue: of two grants that were granted in the other order in every world,
// or of which the later was asked for after the other was answered.
func (c *comparison) fairness(l *Lock) {
	f, is := c.report["fairness"]
	if !is || !l.spec.Fair {
		return
	}
	convicted := f.has(l.Name, "overtaken")
	may, must := false, false
	for _, late := range l.grants {
		for _, early := range l.grants {
			if early.Queued == nil || late.Queued == nil || *early.Queued >= *late.Queued {
				continue
			}
			// late was granted although early was queued before it.
			answered, own := late.complete < early.Time, late.Owner == early.Owner
			switch {
			case answered && !own:
				may, must = true, must || l.first(early) && l.first(late)
			case answered: // it counts if the first was released in between
				may = may || slices.ContainsFunc(l.ops, func(r operation) bool {
					return r.Op == history.Release && r.Owner == late.Owner && r.first > late.last && r.complete < early.Time
				})
			case !own && convicted && !may:
				may = !l.Possible || !l.precedes(early, late)
			}
		}
	}
	c.alarm(convicted && !may, "fairness", "a queue that can be in order is convicted")
	c.miss(must && !convicted && len(l.Doubts) == 0, "fairness", "a queue that can't be in order is not convicted", f)
}
