package checker_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/checker/oracle"
	"github.com/lockchaos/lockchaos/history"
)

// wide judges histories that are made of those of the oracle, as many as TestOracle in proportion, and tells
// each kind of difference with the least history that shows it.
func wide(t *testing.T, share int, differ func(rnd *rand.Rand, h *history.History) (differences []string, made *history.History)) {
	t.Helper()
	number, seed := fromEnv(t, "LOCKCHAOS_ORACLE", cases(t, 20_000))/share, fromEnv(t, "LOCKCHAOS_ORACLE_SEED", 1+rand.IntN(1<<20))
	t.Logf("LOCKCHAOS_ORACLE_SEED=%d", seed)
	g, rnd := oracle.NewGenerator(uint64(seed)), rand.New(rand.NewPCG(uint64(seed), 1)) //nolint:gosec // it is no secret
	least, made := map[string]*history.History{}, 0
	for range number {
		found, h := differ(rnd, g.Next())
		if h != nil {
			made++
		}
		for _, kind := range found {
			if least[kind] == nil || len(least[kind].Events) > len(h.Events) {
				least[kind] = h
			}
		}
	}
	t.Logf("%d histories", made)
	if made < number/4 {
		t.Errorf("%d of %d histories could be made", made, number)
	}
	for _, kind := range slices.Sorted(maps.Keys(least)) {
		t.Errorf("%s\n%s%s", kind, oracle.Lines(least[kind]), verdictLines(t.Context(), least[kind]))
	}
}

// clockError is how wrong the clocks of TestOracleWithSeveralClocks are at the most.
const clockError = 25 * time.Millisecond

// skewed is a history as several clocks stamp it, each of which is wrong by so much at the most; nil if it is
// none then. What a process stamps, it stamps by one clock.
func skewed(rnd *rand.Rand, h *history.History) *history.History {
	var wrong [3]time.Duration
	for i := range wrong {
		wrong[i] = clockError + time.Duration(rnd.IntN(11)-5)*clockError/5
	}
	s := &history.History{Events: slices.Clone(h.Events)}
	for i := range s.Events {
		e := &s.Events[i]
		if e.Process == history.NoProcess {
			continue
		}
		clock := e.Process % len(wrong)
		e.Clock = fmt.Sprintf("machine-%d", clock)
		e.Time += wrong[clock]
		if e.Expires > 0 {
			e.Expires += wrong[clock]
		}
	}
	slices.SortStableFunc(s.Events, func(a, b history.Event) int { return int(a.Time - b.Time) })
	if s.Accept() != nil {
		return nil
	}
	return s
}

// What is judged by several clocks is so by the right one as well, whose stamps the oracle has.
func TestOracleWithSeveralClocks(t *testing.T) {
	t.Parallel()
	wide(t, 10, func(rnd *rand.Rand, h *history.History) ([]string, *history.History) {
		s := skewed(rnd, h)
		if s == nil {
			return nil, nil
		}
		findings := findingsOf(checker.CheckWithin(t.Context(), s, clockError))
		delete(findings, checker.Assumptions().Name()) // which counts what was met by the stamps that there are
		var kinds []string
		for _, d := range oracle.Judge(h).CompareLenient(findings) {
			kinds = append(kinds, d.Property+": "+d.Text)
		}
		return kinds, s
	})
}

func findingsOf(report checker.Report) map[string]oracle.Finding {
	findings := make(map[string]oracle.Finding)
	for _, result := range report.Results {
		f := oracle.Finding{Verdict: string(result.Verdict)}
		for _, v := range result.Violations {
			f.Violations = append(f.Violations, oracle.Violation{Kind: v.Kind, Lock: v.Lock})
		}
		findings[result.Name] = f
	}
	return findings
}

// padded has so many acquires and releases before a history, by owners of their own: of its first lock, or of
// another one.
func padded(h *history.History, operations int, other bool) *history.History {
	at := slices.IndexFunc(h.Events, func(e history.Event) bool { return e.Op != history.Declare })
	p := &history.History{Events: slices.Clone(h.Events[:at])}
	lock, mode := h.Events[at].Lock, history.Mode("")
	for _, e := range h.Events[:at] {
		if e.Lock == lock && e.Kind == history.KindSemaphore {
			mode = history.Permit
		}
	}
	if other || lock == "" {
		lock, mode = "padding", ""
	}
	now := time.Duration(0)
	for i := range operations {
		e := history.Event{Process: 1 << 20, Lock: lock, Owner: fmt.Sprintf("padding %d", i/2), Mode: mode, Op: history.Acquire}
		if i%2 == 1 {
			e.Op = history.Release
		}
		for _, e.Type = range []history.Type{history.Invoke, history.OK} {
			now += time.Microsecond
			e.Time = now
			p.Events = append(p.Events, e)
		}
	}
	for _, e := range h.Events[at:] {
		e.Time += now
		if e.Expires > 0 {
			e.Expires += now
		}
		p.Events = append(p.Events, e)
	}
	if p.Accept() != nil {
		return nil
	}
	return p
}

// A history that follows a longer one of others gets the verdicts that it has by itself, around each length from
// which the judge does anything in another way.
func TestOracleAtEveryLength(t *testing.T) {
	t.Parallel()
	lengths := []int{2, 98, 100, 126, 128, 198, 200, 202, 254, 256, 258, 510, 512}
	wide(t, 20, func(rnd *rand.Rand, h *history.History) ([]string, *history.History) {
		length := lengths[rnd.IntN(len(lengths))]
		if rnd.IntN(500) == 0 {
			length = 9_998 + 2*rnd.IntN(4)
		}
		p := padded(h, length, rnd.IntN(2) == 0)
		if p == nil {
			return nil, nil
		}
		before, after := findingsOf(checker.Check(t.Context(), h)), findingsOf(checker.Check(t.Context(), p))
		delete(before, checker.Assumptions().Name()) // which counts more
		var kinds []string
		for name, was := range before {
			is := after[name]
			for _, v := range slices.Concat(was.Violations, is.Violations) {
				if slices.Contains(was.Violations, v) != slices.Contains(is.Violations, v) && was.Verdict != "unknown" {
					kinds = append(kinds, fmt.Sprintf("%s: %s after %d operations: %v", name, v.Kind, length, is.Verdict))
				}
			}
			if was.Verdict == "valid" && is.Verdict != "valid" || was.Verdict == "unknown" && is.Verdict == "invalid" {
				kinds = append(kinds, fmt.Sprintf("%s: %s is %s after %d operations", name, was.Verdict, is.Verdict, length))
			}
		}
		return kinds, p
	})
}
