package oracle

import (
	"maps"
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
	// Property is what the report judged, or several properties where the
	// documents tell no more than that one of them is broken.
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

// sure reports whether a finding leaves nothing open: an invalid one may be of
// one lock, and say nothing of another.
func (f Finding) sure() bool { return f.Verdict == valid || f.Verdict == "" }

type comparison struct {
	report map[string]Finding
	found  []Difference
	// lenient says that what is missing in the report is no difference, where it is not called valid.
	lenient bool
}

func (c *comparison) say(property, text string) {
	c.found = append(c.found, Difference{Property: property, Text: text})
}

// alarm is something that the report finds and the documents do not.
func (c *comparison) alarm(found bool, property, text string) {
	if found {
		c.say(property, text)
	}
}

// miss is something that the documents find and the report does not.
func (c *comparison) miss(missing bool, property, text string, of ...Finding) {
	if missing && (!c.lenient || !slices.ContainsFunc(of, func(f Finding) bool { return !f.sure() })) {
		c.say(property, text)
	}
}

// Compare says where a report, by property, differs from what the documents say.
// A property that the report left out has no finding.
func (o *Opinion) Compare(report map[string]Finding) []Difference {
	return o.compare(&comparison{report: report})
}

// CompareLenient is Compare with a report of the same history whose stamps are less certain: what is
// invalid in it must be so, and what is valid, but all may be unknown.
func (o *Opinion) CompareLenient(report map[string]Finding) []Difference {
	return o.compare(&comparison{report: report, lenient: true})
}

func (o *Opinion) compare(c *comparison) []Difference {
	if unit := o.units(); unit != "" {
		for _, name := range slices.Sorted(maps.Keys(c.report)) {
			f := c.report[name]
			c.alarm(f.Verdict == invalid && slices.ContainsFunc(f.Violations, o.byLease), name, "finds a violation where "+unit)
			c.alarm(f.Verdict == valid && name == "assumptions", name, unit)
		}
		return c.found
	}
	for _, l := range o.Locks {
		if len(l.ops) > 0 {
			c.lock(l)
		}
		c.fairness(l)
		c.fencing(l)
	}
	c.unknowns(o)
	c.uses(o)
	c.resource(o)
	c.contention(o)
	const shortestWait = 10 * time.Second
	c.alarm(c.report["progress"].Verdict == invalid && o.until < shortestWait, "progress", "stuck for longer than the history")
	return c.found
}

// units says why the leases are no nanoseconds: each is shorter than a millisecond, or several
// grants have an end, and each before its request. It is empty if they may be.
func (o *Opinion) units() string {
	leases, ends, short, durations := 0, 0, o.until >= time.Millisecond, true
	for _, op := range o.ops {
		if !op.asksLease() || op.Lease == 0 && op.recorded == 0 {
			continue
		}
		leases++
		short = short && op.Lease < time.Millisecond && op.recorded-op.Time < time.Millisecond
		if op.recorded > 0 {
			ends++
			durations = durations && op.recorded < op.Time
		}
	}
	switch {
	case short && leases > 0:
		return "no lease is as long as a millisecond"
	case durations && ends > 1:
		return "each expires is a duration"
	default:
		return ""
	}
}

func (o *operation) asksLease() bool { return o.Op == history.Acquire || o.Op == history.Extend }

// byLease reports whether a lease may have a part in a violation: of its lock one was
// asked for or granted, and it is not about what a resource was told.
func (o *Opinion) byLease(v Violation) bool {
	return v.Kind != "lost-update" && v.Kind != "stale-access" && slices.ContainsFunc(o.ops, func(op operation) bool {
		return op.Lock == v.Lock && op.asksLease() && (op.Lease != 0 || op.recorded > 0)
	})
}

// lock compares what is said of one lock by mutual-exclusion, capacity,
// ownership and linearizability.
func (c *comparison) lock(l *Lock) {
	exclusion := c.report["mutual-exclusion"]
	if l.spec.Kind == history.KindSemaphore {
		exclusion = c.report["capacity"]
	}
	ownership, search := c.report["ownership"], c.report["linearizability"]
	granted, inner := exclusion.has(l.Name, "double-grant", "over-capacity"), exclusion.has(l.Name, "reentrancy")
	foreign, forgotten := ownership.has(l.Name, "foreign-release"), ownership.has(l.Name, "premature-loss")
	searched := search.has(l.Name, "not-linearizable")
	convicted := granted || inner || foreign || forgotten
	sweep, order := "sweep of "+l.Mode, "linearizability of "+l.Mode

	c.alarm(l.Possible && (granted || foreign || forgotten), sweep, "convicts a possible history")
	c.alarm(l.Possible && searched, order, "convicts a possible history")
	if l.changed {
		return
	}
	c.alarm(l.Possible && inner && l.inner, sweep, "reentrancy in a possible history")
	c.miss(!l.Possible && !l.rest && !convicted, sweep, "does not convict an impossible history", exclusion, ownership)
	c.miss(!l.Possible && !convicted && exclusion.sure() && ownership.sure(), sweep, "calls an impossible history valid")
	c.miss(!l.Possible && !l.rest && !searched, order, "does not convict an impossible history", search)
	c.miss(!l.Possible && !searched && search.sure(), order, "calls an impossible history valid")
	if l.Possible || len(l.Doubts) > 0 {
		return
	}
	c.alarm(l.unrefused && granted, sweep, "refusals alone make it impossible, and they are no double grant")
	c.miss(l.unrefused && !forgotten && !foreign, sweep, "refusals alone make it impossible, and ownership does not say so", ownership)
	c.miss(!l.unrefused && !l.weak && !granted && !inner, sweep, "grants alone make it impossible, and none is named", exclusion)
}

// unknowns compares the reasons for an unknown verdict.
func (c *comparison) unknowns(o *Opinion) {
	for _, name := range []string{"mutual-exclusion", "capacity", "ownership", "linearizability"} {
		if c.report[name].Verdict != unknown || c.lenient {
			continue
		}
		reason, granted, modes := false, false, ""
		for _, l := range o.Locks {
			semaphore := l.spec.Kind == history.KindSemaphore
			judged := name == "capacity" && semaphore || name == "mutual-exclusion" && !semaphore // by the sweep
			modes += l.Mode + " "
			granted = granted || len(l.grants) > 0 && (judged || name == "ownership" || name == "linearizability")
			reason = reason || l.changed || len(l.Doubts) > 0 || semaphore && l.spec.Capacity == 0 || judged && l.late()
			reason = reason || judged && len(l.grants) > 0 && !l.certain()
		}
		c.alarm(!reason && granted, name, "unknown without a reason, "+modes)
	}
}

// contention compares whether the history shows anything: whether a process asked
// for a lock while another one held it.
func (c *comparison) contention(o *Opinion) {
	may, must := false, false
	for _, l := range o.Locks {
		for i := range l.ops {
			for j := range l.ops {
				hold, request := &l.ops[i], &l.ops[j]
				if !hold.granted() || request.Op != history.Acquire || hold.Process == request.Process || request.complete < hold.Time {
					continue
				}
				may = true
				must = must || l.Doubts[hold.Owner] == "" && hold.kind == history.OK && hold.complete < request.complete &&
					l.untouched(hold) > max(hold.complete, request.Time)
			}
		}
	}
	f := c.report["assumptions"]
	c.alarm(f.Verdict == valid && !may, "assumptions", "there was no contention")
	c.miss(f.Verdict == unknown && must && !o.faults, "assumptions", "there was contention", f)
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
					may = true
					must = must || a.Owner != b.Owner && l.first(a) && l.first(b)
				case a.Token > b.Token && a.complete < b.Time && !l.goesOn(b):
					may = true
					// Unless a is the inner grant of a hold that was granted without a token, which is not seen.
					must = must || l.first(b) && !l.earlier(a, func(o *operation) bool { return o.Token == 0 })
				}
			}
		}
	default:
		inner := c.report["mutual-exclusion"].has(l.Name, "reentrancy")
		c.alarm(l.inner && !l.inOrder && inner, property, "tokens out of order are no reentrancy")
		may = !l.inOrder // the order of grants that can't have been is judged by nothing here
		must = l.Possible && !l.inOrder && !inner && l.allTokens() && (f.Verdict != unknown || !l.countNotTold())
	}
	c.alarm(convicted && !may, property, "tokens that can be in order are convicted")
	c.miss(!convicted && must && len(l.Doubts) == 0, property, "tokens that can't be in order are not convicted", f)
}

