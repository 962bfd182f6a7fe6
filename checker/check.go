package checker

import (
	"context"
	"slices"
	"time"

	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/crew"
)

// MaxListed is the most violations that a [Result] lists; its Total counts
// them all.
const MaxListed = 1000

// Standard is every checker, the assumptions first.
func Standard() []Checker {
	return []Checker{
		Assumptions(),
		MutualExclusion(),
		Capacity(),
		Ownership(),
		UseWithinLease(),
		ProtectedResource(),
		FencingOrder(),
		Linearizability(),
		Progress(0),
		Fairness(),
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
// while the assumptions are Unknown. A violation stands whatever they are, but where
// each end of a grant is a duration: then no property is Invalid.
//
// Mutual exclusion, capacity and ownership are decided by a sweep and
// linearizability by a search, and both decide the same for one lock. Where
// they do not, the report carries a result named "engines-agree", which is
// Unknown: one of the two is wrong, and neither is to be trusted.
func Check(ctx context.Context, h *history.History, checkers ...Checker) Report {
	s := newSession(checkers)
	s.judge(ctx, newEvidence(h))
	return s.report()
}

// roomy is how many events a window has at the most whose memory is used again: what
// is left of a larger one would be too much.
const roomy = 1 << 15

// A session judges a history, whole or window by window.
type session struct {
	began     time.Time
	runs      []*run
	agreement *findings // of the two engines
	locks     map[string]struct{}
	events    int64
	until     time.Duration
	explain   bool              // what is found, at once
	room      *holding.Holdings // of a window that is judged, for another one
	apart     struct {          // what goes on beside all else
		crew.Crew
		ev *evidence // of which window; nil for none
	}
}

// A run is one checker of a session.
type run struct {
	checker Checker
	began   bool // it applied
	found   *findings
	took    time.Duration
	whole   *Result // of a checker that is not of this package
}

func newSession(checkers []Checker) *session {
	if len(checkers) == 0 {
		checkers = Standard()
	}
	s := &session{began: time.Now(), agreement: newFindings(), locks: map[string]struct{}{}}
	for _, c := range checkers {
		s.runs = append(s.runs, &run{checker: c, found: newFindings()})
	}
	return s
}

// judge takes in the whole history, or its next window. It returns while the
// checkers that are apart still judge it: they end with [session.join].
func (s *session) judge(ctx context.Context, ev *evidence) {
	ev.known = s.locks
	ev.room, s.room = s.room, nil
	ev.derive()
	s.each(false, func(r *run) { s.run(ctx, r, ev) })
	s.events, s.until = ev.end(), ev.history.End()
	s.join()
	s.apart.ev = ev
	s.each(true, func(r *run) {
		s.apart.Go(func() { s.run(ctx, r, ev) })
	})
}

// each visits the checkers that are apart, or the others.
func (s *session) each(apart bool, visit func(*run)) {
	for _, r := range s.runs {
		if p, ok := r.checker.(*property); (ok && p.apart) == apart {
			visit(r)
		}
	}
}

func (s *session) run(ctx context.Context, r *run, ev *evidence) {
	r.judge(ctx, ev)
	if p, ok := r.checker.(*property); ok && s.explain {
		p.explain(ctx, ev, r.found)
	}
	r.found.nextWindow()
}

// join waits until the last window is judged by all.
func (s *session) join() {
	s.apart.Wait()
	if s.apart.ev != nil {
		disagreements(s.agreement, s.apart.ev)
		if len(s.apart.ev.history.Events) <= roomy {
			s.room = s.apart.ev.derived
		}
		s.apart.ev = nil
	}
}

func (r *run) judge(ctx context.Context, ev *evidence) {
	began := time.Now()
	defer func() { r.took += time.Since(began) }()
	p, ok := r.checker.(*property)
	switch {
	case ok && r.began: // what applied to one window is judged in all that follow
	case applies(r.checker, ev):
		r.began = true
	case !ok || !p.eager:
		return
	}
	if ok {
		p.judgeNow(ctx, ev, r.found)
		if p.sweeps {
			r.took += ev.sweeping
		}
		return
	}
	result := r.checker.Check(ctx, ev.history)
	if r.whole != nil {
		result = merge(*r.whole, result)
	}
	r.whole = &result
}

// merge adds what a checker from elsewhere found in the next window.
func merge(a, b Result) Result {
	if Worst(a.Verdict, b.Verdict) != a.Verdict {
		a.Verdict, a.Summary = b.Verdict, b.Summary
	}
	a.Total += b.Total
	a.Violations = append(a.Violations, b.Violations...)
	a.Violations = a.Violations[:min(len(a.Violations), MaxListed)]
	return a
}

func (s *session) report() Report {
	s.join()
	report := Report{Events: s.events, Until: s.until}
	for _, r := range s.runs {
		switch {
		case !r.began:
		case r.whole != nil:
			report.Results = append(report.Results, *r.whole)
		default:
			if p, ok := r.checker.(*property); ok {
				report.Results = append(report.Results, p.result(r.found, r.took))
			}
		}
	}
	s.doubtUnits(report.Results)
	differ := len(s.agreement.doubts) > 0
	if differ {
		r := s.agreement.result()
		r.Name, r.Engine = "engines-agree", "comparison"
		report.Results = append(report.Results, r)
	}
	report.Verdict = sum(report.Results, differ)
	report.Took = time.Since(s.began)
	return report
}

// doubtUnits drops the violations in which a lease has a part where the ends of all holds are
// in a wrong unit: they are lengths, or leases that are shorter than a millisecond in a record
// that is longer. In a record that is shorter too, leases and instants may well be in the same
// wrong unit. What was lost or accepted by a resource is no matter of leases, nor is what
// happened to a lock without any.
func (s *session) doubtUnits(results []Result) {
	for _, r := range s.runs {
		why := r.found.durations()
		if why == "" && s.until >= time.Millisecond {
			why = r.found.shortLeases()
		}
		if why == "" {
			continue
		}
		for i := range results {
			if results[i].Verdict == Invalid {
				results[i].without(why, func(v Violation) bool {
					return r.found.leased[v.Lock] && v.Kind != LostUpdate && v.Kind != StaleAccess
				})
			}
		}
	}
}

// without drops violations; where none is left, why is the reason for knowing nothing.
func (r *Result) without(why string, is func(Violation) bool) {
	all := len(r.Violations)
	r.Violations = slices.DeleteFunc(r.Violations, is)
	switch {
	case len(r.Violations) == 0:
		r.Verdict, r.Summary, r.Violations, r.Total = Unknown, why, nil, 0
	case len(r.Violations) < all:
		r.Total = len(r.Violations)
		r.Summary = violated(r.Violations, r.Total)
	}
}

// sum is the verdict of several results. Where the engines differ, one of them
// is wrong, and what either says is no violation.
func sum(results []Result, differ bool) Verdict {
	var verdicts []Verdict
	for _, r := range results {
		if differ {
			switch r.Name {
			case "mutual-exclusion", "capacity", "ownership", "linearizability":
				continue
			}
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
	// apart says that nothing that follows depends on what it finds: it may judge
	// a window while the next one is taken in, and changes no more than its findings.
	apart  bool
	sweeps bool // it is decided by the sweep, which is counted as its own
	// applies reports whether there is anything to judge; nil: always.
	applies func(*evidence) bool
	// eager says that it judges windows to which it does not apply, too: what it
	// doubts there counts where it applies to another.
	eager bool
	// judge adds what it finds in a history, or in a window of one.
	judge func(context.Context, *evidence, *findings)
	// conclude says what follows from all that was found: doubts about the
	// whole, and the sentence for a property that held.
	conclude func(*findings)
}

// Name is the property's name.
func (p *property) Name() string { return p.name }

// Check judges the history alone.
func (p *property) Check(ctx context.Context, h *history.History) Result {
	began := time.Now()
	f := newFindings()
	p.judgeAll(ctx, newEvidence(h), f)
	return p.result(f, time.Since(began))
}

// Applies reports whether the history has anything that the property is about.
func (p *property) Applies(h *history.History) bool { return applies(p, newEvidence(h)) }

func (p *property) judgeAll(ctx context.Context, ev *evidence, f *findings) {
	if p.applies != nil && !p.applies(ev) {
		f.doubt("the history has nothing that this property is about")
		f.cut = true
		return
	}
	p.judgeNow(ctx, ev, f)
}

func (p *property) judgeNow(ctx context.Context, ev *evidence, f *findings) {
	if ctx.Err() != nil {
		f.doubt("there was no time left to judge it: %v", context.Cause(ctx))
		f.cut = true
		return
	}
	p.judge(ctx, ev, f)
}

func (p *property) result(f *findings, took time.Duration) Result {
	if p.conclude != nil && !f.cut {
		p.conclude(f)
	}
	r := f.result()
	r.Name, r.Engine, r.Took = p.name, p.engine, took
	return r
}
