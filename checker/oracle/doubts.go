package oracle

import (
	"slices"
	"time"

	"github.com/lockchaos/lockchaos/history"
)

// doubts are the owners of a lock whose account may not be told, by the reasons that the documents list. Where the words of
// a reason can be read in two ways, the wider one counts: it is what a verdict may be unknown for.
func doubts(spec history.Event, ops []operation) map[string]bool {
	found := make(map[string]bool)
	for i := range ops {
		o := &ops[i]
		for j := range ops {
			if renamed(o, &ops[j], ops) {
				found[o.Owner], found[ops[j].Owner] = true, true
			}
		}
		if o.Op.OfHolder() && !found[o.Owner] {
			a := account{spec, ops, slices.DeleteFunc(slices.Clone(ops), func(other operation) bool { return other.Owner != o.Owner || !other.Op.OfHolder() })}
			if a.besideOthers(o) || a.grantedAgain(o) || a.severalGrants(o) || a.noMode(o) {
				found[o.Owner] = true
			}
		}
	}
	return found
}

// renamed reports whether two owners that are named after their processes may be one client: an operation of the first
// ended info, and one of the second, whose process began later, may be about what the first one held.
func renamed(x, y *operation, ops []operation) bool {
	return x.unnamed() && y.unnamed() && !single(x.Op) && y.Op != history.Crash && x.kind == history.Info && x.complete != never && y.kind != history.Fail &&
		!slices.ContainsFunc(ops, func(o operation) bool { return o.Process == y.Process && o.first <= x.last })
}

// An account is what one owner did with one lock.
type account struct {
	spec     history.Event
	all, ops []operation
}

func (a *account) mode(o *operation) mode { return modeOf(a.spec, o, a.all) }

// besideOthers reports whether an operation overlaps others of its owner in a way that hides their order; or is of an
// owner that is used again after it, though its outcome is not known.
func (a *account) besideOthers(x *operation) bool {
	takes := func(o *operation) bool { return o.Op == history.Acquire || o.Op == history.Release }
	prolong := 0
	return slices.ContainsFunc(a.ops, func(y operation) bool {
		if x.kind == history.Info && (y.granted() || y.confirmed()) && x.first != y.first && x.first < y.last {
			return true
		}
		// One that ended info was under way until its completion.
		if x.first == y.first || x.first >= y.last || y.first >= x.last || a.mode(x) != a.mode(&y) {
			return false
		}
		if x.prolongs() && y.prolongs() {
			prolong++
		}
		return prolong == 2 || x.Op == history.Extend && y.granted() ||
			takes(x) && takes(&y) && (a.spec.Kind != history.KindSemaphore || x.Op == history.Release)
	})
}

// end is the earliest end of the lease that an operation set, as far as it can be told without knowing what is part of its grant.
func (a *account) end(o *operation) time.Duration {
	least := o.ends
	if least != never {
		least -= a.spec.Drift
	}
	for _, c := range a.all {
		if c.Op == history.Lost && c.Owner == o.Owner || c.Op == history.Crash && o.ends == never {
			least = min(least, c.gone())
		}
	}
	return least
}

// grantedAgain reports whether an acquire was granted again when the lease may have run out, and more was confirmed.
func (a *account) grantedAgain(again *operation) bool {
	mode, over, more := a.mode(again), false, false
	for _, o := range a.ops {
		if o.first != again.first && a.mode(&o) == mode {
			over = over || o.prolongs() && o.kind != history.Fail && o.first < again.last && a.end(&o) <= again.complete
			more = more || o.confirmed() && o.last > again.first
		}
	}
	return over && more && again.granted() && (a.spec.Reentrant || mode == reads) && mode != permits
}

// severalGrants is what can't be told of the grants of a semaphore.
func (a *account) severalGrants(o *operation) bool {
	if a.spec.Kind != history.KindSemaphore || o.Op == history.Acquire {
		return false
	}
	var sizes []int
	sum, late, released, gone := 0, false, false, false
	for _, g := range a.ops {
		if g.first >= o.last {
			continue
		}
		if g.granted() {
			sizes, sum, gone = append(sizes, g.Amount()), sum+g.Amount(), gone || g.kind == history.Info
		}
		gone = gone || g.prolongs() && g.kind != history.Fail && a.end(&g) <= o.Time
		late = late || (g.granted() || g.is(history.Extend, history.OK)) && g.complete >= a.end(&g)
		released = released || g.first != o.first && g.is(history.Release, history.Info)
	}
	several := len(sizes) > 1
	switch {
	case o.kind == history.Fail:
		return several && o.Permits > 1
	case o.Op == history.Extend:
		return several
	case several && (o.kind == history.OK && (late || released) || o.kind == history.Info && o.Permits > 1 && (gone || released)):
		return true
	default:
		return o.Permits <= sum && slices.ContainsFunc(sizes, func(size int) bool {
			return size != sizes[0] || o.Permits > 0 && o.Permits%size != 0
		})
	}
}

// noMode is a release, extend or lost without a mode, of an owner that had asked both to read and to write when it was answered.
func (a *account) noMode(o *operation) bool {
	asked := func(read bool) bool {
		return slices.ContainsFunc(a.ops, func(g operation) bool {
			return g.granted() && g.first < o.last && (g.Mode == history.Read) == read
		})
	}
	return a.spec.Kind == history.KindRW && o.Op != history.Acquire && o.Mode == "" && asked(true) && asked(false)
}
