package checker

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
)

// ProtectedResource is the checker of "protected-resource": what the lock was
// there for did not happen to the resource itself. An access is of its
// Resource, or of its Lock if it names none.
//
// Two accesses that read the same version and both wrote lost one of the writes (lost-update); so did one that was
// answered before another was invoked that read an older version. An access that was accepted although it was invoked
// after one with a greater token had been is a stale-access. One with an unknown outcome excuses what may have read it.
func ProtectedResource() Checker {
	return Checker{
		name: "protected-resource", engine: "pairs in order of time",
		judge: func(_ context.Context, ev *evidence, _ []*holding.Lock, f *findings) {
			protectedResource(ev, f)
			var held []string
			if n := f.counts["updates"]; n > 0 {
				held = append(held, "no update was lost in "+say.Count(n, "read-modify-write"))
			}
			if n := f.counts["tokens"]; n > 0 {
				held = append(held, "none of "+say.Count(n, "access")+" with a token came too late")
			}
			f.valid = strings.Join(held, ", and ")
		},
	}
}

// A guarded is all that is known of one resource.
type guarded struct {
	*holding.Record
	name    string
	updates []*holding.Op // in order of their answers
	tokens  []*holding.Op
	unknown time.Duration // when the first access was sent that may have written anything; Never if there is none
}

func protectedResource(ev *evidence, f *findings) {
	resources := map[int32]*guarded{}
	var order []*guarded
	for op := range ev.Ops() {
		if op.Verb != holding.Access || op.Failed() {
			continue
		}
		name := cmp.Or(op.Resource, op.Lock)
		g := resources[name]
		if g == nil {
			g = &guarded{Record: ev.Record, name: ev.Name(name), unknown: history.Never}
			resources[name] = g
			order = append(order, g)
		}
		if op.Unknown() {
			g.unknown = min(g.unknown, op.Invoke.Time)
			continue
		}
		if op.Written != 0 {
			g.updates = append(g.updates, op)
			f.counts["updates"]++
		}
		if op.Token != 0 {
			g.tokens = append(g.tokens, op)
			f.counts["tokens"]++
		}
	}
	for _, g := range order {
		slices.SortFunc(g.updates, func(a, b *holding.Op) int { return cmp.Compare(a.Complete.Index, b.Complete.Index) })
		f.add(g.lostUpdates()...)
		f.add(g.staleAccesses()...)
	}
}

// lostUpdates are the updates that show that they, or others, were lost.
func (g *guarded) lostUpdates() (found []Violation) {
	writers, readers := map[int32][]*holding.Op{}, map[int32][]*holding.Op{}
	for _, u := range g.updates {
		writers[u.Written] = append(writers[u.Written], u)
		readers[u.Read] = append(readers[u.Read], u)
	}
	seen := map[int32]int{}
	written := map[*holding.Op]time.Duration{} // when what it read had been written, where that is told
	for _, u := range g.updates {
		wrote := holding.Filter(writers[u.Read], func(w *holding.Op) bool { return w.Invoke.Time <= u.Complete.Time }) // else it can't have read it
		if len(wrote) == 0 && g.unknown <= u.Complete.Time {
			continue // which write it read is not told
		}
		if seen[u.Read]++; seen[u.Read] > chances(wrote, readers[u.Read][0]) {
			found = append(found, g.readTwice(readers[u.Read][seen[u.Read]-2], u))
			continue
		}
		switch len(wrote) {
		case 0:
			written[u] = -1
		case 1:
			written[u] = wrote[0].Complete.Time
		default: // nor here
		}
	}
	later := func(a, b *holding.Op) bool { return a.Invoke.Time >= b.Invoke.Time }
	answeredBefore(g.updates, later, func(u, unseen *holding.Op) {
		if since, told := written[u]; told && unseen.Invoke.Time > since && unseen.Written != u.Read {
			found = append(found, g.unseen(unseen, u))
		}
	})
	return found
}

// answeredBefore calls look with each operation before whose invoke others were answered, and the greatest of those.
func answeredBefore(answered []*holding.Op, greater func(a, b *holding.Op) bool, look func(op, greatest *holding.Op)) {
	var greatest *holding.Op
	began, ended := func(op *holding.Op) time.Duration { return op.Invoke.Time }, func(op *holding.Op) time.Duration { return op.Complete.Time }
	inTurn(answered, began, ended, func(op *holding.Op) {
		if greatest == nil || greater(op, greatest) {
			greatest = op
		}
	}, func(op *holding.Op) {
		if greatest != nil {
			look(op, greatest)
		}
	})
}

// chances is how often a version was there to be read: as often as it was written,
// and at the beginning, if it was read before it was written.
func chances(writers []*holding.Op, first *holding.Op) int {
	if slices.ContainsFunc(writers, func(w *holding.Op) bool { return first.Complete.Time > w.Invoke.Time }) {
		return len(writers)
	}
	return len(writers) + 1
}

// by is the violation that an update or access is.
func (g *guarded) by(op *holding.Op, kind string, events []int64, format string, args ...any) Violation {
	v := violation(kind, g.Name(op.Lock), op.Span(), events, format, args...)
	v.Resource = g.name
	return v
}

func (g *guarded) readTwice(first, second *holding.Op) Violation {
	return g.by(second, LostUpdate, events(first.Complete.Index, second.Complete.Index),
		"%s and %s both read version %s of %q and wrote %s and %s (answered at %s and %s): one of the two writes is lost",
		caller(g.Record, first), caller(g.Record, second), g.Name(first.Read), g.name, g.Name(first.Written), g.Name(second.Written),
		seconds(first.Complete.Time), seconds(second.Complete.Time))
}

func (g *guarded) unseen(lost, by *holding.Op) Violation {
	return g.by(by, LostUpdate, events(lost.Complete.Index, by.Invoke.Index, by.Complete.Index),
		"%s wrote version %s of %q by %s, but %s, which began at %s, read the older version %s and wrote %s over it: the write is lost",
		caller(g.Record, lost), g.Name(lost.Written), g.name, seconds(lost.Complete.Time),
		caller(g.Record, by), seconds(by.Invoke.Time), g.Name(by.Read), g.Name(by.Written))
}

// staleAccesses are the accesses that were sent after one with a greater token was accepted.
func (g *guarded) staleAccesses() (found []Violation) {
	greater := func(a, b *holding.Op) bool { return a.Token > b.Token }
	answeredBefore(g.tokens, greater, func(op, newest *holding.Op) {
		if greater(newest, op) {
			found = append(found, g.by(op, StaleAccess, events(newest.Complete.Index, op.Invoke.Index, op.Complete.Index),
				"%q accepted token %d of %s at %s, %s after it had accepted token %d of %s", g.name, op.Token, caller(g.Record, op), seconds(op.Complete.Time),
				say.Span(max(op.Complete.Time-newest.Complete.Time, 0)), newest.Token, caller(g.Record, newest)))
		}
	})
	return found
}
