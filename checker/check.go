package checker

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lockchaos/lockchaos/workload/history"
)

// MaxListed is the most violations that a [Result] lists; its Total counts
// them all.
const MaxListed = 100

// Standard is every checker, the assumptions first.
func Standard() []Checker {
	return []Checker{
		Assumptions(),
		MutualExclusion(),
		Ownership(),
		UseWithinLease(),
		ProtectedResource(),
		FencingOrder(),
		Linearizability(),
	}
}

// Check judges the history with the checkers, or with those of [Standard] if
// none are given, in their order.
//
// A property that does not apply to the history is left out of the report: a
// checker with a method Applies(*history.History) bool is not run where that
// is false. (No token was seen: there is no fencing order to keep.)
//
// The report's verdict is the [Worst] of the results, so that nothing is Valid
// while the assumptions are Unknown; a violation stands whatever they are.
//
// Mutual exclusion and ownership are decided by a sweep and linearizability by
// a search, and both decide the same for one lock. Where they do not, the
// report carries a result named "engines-agree", which is Unknown: one of the
// two is wrong, and neither is to be trusted.
func Check(ctx context.Context, h *history.History, checkers ...Checker) Report {
	if len(checkers) == 0 {
		checkers = Standard()
	}
	ev := newEvidence(h)
	report := Report{}
	for _, c := range checkers {
		if !applies(c, ev) {
			continue
		}
		if p, ok := c.(*property); ok {
			report.Results = append(report.Results, p.run(ctx, ev))
		} else {
			report.Results = append(report.Results, c.Check(ctx, h))
		}
	}
	disagreement, differ := agreement(ev)
	if differ {
		report.Results = append(report.Results, disagreement)
	}
	report.Verdict = sum(report.Results, differ)
	return report
}

// sum is the verdict of several results. Where the engines differ, one of them
// is wrong, and what either says convicts nobody.
func sum(results []Result, differ bool) Verdict {
	var verdicts []Verdict
	for _, r := range results {
		if differ && (r.Name == "mutual-exclusion" || r.Name == "ownership" || r.Name == "linearizability") {
			continue
		}
		verdicts = append(verdicts, r.Verdict)
	}
	return Worst(verdicts...)
}

func applies(c Checker, ev *evidence) bool {
	switch c := c.(type) {
	case *property:
		return c.applies == nil || c.applies(ev)
	case interface {
		Applies(h *history.History) bool
	}:
		return c.Applies(ev.history)
	default:
		return true
	}
}

// A property is a Checker of this package: a name, an engine and a judge.
type property struct {
	name, engine string
	applies      func(*evidence) bool // nil: always
	judge        func(context.Context, *evidence) *findings
}

// Name is the property's name.
func (p *property) Name() string { return p.name }

// Check judges the history alone.
func (p *property) Check(ctx context.Context, h *history.History) Result {
	return p.run(ctx, newEvidence(h))
}

// Applies reports whether the history has anything that the property is about.
func (p *property) Applies(h *history.History) bool { return applies(p, newEvidence(h)) }

func (p *property) run(ctx context.Context, ev *evidence) Result {
	began := time.Now()
	var f *findings
	switch {
	case ctx.Err() != nil:
		f = &findings{}
		f.doubt("there was no time left to judge it: %v", context.Cause(ctx))
	case p.applies != nil && !p.applies(ev):
		f = &findings{}
		f.doubt("the history has nothing that this property is about")
	default:
		f = p.judge(ctx, ev)
	}
	r := f.result()
	r.Name, r.Engine, r.Took = p.name, p.engine, time.Since(began)
	return r
}

// evidence is a history with what several checkers derive from it, once.
type evidence struct {
	history *history.History

	derived  *history.Book
	paired   []history.Operation
	sweep    *swept
	searched map[string]Verdict // of each lock that the search has judged
}

func newEvidence(h *history.History) *evidence { return &evidence{history: h} }

func (ev *evidence) book() *history.Book {
	if ev.derived == nil {
		ev.derived = ev.history.Book()
	}
	return ev.derived
}

func (ev *evidence) operations() []history.Operation {
	if ev.paired == nil {
		ev.paired = ev.history.Operations()
	}
	return ev.paired
}

// locks are the names of all locks, in order.
func (ev *evidence) locks() []string {
	var names []string
	for name := range ev.book().Promises {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// findings are what a judge has found.
type findings struct {
	violations []Violation
	doubts     []string // why it may not say Valid
	valid      string   // the summary if there is neither
}

func (f *findings) add(v Violation) { f.violations = append(f.violations, v) }

func (f *findings) doubt(format string, args ...any) {
	if d := fmt.Sprintf(format, args...); !slices.Contains(f.doubts, d) {
		f.doubts = append(f.doubts, d)
	}
}

func (f *findings) result() Result {
	r := Result{Verdict: Valid, Summary: f.valid, Total: len(f.violations)}
	switch {
	case len(f.violations) > 0:
		slices.SortStableFunc(f.violations, byTime)
		r.Verdict = Invalid
		r.Violations = f.violations[:min(len(f.violations), MaxListed)]
		r.Summary = plural(r.Total, "violation") + ": " + r.Violations[0].Explanation
		if r.Total > 1 {
			r.Summary = plural(r.Total, "violation") + ", the first: " + r.Violations[0].Explanation
		}
	case len(f.doubts) > 0:
		r.Verdict = Unknown
		r.Summary = f.doubts[0]
		if n := len(f.doubts) - 1; n > 0 {
			r.Summary += fmt.Sprintf(" (and %s more)", plural(n, "reason"))
		}
	}
	return r
}
