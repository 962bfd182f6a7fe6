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

// skewed is a history as several clocks stamp it, each of which is wrong by so much at the most; nil if it is
// none then. What a process stamps, it stamps by one clock.
func skewed(rnd *rand.Rand, h *history.History, off time.Duration) *history.History {
	var wrong [3]time.Duration
	for i := range wrong {
		wrong[i] = off + time.Duration(rnd.Int64N(2*int64(off)+1)) - off // no time is below 0
	}
	s := &history.History{Events: slices.Clone(h.Events)}
	for i := range s.Events {
		e := &s.Events[i]
		if e.Op == history.Declare && e.From > 0 { // an instant of no clock
			return nil
		}
		if e.Process == history.NoProcess {
			continue
		}
		clock := e.Process % len(wrong)
		e.Clock = fmt.Sprintf("machine-%d", clock)
		e.Time += wrong[clock]
		if e.Expires > 0 {
			e.Expires += wrong[clock]
		}
		if e.From > 0 { // of a crash
			e.From += wrong[clock]
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
	decided, all := map[string]int{}, 0
	wide(t, 20, func(rnd *rand.Rand, h *history.History) ([]string, *history.History) {
		off := 25 * time.Millisecond
		if rnd.IntN(2) == 0 { // little, beside what the history takes
			off = time.Duration(1 + rnd.Int64N(int64(max(h.End()/40, 2))))
		}
		s := skewed(rnd, h, off)
		if s == nil {
			return nil, nil
		}
		findings := findingsOf(checker.CheckWithin(t.Context(), s, off))
		delete(findings, checker.Assumptions().Name()) // which counts what was met by the stamps that there are
		if checker.SeveralClocks(s.Events) != nil {
			for _, f := range findings {
				decided[f.Verdict]++
				all++
			}
		}
		var kinds []string
		for _, d := range oracle.Judge(h).Compare(findings, true) {
			kinds = append(kinds, d.Property+": "+d.Text)
		}
		return kinds, s
	})
	t.Log(decided)
	for _, verdict := range []checker.Verdict{checker.Valid, checker.Invalid, checker.Unknown} {
		if decided[string(verdict)] < all/20 {
			t.Errorf("too few are %s: %v", verdict, decided)
		}
	}
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
