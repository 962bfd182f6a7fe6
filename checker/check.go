package checker

import (
	"context"
	"fmt"
	"iter"
	"math"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
)

// MaxListed is the most violations that a [Result] lists; its Total counts
// them all.
const MaxListed = 1000

// Standard is every checker, the assumptions first.
func Standard() []Checker { return standard(Assumptions(), Progress(0)) }

// standard is every checker, with two that ask for other things.
func standard(assumptions, progress Checker) []Checker {
	return []Checker{
		assumptions,
		MutualExclusion(),
		Capacity(),
		Ownership(),
		UseWithinLease(),
		ProtectedResource(),
		FencingOrder(),
		Linearizability(),
		progress,
		Fairness(),
	}
}

// OfLogs is every checker, for a log of what clients did, which need not tell of requests: in place of contention the
// assumptions ask that some lock was granted to two clients. A lock is not known to be free before its first grant: the
// log may begin in a hold. The bound of progress is longer by what the unit of the stamps may hide; it is not tested by a log without
// refusals, in which a client whose requests were refused seems to wait.
func OfLogs(unit time.Duration, refusals bool) []Checker {
	progress := progressSince(ProgressBound+4*unit, ProgressBound/4-2*unit, true)
	if !refusals {
		progress.of = func(*holding.Lock) bool { return false }
	}
	return standard(assumptions(false, nil), progress)
}

// A Source is what a history is read from: a [history.Reader].
type Source interface {
	// Events are the events in lists, each of which is good until the next: see [history.Reader.Events].
	Events() iter.Seq2[[]history.Event, error]
	// Truncated is the number of the last line if it was cut short, else 0.
	Truncated() int
}

// CheckReader is [Check] with [Explain] for a history that is read, of which it keeps less than
// half as much in memory. Its errors are those of the reader.
//
// A history that does not fit into the memory that the program may take (a third more than
// GOMEMLIMIT, or the limit of package runtime/debug) is Unknown, and the report says which
// limit it would fit into.
func CheckReader(ctx context.Context, r Source, checkers ...Checker) (Report, error) {
	most := int64(math.MaxInt64)
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
		most = limit / 3 * 4 / operationMemory
	}
	return checkReader(ctx, r, most, checkers)
}

// operationMemory is what it takes to judge one operation, in bytes, as measured by
// make bench-checker.
const operationMemory = 380

func checkReader(ctx context.Context, r Source, most int64, checkers []Checker) (Report, error) {
	began := time.Now()
	record, operations, err := read(r, most)
	if err != nil {
		return Report{}, err
	}
	if operations > most {
		return beyondMemory(record, operations, most), nil
	}
	ev := newEvidence(record)
	report := ev.check(ctx, checkers)
	report.explain(ctx, record, nil)
	report.Took = time.Since(began)
	return report, nil
}

// beyondMemory is the report on a history with more operations than fit into memory.
func beyondMemory(r *holding.Record, operations, most int64) Report {
	mib := func(operations int64) int64 { return operations*operationMemory>>20 + 1 }
	return Report{Verdict: Unknown, Events: r.Events, Until: r.End, Results: []Result{{
		Name: "memory", Engine: "the number of operations", Verdict: Unknown,
		Summary: fmt.Sprintf("to judge its %s takes about %d MB of memory, and the most that is taken is %d MB: GOMEMLIMIT=%dMiB would do, or records of shorter runs",
			say.Count(int(operations), "operation"), mib(operations), mib(most), mib(operations)*3/4+1),
	}}}
}

// read makes a record of what is read, and counts the operations. Those
// beyond the most are no part of the record.
func read(r Source, most int64) (record *holding.Record, operations int64, err error) {
	record = holding.NewRecord()
	for events, err := range r.Events() {
		if err != nil {
			return nil, 0, err
		}
		for i := range events {
			if e := &events[i]; e.Type == history.Invoke && e.Process >= 0 {
				operations++
			}
			if operations <= most {
				record.Add(&events[i])
			} else {
				record.Events, record.End = record.Events+1, events[i].Time
			}
		}
	}
	record.Close(r.Truncated())
	return record, operations, nil
}

