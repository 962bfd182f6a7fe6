package checker

import (
	"cmp"
	"context"
	"slices"

	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
)

const (
	// Explained is how many violations of each property are explained.
	Explained = 3
	// explainTries is how many parts of a history are judged at the most, to
	// find a small one.
	explainTries = 400
)

// Explain fills in the Minimal of the first [Explained] violations of each
// property in a report on the history: a part of it, whole operations only,
// that on its own still shows the same violation, and shows it no more if any
// operation is left out. (Not every smaller part is tried where there are very
// many operations.) The events have the indices that they have in the history.
//
// An operation is left out only if what remains still shows the very violation,
// by the same events: to leave out a release, say, makes another story.
func Explain(ctx context.Context, h *history.History, report *Report) {
	report.explain(ctx, func(Violation) *history.History { return h })
}

// explain fills in the Minimal of violations in parts of a history.
func (r *Report) explain(ctx context.Context, part func(Violation) *history.History) {
	for i := range r.Results {
		result := &r.Results[i]
		for _, c := range Standard() {
			for j := range result.Violations[:min(len(result.Violations), Explained)] {
				if v := &result.Violations[j]; c.name == result.Name {
					v.Minimal = c.minimal(ctx, part(*v), *v)
				}
			}
		}
	}
}

// concerns are the part of a record that a violation can depend on.
func concerns(r *holding.Record) func(Violation) *history.History {
	return func(v Violation) *history.History {
		return r.History(func(op *holding.Op) bool {
			return r.Name(op.Lock) == v.Lock || v.Resource != "" && r.Name(op.Resource) == v.Resource || slices.Contains(v.Events, op.Complete.Index)
		})
	}
}

// An exhibit is evidence that is left out as a whole: an operation, or a single event.
type exhibit []history.Event

func (c Checker) minimal(ctx context.Context, h *history.History, v Violation) []history.Event {
	tries := 0
	shows := func(list []exhibit) bool { // alone the same violation
		if tries++; tries > explainTries || len(list) == 0 || ctx.Err() != nil {
			return false
		}
		f := c.find(ctx, evidenceOf(&history.History{Events: joined(list)}))
		return slices.ContainsFunc(f.violations, func(o Violation) bool { return o.Kind == v.Kind && slices.Equal(o.Events, v.Events) })
	}
	for _, ownersOnly := range []bool{true, false} {
		list := exhibits(h, v, ownersOnly)
		if !shows(list) {
			continue
		}
		// Ever smaller stretches are left out, from the end on.
		for size := max(1, len(list)/2); ; size = (size + 1) / 2 {
			for again := true; again; {
				again = false
				for to := len(list); to > 0; to -= size {
					rest := slices.Concat(list[:max(0, to-size)], list[to:])
					if shows(rest) {
						list = rest
						again = size == 1
					}
				}
			}
			if size == 1 || tries > explainTries {
				return joined(list)
			}
		}
	}
	return nil
}

// exhibits are what a violation may depend on: what its owners did with the
// lock and its resource, or what any owner did.
func exhibits(h *history.History, v Violation, ownersOnly bool) []exhibit {
	owners := map[string]bool{}
	named := func(e history.Event) bool { return slices.Contains(v.Events, e.Index) }
	for _, e := range filter(h.Events, named) {
		owners[e.LockOwner()] = true
	}
	concerns := func(e *history.Event) bool {
		switch {
		case e.Op == history.Crash:
			return true
		case e.Op == history.Inject || e.Op == history.Heal:
			return v.Kind == Stuck
		case ownersOnly && !owners[e.LockOwner()] && e.Op != history.Declare:
			return false
		case e.Op == history.Access:
			return v.Resource != "" && cmp.Or(e.Resource, e.Lock) == v.Resource
		default:
			return e.Lock == v.Lock && e.Op != history.Observe
		}
	}
	var list []exhibit
	open, declared := map[int]int{}, map[string]int{} // where the operation of a process is, since its invoke, and what was declared of a lock
	for _, e := range h.Events {
		at, pair := open[e.Process]
		switch {
		case e.Op == history.Declare && e.From > 0:
			at, pair = declared[e.Lock], true
		case e.Op == history.Declare:
			declared[e.Lock] = len(list)
		case e.Process < 0, e.Op == history.Lost, e.Op == history.Crash:
			pair = false
		case e.Type == history.Invoke:
			open[e.Process], pair = len(list), false
		default:
			delete(open, e.Process)
		}
		if pair {
			list[at] = append(list[at], e)
		} else {
			list = append(list, exhibit{e})
		}
	}
	return slices.DeleteFunc(list, func(one exhibit) bool { return !concerns(&one[0]) && !slices.ContainsFunc(one, named) })
}

func joined(list []exhibit) []history.Event {
	all := slices.Concat(list...)
	slices.SortStableFunc(all, func(a, b history.Event) int { return cmp.Compare(a.Index, b.Index) })
	return all
}
