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

// shortestWait is the shortest that a lock is stuck for, by default.
const shortestWait = 10 * time.Second

const (
	valid   = "valid"
	invalid = "invalid"
	unknown = "unknown"
)

// has reports whether the finding names a violation of one of the kinds.
func (f Finding) has(name string, kinds ...string) bool {
	for _, kind := range kinds {
		if slices.Contains(f.Violations, Violation{Kind: kind, Lock: name}) {
			return true
		}
	}
	return false
}

// Compare says where a report, by property, differs from what the documents say.
// A property that the report left out has no finding.
func (o *Opinion) Compare(report map[string]Finding) []Difference {
	c := &comparison{report: report}
	if short := o.until >= time.Millisecond && o.short(); short || o.durations() {
		unit := "each expires is a duration"
		if short {
			unit = "no lease is as long as a millisecond"
		}
		for _, name := range slices.Sorted(maps.Keys(report)) {
			switch v := report[name].Verdict; {
			case v == invalid && slices.ContainsFunc(report[name].Violations, o.byLease):
				c.say(name, "finds a violation where "+unit)
			case v == valid && name == "assumptions":
				c.say(name, unit)
			}
		}
		return c.found
	}
	for _, l := range o.Locks {
		if len(l.ops) > 0 {
			c.lock(l)
		}
	}
	c.unknowns(o)
	c.accesses(o)
	c.contention(o)
	if c.report["progress"].Verdict == invalid && o.until < shortestWait {
		c.say("progress", "stuck for longer than the history")
	}
	for _, name := range []string{"fairness", "fencing-order"} {
		if f, is := report[name]; is {
			for _, l := range o.Locks {
				if name == "fairness" {
					c.fairness(l, f)
				} else {
					c.fencing(l, f)
				}
			}
		}
	}
	return c.found
}

// byLease reports whether a lease may have a part in a violation: of its lock one was
// asked for or granted, and it is not about what a resource was told.
func (o *Opinion) byLease(v Violation) bool {
	return v.Kind != "lost-update" && v.Kind != "stale-access" && slices.ContainsFunc(o.ops, func(op operation) bool {
		return op.lock == v.Lock && (op.op == history.Acquire || op.op == history.Extend) && (op.lease != 0 || op.expires > 0)
	})
}

type comparison struct {
	report map[string]Finding
	found  []Difference
}

func (c *comparison) say(property, text string) {
	c.found = append(c.found, Difference{Property: property, Text: text})
}

// lock compares what is said of one lock by mutual-exclusion, capacity,
// ownership and linearizability.
func (c *comparison) lock(l *Lock) {
	exclusion := c.report["mutual-exclusion"]
	if l.spec.Kind == history.KindSemaphore {
		exclusion = c.report["capacity"]
	}
	ownership, search := c.report["ownership"], c.report["linearizability"]
	granted := exclusion.has(l.Name, "double-grant", "over-capacity")
	inner := exclusion.has(l.Name, "reentrancy")
	foreign := ownership.has(l.Name, "foreign-release")
	forgotten := ownership.has(l.Name, "premature-loss")
	searched := search.has(l.Name, "not-linearizable")
	convicted := granted || inner || foreign || forgotten
	switch {
	case l.Possible && (granted || foreign || forgotten):
		c.say("sweep of "+l.Mode, "convicts a possible history")
	case l.Possible && inner && l.Inner:
		c.say("sweep of "+l.Mode, "reentrancy in a possible history")
	case !l.Rest && !convicted:
		c.say("sweep of "+l.Mode, "does not convict an impossible history")
	case !l.Possible && !convicted && sure(exclusion) && sure(ownership):
		c.say("sweep of "+l.Mode, "calls an impossible history valid")
	}
	switch {
	case l.Possible && searched:
		c.say("linearizability of "+l.Mode, "convicts a possible history")
	case !l.Rest && !searched:
		c.say("linearizability of "+l.Mode, "does not convict an impossible history")
	case !l.Possible && !searched && sure(search):
		c.say("linearizability of "+l.Mode, "calls an impossible history valid")
	}
	if l.Possible || len(l.Doubts) > 0 {
		return
	}
	switch {
	case l.Unrefused && granted:
		c.say("sweep of "+l.Mode, "refusals alone make it impossible, and they are no double grant")
	case l.Unrefused && !forgotten && !foreign:
		c.say("sweep of "+l.Mode, "refusals alone make it impossible, and ownership does not say so")
	case !l.Weak && !granted && !inner:
		c.say("sweep of "+l.Mode, "grants alone make it impossible, and none is named")
	}
}

// sure reports whether a finding leaves nothing open: an invalid one may be of
// one lock, and say nothing of another.
func sure(f Finding) bool { return f.Verdict == valid || f.Verdict == "" }

// unknowns compares the reasons for an unknown verdict.
func (c *comparison) unknowns(o *Opinion) {
	for _, name := range []string{"mutual-exclusion", "capacity", "ownership", "linearizability"} {
		f := c.report[name]
		if f.Verdict != unknown {
			continue
		}
		var reasons []string
		granted, modes := false, ""
		for _, l := range o.Locks {
			modes += l.Mode + " "
			for owner, reason := range l.Doubts {
				reasons = append(reasons, owner+": "+reason)
			}
			semaphore := l.spec.Kind == history.KindSemaphore
			granted = granted || l.Granted && (name == "capacity") == semaphore || l.Granted && (name == "ownership" || name == "linearizability")
			if semaphore && l.spec.Capacity == 0 {
				reasons = append(reasons, "a semaphore without a capacity")
			}
			if name == "mutual-exclusion" && !semaphore || name == "capacity" && semaphore {
				if l.Late {
					reasons = append(reasons, "most grants were answered after their own end")
				} else if len(reasons) == 0 && l.Granted && !l.certain() {
					reasons = append(reasons, "nothing was held for certain")
				}
			}
		}
		if !granted {
			reasons = append(reasons, "nothing was granted")
		}
		if len(reasons) == 0 {
			c.say(name, "unknown without a reason, "+modes)
		}
	}
}
