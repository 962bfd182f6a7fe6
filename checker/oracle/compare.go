package oracle

import (
	"cmp"
	"slices"
	"strings"
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
// no finding. A lenient comparison is with a report of the same history whose stamps are less certain: what is invalid in it
// must be so, and what is valid, but all may be unknown.
func (o *Opinion) Compare(report map[string]Finding, lenient bool) []Difference {
	c := &comparison{Opinion: o, report: report, lenient: lenient}
	for _, l := range o.Locks {
		c.lock(l)
		c.fairness(l)
		c.fencing(l)
	}
	c.unknowns()
	c.contention()
	c.uses()
	c.resource()
	c.alarm(report["progress"].Verdict == invalid && o.until < 10*time.Second, "progress", "stuck for longer than the history")
	return c.found
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
			late := slices.DeleteFunc(slices.Clone(l.grants), func(g *operation) bool { return g.complete < g.ends })
			certain := slices.ContainsFunc(l.grants, func(g *operation) bool { return l.untouched(g) > g.complete })
			reason = reason || l.changed || len(l.Doubts) > 0 || semaphore && l.spec.Capacity == 0 || swept && (!certain || 2*len(late) >= len(l.grants))
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
	f := c.report["fencing-order"]
	property, convicted := "fencing-order of "+l.Mode, f.has(l.Name, "fence-regress", "fence-duplicate")
	may, must := false, false
	switch {
	case l.spec.Fenced != nil && !*l.spec.Fenced:
	case l.shared():
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
	f, convicted := c.report["fairness"], c.report["fairness"].has(l.Name, "overtaken")
	may, must := false, false
	for _, late := range l.grants {
		for _, early := range l.grants {
			if !l.spec.Fair || early.Queued == nil || late.Queued == nil || *early.Queued >= *late.Queued {
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

// accessed are the accesses that were answered ok.
func (o *Opinion) accessed() []operation {
	return slices.DeleteFunc(slices.Clone(o.ops), func(a operation) bool { return !a.is(history.Access, history.OK) })
}

// uses compares what is said of the use of a resource under a lock.
func (c *comparison) uses() {
	f, wrong, all := c.report["use-within-lease"], false, true
	for _, a := range c.accessed() {
		if a.Lock != "" {
			within, late := c.use(&a)
			all, wrong = all && within, wrong || late || !within && c.withoutLock(&a)
		}
	}
	c.alarm(f.Verdict == invalid && all, "use-within-lease", "no access was late")
	c.miss(f.Verdict == valid && wrong, "use-within-lease", "a late access, or one without the lock, is not convicted")
}

// use reports whether an access was invoked for certain while its owner was entitled to believe that it held the lock; and
// whether it was invoked for certain after that, which is told only of an owner that acquired once.
func (o *Opinion) use(a *operation) (within, late bool) {
	acquires := 0
	var grant *operation
	for i := range o.ops {
		g := &o.ops[i]
		switch {
		case g.Op != history.Acquire || g.Lock != a.Lock:
		case g.Owner == a.Owner:
			if acquires++; g.kind == history.OK && g.last < a.first {
				grant = g
			}
		case a.unnamed() && g.Process == a.Process:
			acquires++ // it may belong to that hold of its process
		}
	}
	if grant == nil {
		return false, false
	}
	least, most := grant.ends, grant.ends
	// ended is whether a release, a notice or a refusal came no later than the access, and over whether it came before it
	// and nothing prolonged the belief.
	ended, over, once := false, false, acquires == 1
	for _, e := range o.ops {
		if e.Lock != a.Lock || e.Owner != a.Owner || e.last < grant.first || e.Time > a.Time {
			continue
		}
		another := e.Mode != grant.Mode || e.first < grant.last // it may be of another grant
		switch {
		case e.is(history.Extend, history.OK) && e.complete <= a.Time:
			least, most = min(least, e.ends), max(most, e.ends)
			over, once = false, false // it may be believed again
		case e.is(history.Extend, history.Fail):
			ended, over, once = true, over || e.complete < a.Time, once && !another && e.Permits <= 1
		case e.Op == history.Release || e.Op == history.Lost:
			ended, over, once = true, e.Time < a.Time, once && !another && (e.Permits == 0 || e.Permits == grant.Amount())
		}
	}
	return !ended && a.Time <= least, once && a.Time > grant.complete && (over || a.Time > most)
}

// withoutLock reports whether an access was made for certain by an owner that had never asked for the lock successfully,
// while another one held it for certain.
func (o *Opinion) withoutLock(a *operation) bool {
	return !a.unnamed() && slices.ContainsFunc(o.Locks, func(l *Lock) bool {
		return l.Name == a.Lock && !l.shared() && len(l.Doubts) == 0 && !slices.ContainsFunc(l.ops, func(g operation) bool {
			return g.granted() && (g.Owner == a.Owner || g.Process == a.Process)
		}) && slices.ContainsFunc(l.grants, func(g *operation) bool {
			return g.complete < a.Time && l.untouched(g) > a.complete
		})
	})
}

// resource compares what is said of the protected resource.
func (c *comparison) resource() {
	f := c.report["protected-resource"]
	// What a version is older than can be told where all outcomes are known.
	unsure := slices.ContainsFunc(c.ops, func(a operation) bool { return a.is(history.Access, history.Info) })
	stale, lost, perhaps, twice := false, false, false, false
	done := c.accessed()
	for i, a := range done {
		for j, b := range done {
			if i == j || cmp.Or(a.Resource, "\x00"+a.Lock) != cmp.Or(b.Resource, "\x00"+b.Lock) {
				continue
			}
			before := a.complete < b.Time
			stale = stale || before && a.Token > b.Token && b.Token > 0
			ra, wa, isA := strings.Cut(a.Value, ">")
			rb, wb, isB := strings.Cut(b.Value, ">")
			if isA && isB {
				twice = twice || wa == wb
				lost = lost || ra == rb || before && older(slices.Delete(slices.Clone(done), j, j+1), rb, wa)
				perhaps = perhaps || a.last < b.first && rb != wa && !older(done, wa, rb)
			}
		}
	}
	c.alarm(f.Verdict == invalid && !stale && !lost && !perhaps, "protected-resource", "nothing was lost and nothing is stale")
	c.miss(f.Verdict != invalid && (stale || lost && !twice && !unsure), "protected-resource", "what was lost or is stale is not convicted", f)
}

// older reports whether the version is known to be older than the other: a chain of accesses leads from it to the other,
// each of which read what the one before it wrote.
func older(done []operation, version, than string) bool {
	seen := map[string]bool{}
	for next := []string{version}; len(next) > 0; next = next[1:] {
		for _, a := range done {
			if read, wrote, _ := strings.Cut(a.Value, ">"); read == next[0] && !seen[wrote] {
				seen[wrote] = true
				next = append(next, wrote)
			}
		}
	}
	return seen[than]
}
