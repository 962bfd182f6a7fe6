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
			if p, ok := c.(*property); ok && p.name == result.Name {
				for j := range result.Violations[:min(len(result.Violations), Explained)] {
					v := &result.Violations[j]
					v.Minimal = p.minimal(ctx, part(*v), *v)
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

// A piece of evidence is left out as a whole: an operation, or a single event.
type exhibit []history.Event

func (p *property) minimal(ctx context.Context, h *history.History, v Violation) []history.Event {
	s := shrinking{property: p, violation: v}
	for _, candidates := range [][]exhibit{exhibits(h, v, true), exhibits(h, v, false)} {
		if s.shows(ctx, candidates) {
			return joined(s.shrink(ctx, candidates))
		}
	}
	return nil
}

// exhibits are what a violation may depend on: what its owners did with the
// lock and its resource, or what any owner did.
func exhibits(h *history.History, v Violation, ownersOnly bool) []exhibit {
	owners := map[string]bool{}
	for i := range h.Events {
		if e := &h.Events[i]; slices.Contains(v.Events, e.Index) {
			owners[e.LockOwner()] = true
		}
	}
	concerns := func(e *history.Event) bool {
		switch {
		case ownersOnly && !owners[e.LockOwner()] && e.Op != history.Declare:
			return false
		case e.Op == history.Access:
			return v.Resource != "" && cmp.Or(e.Resource, e.Lock) == v.Resource || slices.Contains(v.Events, e.Index)
		default:
			return e.Lock == v.Lock
		}
	}
	var list []exhibit
	ops := h.Operations()
	for i := range ops {
		op := &ops[i]
		if !concerns(op.Invoke) && !slices.Contains(v.Events, op.Complete.Index) {
			continue
		}
		one := exhibit{*op.Invoke}
		if op.Complete.Index >= 0 {
			one = append(one, *op.Complete)
		}
		list = append(list, one)
	}
	for i := range h.Events {
		switch e := &h.Events[i]; e.Op {
		case history.Declare, history.Lost:
			if concerns(e) {
				list = append(list, exhibit{*e})
			}
		case history.Crash:
			list = append(list, exhibit{*e})
		case history.Inject, history.Heal:
			if v.Kind == Stuck {
				list = append(list, exhibit{*e})
			}
		default:
		}
	}
	slices.SortStableFunc(list, func(a, b exhibit) int { return cmp.Compare(a[0].Index, b[0].Index) })
	return list
}

func joined(list []exhibit) []history.Event {
	var all []history.Event
	for _, one := range list {
		all = append(all, one...)
	}
	slices.SortStableFunc(all, func(a, b history.Event) int { return cmp.Compare(a.Index, b.Index) })
	return all
}

// A shrinking is the search for a small part of a history that shows one
// violation.
type shrinking struct {
	property  *property
	violation Violation
	tries     int
}

// shows reports whether the exhibits alone still show the violation.
func (s *shrinking) shows(ctx context.Context, list []exhibit) bool {
	if s.tries++; s.tries > explainTries || len(list) == 0 || ctx.Err() != nil {
		return false
	}
	f := s.property.find(ctx, evidenceOf(&history.History{Events: joined(list)}))
	return slices.ContainsFunc(f.violations, func(v Violation) bool {
		return v.Kind == s.violation.Kind && slices.Equal(v.Events, s.violation.Events)
	})
}

// shrink leaves out ever smaller stretches of the exhibits, from the end on.
func (s *shrinking) shrink(ctx context.Context, list []exhibit) []exhibit {
	for size := max(1, len(list)/2); ; size = (size + 1) / 2 {
		for again := true; again; {
			again = false
			for to := len(list); to > 0; to -= size {
				from := max(0, to-size)
				rest := slices.Concat(list[:from], list[to:])
				if s.shows(ctx, rest) {
					list = rest
					again = size == 1
				}
			}
		}
		if size == 1 || s.tries > explainTries {
			return list
		}
	}
}