// Check judges the history with the checkers, or with those of [Standard] if
// none are given, in their order. A property for which the history has no occasion is left out of the report.
//
// The report's verdict is the [Worst] of the results, so that nothing is Valid
// while the assumptions are Unknown. Mutual exclusion, capacity and ownership are decided by a sweep and
// linearizability by a search, and both decide the same for one lock. Where
// they do not, the report carries a result named "engines-agree", which is
// Unknown: one of the two is wrong, and neither is to be trusted.
func Check(ctx context.Context, h *history.History, checkers ...Checker) Report {
	began := time.Now()
	ev := evidenceOf(h)
	report := ev.check(ctx, checkers)
	report.Took, report.Record = time.Since(began), ev.Record
	return report
}

func (ev *evidence) check(ctx context.Context, checkers []Checker) Report {
	if len(checkers) == 0 {
		checkers = Standard()
	}
	judged := make([]Result, len(checkers))
	side(len(checkers), func(i int) {
		at := len(checkers) - 1 - i
		if c := checkers[at]; c.applies(ev) {
			judged[at] = c.check(ctx, ev)
		}
	})
	report := Report{Events: ev.Events, Until: ev.End}
	for i, r := range judged {
		if r.Verdict == "" || r.Verdict == Valid && len(r.Coverage) == 0 {
			report.NotTested = append(report.NotTested, checkers[i].Name())
		} else {
			report.Results = append(report.Results, r)
		}
	}
	report.conclude(ev)
	return report
}

// evidence is a record with what several checkers derive from it, once.
type evidence struct {
	*holding.Record

	sweep    func() map[*holding.Lock]*lockSweep // of all locks, once
	searched map[*holding.Lock]Verdict           // of each lock that the search has judged
}

// newEvidence derives who held what.
func newEvidence(r *holding.Record) *evidence {
	r.Derive()
	return &evidence{Record: r, sweep: sync.OnceValue(func() map[*holding.Lock]*lockSweep { return sweep(r) })}
}

func evidenceOf(h *history.History) *evidence { return newEvidence(holding.RecordOf(h)) }

// A Checker judges one property of a history. It gives up with [Unknown] when the context ends.
type Checker struct {
	name, engine string
	// of reports whether a lock is one of those that it judges; nil: all are, also where there is none.
	of func(*holding.Lock) bool
	// stretched is the same for a bound that is longer by some time; nil where there is no bound.
	stretched func(by time.Duration) Checker
	// judge adds what it finds in a history, of some of its locks.
	judge func(context.Context, *evidence, []*holding.Lock, *findings)
}

// Name is the property's name.
func (c Checker) Name() string { return c.name }

// applies reports whether there is anything to judge.
func (c Checker) applies(ev *evidence) bool {
	return c.of == nil || slices.ContainsFunc(ev.Locks(), c.of)
}

// Check judges the history alone.
func (c Checker) Check(ctx context.Context, h *history.History) Result {
	return c.check(ctx, evidenceOf(h))
}

func (c Checker) check(ctx context.Context, ev *evidence) Result {
	began := time.Now()
	f := c.find(ctx, ev)
	if len(f.violations) > 0 {
		ev.inUnits(f)
	}
	r := f.result()
	r.Name, r.Engine, r.Took = c.name, c.engine, time.Since(began)
	return r
}

func (c Checker) find(ctx context.Context, ev *evidence) *findings {
	f := newFindings()
	switch {
	case ctx.Err() != nil:
		f.doubt("there was no time left to judge it: %v", context.Cause(ctx))
	case !c.applies(ev):
		f.doubt("the history has nothing that this property is about")
	case c.of == nil:
		c.judge(ctx, ev, ev.Locks(), f)
	default:
		c.judge(ctx, ev, holding.Filter(ev.Locks(), c.of), f)
	}
	return f
}

// conclude decides the verdict of a report, the only place that does: it is the [Worst] of
// the results. Where the engines differ, one of them is wrong, and what either says is no violation.
func (r *Report) conclude(ev *evidence) {
	differ := newFindings()
	disagreements(differ, ev)
	if len(differ.doubts) > 0 {
		d := differ.result()
		d.Name, d.Engine = "engines-agree", "comparison"
		r.Results = append(r.Results, d)
	}
	r.Verdict = sum(r.Results, len(differ.doubts) > 0)
}

// sum is the verdict of several results.
func sum(results []Result, differ bool) Verdict {
	var verdicts []Verdict
	for _, r := range results {
		if differ && slices.Contains([]string{"mutual-exclusion", "capacity", "ownership", "linearizability"}, r.Name) {
			continue
		}
		verdicts = append(verdicts, r.Verdict)
	}
	return Worst(verdicts...)
}