// goesOn reports whether a grant may be an inner one of a hold with its token, which nothing shows to have ended.
func (l *Lock) goesOn(g *operation) bool {
	return l.Possible && l.earlier(g, func(o *operation) bool { return o.Token == g.Token && o.Mode == g.Mode }) &&
		!slices.ContainsFunc(l.ops, func(o operation) bool {
			return o.Owner == g.Owner && o.first < g.last && (o.is(history.Release, history.OK) || o.Op != history.Acquire && o.kind == history.Fail)
		})
}

// countNotTold reports whether an owner was granted the lock twice, and what became of the first hold is
// not told: the two have one token, and may have been released; or they have two, and the second was
// answered at its own end or after it, which may have cut the lease of the first.
func (l *Lock) countNotTold() bool {
	all := account{spec: l.spec, all: l.ops}
	for _, a := range l.grants {
		for _, b := range l.grants {
			if a.Owner != b.Owner || a.first >= b.first {
				continue
			}
			if a.Token != b.Token && all.end(b) <= b.complete || a.Token == b.Token && slices.ContainsFunc(l.ops, func(o operation) bool {
				return o.Op == history.Release && o.kind != history.Fail && o.Owner == a.Owner && b.first < o.last
			}) {
				return true
			}
		}
	}
	return false
}

// allTokens reports whether every grant is known with its token: others are not
// seen by the property.
func (l *Lock) allTokens() bool {
	return !slices.ContainsFunc(l.ops, func(o operation) bool { return o.granted() && (o.kind != history.OK || o.Token == 0) })
}

// fairness compares what is said of the order of a queue: of two grants that
// were granted in the other order in every world, or of which the later was
// asked for after the other was answered.
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
