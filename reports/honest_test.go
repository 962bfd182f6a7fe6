package reports_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports"
)

// What a violation damaged is drawn, however many resources there are.
func TestTheDamagedResourceIsDrawn(t *testing.T) {
	s := &script{}
	for i := range 20 {
		lock := string(rune('a'+i)) + "-lock"
		s.declare(lock)
		at := 10 + 20*float64(i)
		s.acquire(1, lock, "x#"+lock, "redis-1", at, at+1, 300)
		s.access(1, lock, "x#"+lock, lock+"-stock", "1>2", at+2, at+3)
		if i == 19 {
			s.acquire(2, lock, "y#1", "redis-1", at+4, at+5, 300)
			s.access(2, lock, "y#1", lock+"-stock", "1>3", at+6, at+7)
		}
		s.release(1, lock, "x#"+lock, "redis-1", at+8, at+9)
	}
	in := judged(run(), s.history())
	require.Equal(t, checker.Invalid, in.Report.Verdict)
	tab := newTab(t)
	tab.openReport(htmlOf(t, in), "")
	tab.drawn()
	require.Contains(t, eval[string](tab, `document.querySelector("svg.live").textContent`), "t-lock-stock")
}

// There is no recovery from a slow link or from a wrong clock, and none to measure in a
// script.
func TestRecoveryIsMeasuredWhereThereIsOne(t *testing.T) {
	of := func(fault, scenario string) reports.Fault {
		s := &script{}
		s.fault(history.Inject, fault, "zone-a>redis-1", 10, 12, history.OK, "", "")
		s.fault(history.Heal, fault, "zone-a>redis-1", 30, 33, history.OK, "", "")
		s.acquire(1, "orders", "zone-a.1#1", "redis-1", 20, 41, 300)
		r := run()
		r.Scenario = scenario
		return reports.Summarize(reports.Input{Run: r, History: s.history()}).Faults[0]
	}
	cut := of("cut", "")
	require.True(t, cut.Interrupts)
	require.Positive(t, cut.Recovery)
	for _, f := range []reports.Fault{of("latency", ""), of("cut", "failover-double-grant")} {
		require.False(t, f.Interrupts)
		require.Zero(t, f.Recovery)
	}
}

// A run without results is not a run that was judged.
func TestARunWithoutResultsIsNotOver(t *testing.T) {
	in := valid()
	in.Missing, in.Pending = []string{reports.ResultsFile + " is missing"}, true
	require.Contains(t, reports.Summarize(in).Story.Headline, "Not decided yet")
}

// What there was nothing to check of is not among what held.
func TestNothingToCheckIsNotHeld(t *testing.T) {
	s := &script{}
	s.declare("orders")
	s.acquire(1, "orders", "a#1", "redis-1", 10, 11, 300)
	s.acquire(2, "orders", "b#1", "redis-1", 400, 401, 300)
	properties := func() string {
		var names []string
		for _, p := range reports.Summarize(judged(run(), s.history())).Properties {
			if p.Verdict == checker.Valid {
				names = append(names, p.Name)
			}
		}
		return strings.Join(names, " ")
	}
	require.NotContains(t, properties(), "ownership", "no release or extension was answered")
	require.NotContains(t, properties(), "use-within-lease", "nothing was used")
	require.NotContains(t, properties(), "protected-resource")
	s.release(2, "orders", "b#1", "redis-1", 420, 421)
	require.Contains(t, properties(), "ownership")
}

// The story of a script that held tells in which order the grants took effect.
func TestOrderOfEffectsIsTold(t *testing.T) {
	s := &script{}
	s.declare("orders")
	s.acquire(1, "orders", "a#1", "redis-1", 10, 11, 100)
	s.acquire(2, "orders", "b#1", "redis-1", 20, 121, 500)
	s.access(2, "orders", "b#1", "prices", "0>1", 130, 140)
	s.access(1, "orders", "a#1", "stock", "0>1", 12, 150)
	in := judged(run(), s.history())
	var told []string
	for _, m := range reports.Summarize(in).Story.Events {
		told = append(told, m.Text)
	}
	require.Equal(t, []string{"client b read 0 and wrote 1 to prices (begun at 0.130 s)", "client a read 0 and wrote 1 to stock (begun at 0.012 s)"}, told[len(told)-2:])
}
