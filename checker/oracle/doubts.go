package oracle

import (
	"math"
	"slices"
	"time"

	"github.com/lockchaos/lockchaos/history"
)

// doubts are the owners of a lock whose account may not be told, with those of the
// reasons that the documents list which apply. Where the words of a reason can be read in
// two ways, the wider one counts: it is what a verdict may be unknown for.
func doubts(spec history.Event, ops []operation) map[string]string {
	found := make(map[string]string)
	accounts := make(map[string]*account)
	for i := range ops {
		if o := &ops[i]; o.Op.OfHolder() {
			if accounts[o.Owner] == nil {
				accounts[o.Owner] = &account{spec: spec, all: ops}
			}
			accounts[o.Owner].ops = append(accounts[o.Owner].ops, o)
		}
	}
	for owner, a := range accounts {
		for reason, is := range map[string]func() bool{
			"acquires and releases overlap":                 a.overlap,
			"an extend overlaps an acquire":                 a.extendBesideAcquire,
			"three extends or inner acquires overlap":       a.threeOverlap,
			"used again after an unknown outcome":           a.usedAgain,
			"granted again when its lease may have run out": a.grantedAgain,
			"which of several grants is not told":           a.severalGrants,
			"a release, extend or lost without a mode":      a.noMode,
		} {
			if is() {
				found[owner] += "; " + reason
			}
		}
	}
	for i := range ops {
		for j := range ops {
			if x, y := &ops[i], &ops[j]; renamed(x, y, ops) {
				found[x.Owner] += "; perhaps one client under two names"
				found[y.Owner] += "; perhaps one client under two names"
			}
		}
	}
	return found
}

// renamed reports whether two owners that are named after their processes may be one client: an
// operation of the first ended info, and an operation of the second, whose process began
// later, may be about what the first one held.
func renamed(x, y *operation, ops []operation) bool {
	if !x.unnamed() || !y.unnamed() || single(x.Op) || y.Op == history.Crash || x.kind != history.Info || x.complete == never || y.kind == history.Fail {
		return false
	}
	began := math.MaxInt
	for _, o := range ops {
		if o.Process == y.Process {
			began = min(began, o.first)
		}
	}
	return began > x.last
}

// An account is what one owner did with one lock.
type account struct {
	spec history.Event
	all  []operation
	ops  []*operation
}

func (a *account) semaphore() bool { return a.spec.Kind == history.KindSemaphore }

// beside reports whether two operations in one mode were under way at a time. One that ended info
// was, until its completion.
func (a *account) beside(x, y *operation) bool {
	return x != y && x.first < y.last && y.first < x.last && modeOf(a.spec, x, a.all) == modeOf(a.spec, y, a.all)
}

// pairs reports whether two different operations satisfy the condition.
func (a *account) pairs(is func(x, y *operation) bool) bool {
	return slices.ContainsFunc(a.ops, func(x *operation) bool {
		return slices.ContainsFunc(a.ops, func(y *operation) bool { return x != y && is(x, y) })
	})
}

func (a *account) overlap() bool {
	return a.pairs(func(x, y *operation) bool {
		takes := func(o *operation) bool { return o.Op == history.Acquire || o.Op == history.Release }
		return a.beside(x, y) && takes(x) && takes(y) && (!a.semaphore() || x.Op == history.Release)
	})
}

func (a *account) extendBesideAcquire() bool {
	return a.pairs(func(x, y *operation) bool { return x.Op == history.Extend && y.granted() && a.beside(x, y) })
}

func (a *account) threeOverlap() bool {
	return slices.ContainsFunc(a.ops, func(x *operation) bool {
		prolong := 0
		for _, y := range a.ops {
			if y.prolongs() && a.beside(x, y) {
				prolong++
			}
		}
		return x.prolongs() && prolong >= 2
	})
}

func (o *operation) prolongs() bool { return o.Op == history.Extend || o.granted() }

// usedAgain is a grant, or a confirmed release or extend, after an operation with
// an unknown outcome.
func (a *account) usedAgain() bool {
	return a.pairs(func(x, y *operation) bool {
		done := y.granted() || y.is(history.Release, history.OK) || y.is(history.Extend, history.OK)
		return x.kind == history.Info && done && x.first < y.last
	})
}

// end is the earliest end of the lease that an operation set, as far as it can
// be told without knowing what is part of its grant.
func (a *account) end(o *operation) time.Duration {
	least := o.ends
	if least != never {
		least -= a.spec.Drift
	}
	for _, c := range a.all {
		if c.Op == history.Lost && c.Owner == o.Owner || c.Op == history.Crash && o.ends == never {
			least = min(least, c.Time)
		}
	}
	return least
}

func (a *account) grantedAgain() bool {
	for _, again := range a.ops {
		mode := modeOf(a.spec, again, a.all)
		if !again.granted() || !a.spec.Reentrant && mode != reads || mode == permits {
			continue
		}
		over, more := false, false
		for _, o := range a.ops {
			if o == again || modeOf(a.spec, o, a.all) != mode {
				continue
			}
			over = over || o.prolongs() && o.kind != history.Fail && o.first < again.last && a.end(o) <= again.complete
			more = more || (o.is(history.Release, history.OK) || o.is(history.Extend, history.OK)) && o.last > again.first
		}
		if over && more {
			return true
		}
	}
	return false
}

// severalGrants is what can't be told of the grants of a semaphore.
func (a *account) severalGrants() bool {
	return a.semaphore() && slices.ContainsFunc(a.ops, func(o *operation) bool {
		var sizes []int
		sum, late, released, gone := 0, false, false, false
		for _, g := range a.ops {
			if g.first >= o.last {
				continue
			}
			if g.granted() {
				sizes, sum = append(sizes, g.Amount()), sum+g.Amount()
				gone = gone || g.kind == history.Info
			}
			gone = gone || g.prolongs() && g.kind != history.Fail && a.end(g) <= o.Time
			late = late || (g.granted() || g.is(history.Extend, history.OK)) && g.complete >= a.end(g)
			released = released || g != o && g.is(history.Release, history.Info)
		}
		if len(sizes) > 1 {
			switch {
			case o.Op == history.Extend && o.kind != history.Fail,
				o.Op != history.Acquire && o.kind == history.Fail && o.Permits > 1,
				o.is(history.Release, history.OK) && (late || released),
				o.is(history.Release, history.Info) && o.Permits > 1 && (gone || released):
				return true
			}
		}
		return o.Op == history.Release && o.kind != history.Fail && o.Permits <= sum && slices.ContainsFunc(sizes, func(size int) bool {
			return size != sizes[0] || o.Permits > 0 && o.Permits%size != 0
		})
	})
}

// noMode is a release, extend or lost without a mode, of an owner that had asked
// both to read and to write when it was answered.
func (a *account) noMode() bool {
	return a.spec.Kind == history.KindRW && slices.ContainsFunc(a.ops, func(o *operation) bool {
		asked := func(read bool) bool {
			return slices.ContainsFunc(a.ops, func(g *operation) bool {
				return g.granted() && g.first < o.last && (g.Mode == history.Read) == read
			})
		}
		return o.Op != history.Acquire && o.Mode == "" && asked(true) && asked(false)
	})
}
