package oracle

import (
	"math"
	"time"

	"github.com/lockchaos/lockchaos/history"
)

// doubts are the owners of a lock whose account may not be told, with those of the
// reasons that the documents list which apply. Where the words of a reason can be read in
// two ways, the wider one counts: it is what a verdict may be unknown for.
func doubts(spec history.Event, ops []operation) map[string]string {
	found := make(map[string]string)
	byOwner := make(map[string][]*operation)
	for i := range ops {
		switch ops[i].op {
		case history.Acquire, history.Release, history.Extend, history.Lost:
			byOwner[ops[i].owner] = append(byOwner[ops[i].owner], &ops[i])
		default:
		}
	}
	for owner, mine := range byOwner {
		a := account{spec: spec, all: ops, ops: mine}
		for _, reason := range []struct {
			text string
			is   func() bool
		}{
			{"acquires and releases overlap", a.overlap},
			{"an extend overlaps an acquire", a.extendBesideAcquire},
			{"three extends or inner acquires overlap", a.threeOverlap},
			{"used again after an unknown outcome", a.usedAgain},
			{"granted again when its lease may have run out", a.grantedAgain},
			{"which of several grants is not told", a.severalGrants},
			{"a release, extend or lost without a mode", a.noMode},
		} {
			if reason.is() {
				found[owner] += "; " + reason.text
			}
		}
	}
	for _, pair := range renamed(ops) {
		for _, owner := range pair {
			found[owner] += "; perhaps one client under two names"
		}
	}
	return found
}

// renamed are the owners that are named after their processes and may be one client: an
// operation of the first ended info, and an operation of the second, whose process began
// later, may be about what the first one held.
func renamed(ops []operation) (pairs [][2]string) {
	ofProcess := func(o *operation) bool { return o.op != history.Crash && o.owner == processOwner(o.process) }
	began := func(process int) int {
		first := math.MaxInt
		for i := range ops {
			if ops[i].process == process {
				first = min(first, ops[i].first)
			}
		}
		return first
	}
	for i := range ops {
		for j := range ops {
			x, y := &ops[i], &ops[j]
			if ofProcess(x) && ofProcess(y) && x.kind == history.Info && x.complete != never && y.kind != history.Fail && began(y.process) > x.last {
				pairs = append(pairs, [2]string{x.owner, y.owner})
			}
		}
	}
	return pairs
}

// An account is what one owner did with one lock.
type account struct {
	spec history.Event
	all  []operation
	ops  []*operation
}

// overlaps reports whether two operations of an owner were under way at a time.
// One that ended info was, until its completion.
func overlaps(a, b *operation) bool { return a.first < b.last && b.first < a.last }

// pairs reports whether two different operations satisfy the condition.
func (a *account) pairs(is func(a, b *operation) bool) bool {
	for i, x := range a.ops {
		for j, y := range a.ops {
			if i != j && is(x, y) {
				return true
			}
		}
	}
	return false
}

func (a *account) semaphore() bool { return a.spec.Kind == history.KindSemaphore }

func (a *account) sameMode(x, y *operation) bool {
	return modeOf(a.spec, x, a.all) == modeOf(a.spec, y, a.all)
}

func granted(o *operation) bool { return o.op == history.Acquire && o.kind != history.Fail }

func (a *account) overlap() bool {
	return a.pairs(func(x, y *operation) bool {
		switch {
		case !overlaps(x, y) || !a.sameMode(x, y):
			return false
		case a.semaphore():
			return x.op == history.Release && (y.op == history.Release || y.op == history.Acquire)
		default:
			return (x.op == history.Acquire || x.op == history.Release) && (y.op == history.Acquire || y.op == history.Release)
		}
	})
}

func (a *account) extendBesideAcquire() bool {
	return a.pairs(func(x, y *operation) bool {
		return x.op == history.Extend && granted(y) && a.sameMode(x, y) && overlaps(x, y)
	})
}

