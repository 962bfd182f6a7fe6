package oracle

import (
	"cmp"
	"slices"
	"strings"

	"github.com/lockchaos/lockchaos/history"
)

// accessed are the accesses that were answered ok.
func (o *Opinion) accessed() []operation {
	return slices.DeleteFunc(slices.Clone(o.ops), func(a operation) bool { return !a.is(history.Access, history.OK) })
}

// uses compares what is said of the use of a resource under a lock.
func (c *comparison) uses() {
	f := c.report["use-within-lease"]
	wrong, all := false, true
	for _, a := range c.accessed() {
		if a.Lock != "" {
			within, late := c.use(&a)
			all, wrong = all && within, wrong || late || !within && c.withoutLock(&a)
		}
	}
	c.alarm(f.Verdict == invalid && all, "use-within-lease", "no access was late")
	c.miss(f.Verdict == valid && wrong, "use-within-lease", "a late access, or one without the lock, is not convicted")
}

// use reports whether an access was invoked for certain while its owner was
// entitled to believe that it held the lock; and whether it was invoked for
// certain after that, which is told only of an owner that acquired once.
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
	// ended is whether a release, a notice or a refusal came no later than the
	// access, and over whether it came before it and nothing prolonged the belief.
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

// withoutLock reports whether an access was made for certain by an owner that had never
// asked for the lock successfully, while another one held it for certain.
func (o *Opinion) withoutLock(a *operation) bool {
	return !a.unnamed() && slices.ContainsFunc(o.Locks, func(l *Lock) bool {
		plain := l.Name == a.Lock && l.spec.Kind == "" && len(l.Doubts) == 0
		return plain && !slices.ContainsFunc(l.ops, func(g operation) bool {
			return g.granted() && (g.Owner == a.Owner || g.Process == a.Process)
		}) && slices.ContainsFunc(l.grants, func(g *operation) bool {
			return g.complete < a.Time && l.untouched(g) > a.complete
		})
	})
}

// resource compares what is said of the protected resource.
func (c *comparison) resource() {
	f, is := c.report["protected-resource"]
	if !is {
		return
	}
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

// older reports whether the version is known to be older than the other: a chain
// of accesses leads from it to the other, each of which read what the one before
// it wrote.
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
