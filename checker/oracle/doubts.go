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
		if o.Op.OfHolder() && doubtful(spec, o, ops) {
			found[o.Owner] = true
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

// doubtful reports whether an operation is a reason to doubt the account of its owner, beside what else its owner did.
func doubtful(spec history.Event, x *operation, ops []operation) bool {
	semaphore, mode := spec.Kind == history.KindSemaphore, modeOf(spec, x, ops)
	takes := func(o *operation) bool { return o.Op == history.Acquire || o.Op == history.Release }
	prolonged, sum := 0, 0                                                   // how many leases were set at the same time as that of x; of the sizes
	disorder := false                                                        // it overlaps others in a way that hides their order, or its outcome was not known when its owner went on
	over, more := false, false                                               // the lease may have run out, and something is confirmed later
	var sizes []int                                                          // of the grants that its owner had asked for when x was answered
	late, gone, vague, reading, writing := false, false, false, false, false // what may have become of those, and their modes
	for i := range ops {
		y := &ops[i]
		if y.Owner != x.Owner || !y.Op.OfHolder() {
			continue
		}
		end, another := earliestEnd(spec, y, ops), y.first != x.first
		disorder = disorder || another && x.kind == history.Info && (y.granted() || y.confirmed()) && x.first < y.last
		if another && modeOf(spec, y, ops) == mode {
			over = over || y.prolongs() && y.kind != history.Fail && y.first < x.last && end <= x.complete
			more = more || y.confirmed() && y.last > x.first
			if x.first < y.last && y.first < x.last { // one that ended info was under way until its completion
				disorder = disorder || x.Op == history.Extend && y.granted() || takes(x) && takes(y) && (!semaphore || x.Op == history.Release)
				if x.prolongs() && y.prolongs() {
					prolonged++
				}
			}
		}
		if y.first >= x.last {
			continue
		}
		if y.granted() {
			sum += y.Amount()
			sizes, reading, writing = append(sizes, y.Amount()), reading || y.Mode == history.Read, writing || y.Mode != history.Read
		}
		gone = gone || y.granted() && y.kind == history.Info || y.prolongs() && y.kind != history.Fail && end <= x.Time
		late = late || (y.granted() || y.is(history.Extend, history.OK)) && y.complete >= end
		vague = vague || another && y.is(history.Release, history.Info)
	}
	several := len(sizes) > 1
	unlike := func(size int) bool { return size != sizes[0] || x.Permits > 0 && x.Permits%size != 0 }
	switch {
	case disorder || prolonged > 1, x.granted() && (spec.Reentrant || mode == history.Read) && over && more && !semaphore,
		spec.Kind == history.KindRW && x.Op != history.Acquire && x.Mode == "" && reading && writing:
		return true
	case !semaphore || x.Op == history.Acquire:
		return false
	case x.kind == history.Fail:
		return several && x.Permits > 1
	case x.Op == history.Extend:
		return several
	default:
		return several && (x.kind == history.OK && (late || vague) || x.kind == history.Info && x.Permits > 1 && (gone || vague)) ||
			x.Permits <= sum && slices.ContainsFunc(sizes, unlike)
	}
}

// earliestEnd is that of the lease that an operation set, as far as it can be told without knowing what is part of its grant.
func earliestEnd(spec history.Event, o *operation, ops []operation) time.Duration {
	least := o.ends
	if least != never {
		least -= spec.Drift
	}
	for _, c := range ops {
		if c.Op == history.Lost && c.Owner == o.Owner || c.Op == history.Crash && o.ends == never {
			least = min(least, c.gone())
		}
	}
	return least
}
