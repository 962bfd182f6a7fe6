package reports_test

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports"
)

// Nothing was wrong while the first of two writes was under way.
func TestALostUpdateIsMarkedWhenBothWritesWereAnswered(t *testing.T) {
	in := twoCauses()
	for _, r := range in.Report.Results {
		if r.Name == "protected-resource" {
			r.Violations = r.Violations[:1]
			r.Violations[0].From = ms(14)
			in.Report.Results = []checker.Result{r}
			break
		}
	}
	until := in.Report.Results[0].Violations[0].Until
	marks := marksOf(htmlOf(t, in))
	require.Len(t, marks, 1)
	require.Contains(t, marks[0], fmt.Sprintf("lost-update at %.3f s", until.Seconds()))
}

// A server that has shown its role was started before it did so.
func TestAServerIsThereOnceItHasShownItsRole(t *testing.T) {
	s := &script{}
	s.declare("orders")
	s.acquire(1, "orders", "a#1", "redis-1", 10, 11, 5000)
	s.fault(history.Inject, "crash-failover", "redis-1", 100, 1000, history.OK, "redis-2 is the master", "")
	s.observe(900, "redis-2", history.ObserveRole, "master")
	s.fault(history.Heal, "crash-failover", "redis-1", 1400, 2221, history.OK, "", "")
	s.observe(1543, "redis-1", history.ObserveRole, "replica")
	s.acquire(2, "orders", "b#1", "redis-2", 2300, 2301, 5000)
	in := judged(run(), s.history())
	story := reports.Summarize(in).Story.String()
	require.Contains(t, story, "At 1.543 s redis-1 had been started again and became a replica")
	require.Equal(t, 1, strings.Count(story, "redis-1 became a replica")+strings.Count(story, "started again"), story)
	require.Contains(t, htmlOf(t, in), "redis-1: down from 0.100 s to 1.543 s")
}

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

// Operations that were not counted are not none.
func TestOperationsThatWereNotCounted(t *testing.T) {
	text := func(r reports.Results) string {
		return string(written(t, func(w io.Writer) error { return reports.WriteText(w, r, reports.TextOptions{}) }))
	}
	require.Contains(t, text(reports.Results{Events: 2_000_016}), "not counted")
	require.Contains(t, text(reports.Results{Operations: map[string]reports.Outcomes{}}), "none recorded")
}

// A run without results is not a run that was judged.
func TestARunWithoutResultsIsNotOver(t *testing.T) {
	in := valid()
	in.Missing = []string{reports.ResultsFile + " is missing"}
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

// An access that was answered after the overlap of two holds did not happen in that time,
// and requests that were counted from the start of a fault did not all come within the violations.
func TestTimesThatAreSaid(t *testing.T) {
	c := reports.Summarize(rare()["answered-later"]()).Causes[0]
	require.Contains(t, c.Story.Outcome, "With accesses that were under way in that time, client a (at 0.150 s) and client b (at 0.120 s) changed ledger, which both had read as 4: one of the two updates is lost.")
	require.Contains(t, c.Impact, "; all 2 requests for a lock from 0.010 s to 0.210 s had a known outcome.")
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
	require.Equal(t, []string{"client b read 0 from prices and wrote 1", "client a read 0 from stock and wrote 1"}, told[len(told)-2:])
}
