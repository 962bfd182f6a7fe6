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
	report.explain(ctx, holding.RecordOf(h), h)
}

// explain is [Explain] of a record. Without its history, the events are as the record has them.
func (r *Report) explain(ctx context.Context, record *holding.Record, h *history.History) {
	for i := range r.Results {
		result := &r.Results[i]
		for _, c := range Standard() {
			for j := range result.Violations[:min(len(result.Violations), Explained)] {
				if v := &result.Violations[j]; c.name == result.Name {
					v.Minimal = c.minimal(ctx, record, h, *v)
				}
			}
		}
	}
}

func (c Checker) minimal(ctx context.Context, r *holding.Record, h *history.History, v Violation) []history.Event {
	tries := 0
	shows := func(list [][]history.Event) bool { // alone the same violation
		if tries++; tries > explainTries || len(list) == 0 || ctx.Err() != nil {
			return false
		}
		f := c.find(ctx, evidenceOf(&history.History{Events: joined(list)}))
		return slices.ContainsFunc(f.violations, func(o Violation) bool { return o.Kind == v.Kind && slices.Equal(o.Events, v.Events) })
	}
	owners, _ := parties(r, v)
	for _, with := range []func(*holding.Op) bool{
		func(op *holding.Op) bool { return owners[op.Owner] },
		func(*holding.Op) bool { return true },
	} {
		list := exhibits(r, h, v, with)
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

// parties are the owners and processes of the operations that prove a violation.
func parties(r *holding.Record, v Violation) (owners map[int32]bool, processes map[int]bool) {
	owners, processes = map[int32]bool{}, map[int]bool{}
	for op := range r.Ops() {
		if v.names(op) {
			owners[op.Owner], processes[op.Process] = true, true
		}
	}
	return owners, processes
}

// names reports whether an event of an operation proves the violation.
func (v *Violation) names(op *holding.Op) bool {
	return slices.Contains(v.Events, op.Invoke.Index) || slices.Contains(v.Events, op.Complete.Index)
}

// exhibits are what a violation may depend on, each an operation or a single event that is left out as a whole: of what was done with its lock and its resource, the operations that prove
// it, and those with it.
func exhibits(r *holding.Record, h *history.History, v Violation, with func(*holding.Op) bool) [][]history.Event {
	processes := map[int]bool{}
	list := r.Parts(func(op *holding.Op) bool {
		is := op.Verb == holding.Access && v.Resource != "" && r.Name(cmp.Or(op.Resource, op.Lock)) == v.Resource || op.Verb != holding.Access && r.Name(op.Lock) == v.Lock
		if is = v.names(op) || is && with(op); is {
			processes[op.Process] = true
		}
		return is
	})
	for process, crashes := range r.Crashes {
		for _, c := range crashes {
			if processes[process] || v.Kind == Stuck { // of any process, until the end of the history
				list = append(list, []history.Event{{Index: c.Index, Time: c.Time, Process: process, From: c.From, Type: history.Info, Op: history.Crash}})
			}
		}
	}
	if l := r.Lock(v.Lock); l != nil && len(l.Declared) > 0 {
		list = append(list, slices.Clone(l.Declared))
	}
	for _, e := range r.Faults {
		if slices.Contains(v.Events, e.Index) || v.Kind == Stuck && e.Op != history.Observe {
			list = append(list, []history.Event{e})
		}
	}
	slices.SortFunc(list, func(a, b []history.Event) int { return cmp.Compare(a[0].Index, b[0].Index) })
	for _, part := range list {
		for i := range part {
			if h != nil {
				part[i] = h.Events[part[i].Index]
			}
		}
	}
	return list
}

func joined(list [][]history.Event) []history.Event {
	all := slices.Concat(list...)
	slices.SortStableFunc(all, func(a, b history.Event) int { return cmp.Compare(a.Index, b.Index) })
	return all
}
