package checker_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/checker/oracle"
	"github.com/lockchaos/lockchaos/history"
)

// A difference is a property that has another verdict in windows than as a whole.
type difference struct {
	property     string
	whole, parts checker.Verdict // empty where it was left out
}

// differences judges a history as a whole and in windows that end at the first
// instant in which they have so many events.
//
// Two differences are right. Where the account of an owner can't be told any more,
// the whole is unknown, and what the events until then had proven is not. A
// window convicts then as the whole does of those events; and it may have seen
// contention for the lock, which is unknown anyway.
func differences(t *testing.T, h *history.History, least int, forget bool) []difference {
	t.Helper()
	judges := checker.Standard()
	if forget {
		judges = slices.DeleteFunc(judges, func(c checker.Checker) bool { return c.Name() == checker.UseWithinLease().Name() })
	}
	whole := checker.Check(t.Context(), h, judges...)
	parts, err := checker.CheckPieces(t.Context(), list(h), least, forget, judges...)
	require.NoError(t, err)
	var found []difference
	for _, c := range judges {
		d := difference{c.Name(), verdictOf(whole, c.Name()), verdictOf(parts, c.Name())}
		switch {
		case d.whole == d.parts:
		case d.whole == checker.Unknown && d.parts == checker.Invalid && provenBefore(t, h, c):
		case d.whole == checker.Unknown && d.parts == checker.Valid && doubtful(h) &&
			(d.property == checker.Assumptions().Name() || d.property == checker.UseWithinLease().Name()):
		case d.parts == checker.Unknown && strings.Contains(summaryOf(parts, c.Name()), "returned so late"):
		case d.parts == checker.Unknown && d.property == checker.UseWithinLease().Name() &&
			(forgettable(h) || doubtful(h)):
		case d.whole == checker.Valid && d.parts == checker.Unknown && d.property == checker.Assumptions().Name() && vague(h):
		default:
			found = append(found, d)
		}
	}
	return found
}

// vague reports whether it may take a later event to show that a hold lasted, or was
// granted.
func vague(h *history.History) bool {
	return slices.ContainsFunc(h.Operations(), func(op history.Operation) bool {
		return op.Unknown() && op.Invoke.Op == history.Acquire || !op.OK() && op.Invoke.Op == history.Release
	}) || slices.ContainsFunc(holding.Of(h), func(h holding.Hold) bool { return len(h.Late) > 0 })
}

// doubtful reports whether the account of some owner can't be told.
func doubtful(h *history.History) bool { return len(holding.Derive(h).Unclear) > 0 }

// forgettable reports whether an access may belong to a hold whose process was
// granted its lock with another owner since, or retired: that is not remembered.
func forgettable(h *history.History) bool {
	ops := h.Operations()
	for i := range ops {
		use := &ops[i]
		if use.Invoke.Op != history.Access || !use.OK() || use.Invoke.Lock == "" {
			continue
		}
		for j := range ops {
			grant := &ops[j]
			e := grant.Invoke
			if e.Op != history.Acquire || grant.Failed() || e.Lock != use.Invoke.Lock ||
				e.Owner != use.Invoke.LockOwner() && (use.Invoke.Owner != "" || e.Process != use.Invoke.Process) {
				continue
			}
			for k := range ops {
				if op := &ops[k]; op.Invoke.Process == e.Process && op.Complete.Index < use.Complete.Index &&
					(op.Unknown() || op.OK() && op.Invoke.Op == history.Acquire && op.Invoke.Lock == e.Lock && op.Invoke.Owner != e.Owner) {
					return true
				}
			}
		}
	}
	return false
}

func summaryOf(r checker.Report, property string) string {
	for i := range r.Results {
		if r.Results[i].Name == property {
			return r.Results[i].Summary
		}
	}
	return ""
}

func verdictOf(r checker.Report, property string) checker.Verdict {
	for i := range r.Results {
		if r.Results[i].Name == property {
			return r.Results[i].Verdict
		}
	}
	return ""
}

// provenBefore reports whether the events until some instant break a property,
// whatever came later.
func provenBefore(t *testing.T, h *history.History, c checker.Checker) bool {
	t.Helper()
	for n := 1; n < len(h.Events); n++ {
		if h.Events[n].Time > h.Events[n-1].Time {
			prefix := &history.History{Events: h.Events[:n], Unfinished: true}
			if verdictOf(checker.Check(t.Context(), prefix, c), c.Name()) == checker.Invalid {
				return true
			}
		}
	}
	return false
}

// A history that is cut anywhere gets the verdicts of the whole, property by
// property. LOCKCHAOS_CASES says how many are judged.
func TestPiecesKeepTheVerdict(t *testing.T) {
	t.Parallel()
	small := oracle.NewGenerator(1)
	for seed := range uint64(cases(t, 200)) {
		rnd := source(seed)
		h := mixture(rnd, seed%3 == 0)
		if seed%2 == 0 { // in which nothing hides the loss of one thing
			h = small.Next()
		}
		least, forget := 1, rnd.IntN(4) == 0
		if rnd.IntN(2) == 0 {
			least += rnd.IntN(30)
		}
		found := differences(t, h, least, forget)
		require.Empty(t, found, "seed %d, windows of %d, forgetful: %v\n%s", seed, least, forget, dump(h))
	}
}

// A violation that is seen again when its lock was put aside for some windows is
// counted once.
func TestWindowsCountAViolationOnce(t *testing.T) {
	t.Parallel()
	h := &history.History{}
	did := func(op history.Op, lock, owner string, process int) {
		for _, typ := range []history.Type{history.Invoke, history.OK} {
			n := len(h.Events)
			h.Events = append(h.Events, history.Event{
				Index: int64(n), Time: time.Duration(n) * time.Millisecond, Process: process, Type: typ, Op: op, Lock: lock, Owner: owner, Lease: 8 * time.Millisecond,
			})
		}
	}
	did(history.Acquire, "k", "a", 1)
	did(history.Acquire, "k", "b", 2)
	for range 5 {
		did(history.Acquire, "z", "c", 3)
		did(history.Release, "z", "c", 3)
	}
	did(history.Release, "k", "b", 2)
	whole := checker.Check(t.Context(), h, checker.MutualExclusion())
	require.Equal(t, 1, whole.Results[0].Total)
	parts, err := checker.CheckPieces(t.Context(), list(h), 1, true, checker.MutualExclusion())
	require.NoError(t, err)
	require.Equal(t, 1, parts.Results[0].Total, "%+v", parts.Results)
}

// A report is the same each time to the word, whatever runs beside what.
func TestPiecesAreJudgedAlikeEachTime(t *testing.T) {
	t.Parallel()
	for seed := range uint64(cases(t, 100)) {
		h := mixture(source(seed), seed%3 == 0)
		judge := func() []checker.Result {
			r, err := checker.CheckPieces(t.Context(), list(h), 1+int(seed%30), seed%4 == 0)
			require.NoError(t, err)
			for i := range r.Results {
				r.Results[i].Took, r.Results[i].Memory = 0, 0
			}
			return r.Results
		}
		first := judge()
		for range 3 {
			require.Equal(t, first, judge(), "seed %d\n%s", seed, dump(h))
		}
	}
}