func (a *account) threeOverlap() bool {
	prolongs := func(o *operation) bool { return o.op == history.Extend || granted(o) }
	for i, x := range a.ops {
		beside := 0
		for j, y := range a.ops {
			if i != j && prolongs(x) && prolongs(y) && a.sameMode(x, y) && overlaps(x, y) {
				beside++
			}
		}
		if beside >= 2 {
			return true
		}
	}
	return false
}

// usedAgain is a grant, or a confirmed release or extend, after an operation with
// an unknown outcome.
func (a *account) usedAgain() bool {
	return a.pairs(func(x, y *operation) bool {
		done := granted(y) || (y.op == history.Release || y.op == history.Extend) && y.kind == history.OK
		return x.kind == history.Info && done && x.first < y.last
	})
}

// end is the earliest end of the lease that an operation set, as far as it can
// be told without knowing what is part of its grant.
func (a *account) end(o *operation) time.Duration {
	least := o.promised()
	if least != never {
		least -= a.spec.Drift
	}
	for i := range a.all {
		c := &a.all[i]
		if c.op == history.Lost && c.owner == o.owner || c.op == history.Crash && o.promised() == never {
			least = min(least, c.invoke)
		}
	}
	return least
}

func (a *account) grantedAgain() bool {
	for _, again := range a.ops {
		mode := modeOf(a.spec, again, a.all)
		if !granted(again) || !a.spec.Reentrant && mode != reads || mode == permits {
			continue
		}
		over, more := false, false
		for _, o := range a.ops {
			if o == again || !a.sameMode(o, again) {
				continue
			}
			if (granted(o) || o.op == history.Extend && o.kind != history.Fail) && o.first < again.last &&
				a.end(o) <= again.complete {
				over = true
			}
			if (o.op == history.Release || o.op == history.Extend) && o.kind == history.OK && o.last > again.first {
				more = true
			}
		}
		if over && more {
			return true
		}
	}
	return false
}

// severalGrants is what can't be told of the grants of a semaphore.
func (a *account) severalGrants() bool {
	if !a.semaphore() {
		return false
	}
	for _, o := range a.ops {
		var sizes []int
		sum, late, released, gone := 0, false, false, false
		for _, g := range a.ops {
			if granted(g) && g.first < o.last {
				sizes = append(sizes, max(1, g.permits))
				sum += max(1, g.permits)
				gone = gone || g.kind == history.Info
			}
			gives := granted(g) || g.op == history.Extend && g.kind != history.Fail // a lease
			gone = gone || gives && g.first < o.last && a.end(g) <= o.invoke
			sets := granted(g) || g.op == history.Extend && g.kind == history.OK
			late = late || sets && g.first < o.last && g.complete >= a.end(g)
			released = released || g != o && g.op == history.Release && g.kind == history.Info && g.first < o.last
		}
		several := len(sizes) > 1
		switch {
		case o.op == history.Extend && o.kind != history.Fail && several:
			return true
		case (o.op == history.Release || o.op == history.Extend) && o.kind == history.Fail && o.permits > 1 && several:
			return true
		case o.op == history.Release && o.kind == history.OK && several && (late || released):
			return true
		case o.op == history.Release && o.kind == history.Info && o.permits > 1 && several && (gone || released):
			return true
		case o.op == history.Release && o.kind != history.Fail && o.permits <= sum:
			for _, size := range sizes {
				if size != sizes[0] || o.permits > 0 && (o.permits < size || o.permits%size != 0) {
					return true
				}
			}
		}
	}
	return false
}

// noMode is a release, extend or lost without a mode, of an owner that had asked
// both to read and to write when it was answered.
func (a *account) noMode() bool {
	if a.spec.Kind != history.KindRW {
		return false
	}
	for _, o := range a.ops {
		if o.op == history.Acquire || o.mode == history.Read || o.mode == history.Write || o.mode == history.Exclusive {
			continue
		}
		read, write := false, false
		for _, g := range a.ops {
			if granted(g) && g.first < o.last {
				read = read || g.mode == history.Read
				write = write || g.mode != history.Read
			}
		}
		if read && write {
			return true
		}
	}
	return false
}
