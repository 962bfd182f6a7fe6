package reports_test

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/locks"
	"github.com/lockchaos/lockchaos/reports"
	"github.com/lockchaos/lockchaos/scenarios"
)

// A run whose servers another run took over is unknown in every report, and not
// called a script that was cut short.
func TestTakenOver(t *testing.T) {
	in := failover()
	in.Run.ClaimLostTo = "another run drives it now: process 7 on b"
	in.Report.Results = append(in.Report.Results, checker.Result{Name: "run", Verdict: checker.Unknown, Summary: "what was seen may be the work of another run: " + in.Run.ClaimLostTo})
	r := reports.Summarize(in)
	require.Equal(t, "unknown", string(r.Verdict))
	require.Equal(t, "Not decided: another run took the servers over", r.Story.Headline)
	require.Contains(t, r.Story.String(), "process 7 on b")
	require.Contains(t, r.Story.String(), "violates mutual-exclusion")
	require.NotContains(t, r.Story.String(), "script")
}

// What of its faults a random run left out is in its reports.
func TestLeftOut(t *testing.T) {
	in := valid()
	in.Run.Plan, in.Run.LateFaults = make([]history.PlannedStep, 9), 2
	for name, write := range map[string]func(io.Writer) error{
		"text": func(w io.Writer) error { return reports.WriteText(w, reports.Summarize(in), reports.TextOptions{}) },
		"html": func(w io.Writer) error { return reports.WriteHTML(w, in) },
	} {
		require.Regexp(t, `(?i)left out:? +the last 2 of 9 faults`, string(written(t, write)), name)
	}
}

// A script that was cut short is unknown in every report, and says at which step and
// why. A violation until then stands.
func TestCutShort(t *testing.T) {
	in := cutShort()
	r := reports.Summarize(in)
	require.Equal(t, "unknown", string(r.Verdict))
	require.Equal(t, "Not decided: the script was cut short at "+in.Run.AbortReason, r.Story.Headline)
	require.Equal(t, in.Run.AbortReason, r.AbortReason)
	broken := failover()
	broken.Run.AbortReason = in.Run.AbortReason
	require.Equal(t, "invalid", string(reports.Summarize(broken).Verdict))
	for name, write := range map[string]func(in reports.Input, w io.Writer) error{
		"text": func(in reports.Input, w io.Writer) error {
			return reports.WriteText(w, reports.Summarize(in), reports.TextOptions{})
		},
		"markdown": func(in reports.Input, w io.Writer) error { return reports.WriteMarkdown(w, reports.Summarize(in)) },
		"html":     func(in reports.Input, w io.Writer) error { return reports.WriteHTML(w, in) },
		"junit":    func(in reports.Input, w io.Writer) error { return reports.WriteJUnit(w, reports.Summarize(in)) },
	} {
		for _, in := range []reports.Input{in, broken} {
			out := string(written(t, func(w io.Writer) error { return write(in, w) }))
			require.NotContains(t, out, "as expected", name)
			require.NotContains(t, out, "as this scenario expects", name)
		}
		require.Contains(t, string(written(t, func(w io.Writer) error { return write(in, w) })), "step 9 (heal cut)", name)
	}
	in.Run.Expect = "unknown"
	require.NotContains(t, string(written(t, func(w io.Writer) error { return reports.WriteText(w, reports.Summarize(in), reports.TextOptions{}) })), "as expected")
	in.Run.AbortReason = "step 1 (inject hold): " + strings.Repeat("it did not take effect, ", 20)
	r = reports.Summarize(in)
	require.Less(t, len(r.Story.Headline), 300)
	require.Contains(t, r.Story.String(), strings.TrimRight(in.Run.AbortReason, ", "), "in full elsewhere")
}

// An error that most operations met stands at the top; what is the lock's usual
// refusal, or met by few, does not.
func TestComplaint(t *testing.T) {
	attempts := func(good, bad int, end history.Type, why string) reports.Results {
		s := &script{}
		s.declare("orders")
		at := 10.0
		for i := range good {
			s.acquire(1, "orders", fmt.Sprintf("a#%d", i), "redis-1", at, at+1, 100)
			s.release(1, "orders", fmt.Sprintf("a#%d", i), "redis-1", at+2, at+3)
			at += 5
		}
		for i := range bad {
			s.attempt(2+i, history.Acquire, "orders", "b#1", at, at+1, end, strings.ReplaceAll(why, "#", fmt.Sprint(i)))
			at += 5
		}
		in := reports.Input{Run: run(), History: s.history(), Report: report(held("mutual-exclusion", "", ""))}
		return reports.Summarize(in)
	}
	const oom = "OOM command not allowed when used memory > 'maxmemory'."
	require.Equal(t, "5 of 9 requests for a lock ended with the error “"+oom+"”", attempts(4, 5, history.Info, oom).Story.Notice)
	require.Empty(t, attempts(4, 5, history.Fail, "lock not acquired: "+oom).Story.Notice, "a definite refusal is what a lock is for")
	require.Equal(t, "5 of 5 requests for a lock ended with the error “lock not acquired: "+oom+"”", attempts(0, 5, history.Fail, "lock not acquired: "+oom).Story.Notice, "but for a lock that grants nothing")
	require.Equal(t, "3 of 3 requests for a lock ended with the error “dial 127.0.0.1:0: refused”", attempts(0, 3, history.Info, "dial 127.0.0.1:#: refused").Story.Notice, "they differ in figures only")
	require.Empty(t, attempts(5, 5, history.Info, oom).Story.Notice, "half")
	require.Empty(t, attempts(0, 2, history.Info, oom).Story.Notice, "too few to tell")
	require.Empty(t, attempts(1, 50, history.Fail, "lock not acquired: the wait is over").Story.Notice, "that is what locks are for")
	require.Empty(t, attempts(1, 50, history.Info, "").Story.Notice)

	in := notPermitted()
	in.Run.DriverFault = "the driver of zone-a can't be used: it ended"
	require.Equal(t, "Not decided: "+in.Run.DriverFault, reports.Summarize(in).Story.Headline, "it is behind the errors")

	r := attempts(4, 5, history.Info, oom)
	second := strings.Split(string(written(t, func(w io.Writer) error { return reports.WriteText(w, r, reports.TextOptions{Width: 200}) })), "\n")[2]
	require.Contains(t, second, "5 of 9 requests")
	require.Contains(t, second, "OOM")
	require.Contains(t, string(written(t, func(w io.Writer) error { return reports.WriteMarkdown(w, r) })), "**5 of 9 requests")
	require.Contains(t, htmlOf(t, notPermitted()), "<h1>Not decided: 40 of 41 requests for a lock ended with the error")
}

// The accesses that a resource refused for their tokens are told, and what they
// kept from happening.
func TestFencingIsTold(t *testing.T) {
	const saved = "At 2.051 s ledger refused client a, whose token 33 was older than the 34 that it had seen: the fencing token stopped the damage."
	in := fenced()
	require.Contains(t, reports.Summarize(in).Story.Outcome, saved)
	in.Report = report(held("mutual-exclusion", "", ""))
	require.Contains(t, reports.Summarize(in).Story.Outcome, saved, "also where nothing is violated")

	in = fenced()
	for i := range in.History.Events {
		if e := &in.History.Events[i]; e.Op == history.Access && e.Type == history.Fail {
			e.Type = history.Info
		}
	}
	require.NotContains(t, reports.Summarize(in).Story.String(), "stopped the damage", "it may have been accepted")

	in = fenced()
	for i := range in.History.Events {
		if e := &in.History.Events[i]; e.Op == history.Access && e.Process == 1 {
			e.Owner = "z#1"
		}
	}
	require.NotContains(t, reports.Summarize(in).Story.String(), "stopped the damage", "it was refused to an owner that has no part in the violation")
	in.Report = report(held("mutual-exclusion", "", ""))
	require.Contains(t, reports.Summarize(in).Story.String(), "stopped the damage")
}

// What the history met is one line of every report.
func TestCoverage(t *testing.T) {
	in := failover()
	in.Report.Results[0].Met = map[string]int{"contention": 1234, "refusals": 7, "hand-overs": 7, "re-entries": 0}
	r := reports.Summarize(in)
	const line = "contention 1,234 · hand-overs 7 · refusals 7"
	require.Contains(t, string(written(t, func(w io.Writer) error { return reports.WriteMarkdown(w, r) })), "Covered: "+line+"\n")
	require.Equal(t, 1, strings.Count(htmlOf(t, in), "Covered: "+line+"</p>"))
	require.NotContains(t, htmlOf(t, failover()), "Covered")
}

// The command that shows a cure names variants that there are, and that must be
// valid, or keep at least some property in which the failure itself is invalid.
func TestCommandsOfCuresPlayVariants(t *testing.T) {
	catalogue, err := scenarios.Catalogue(locks.All())
	require.NoError(t, err)
	known, shown := map[string]bool{}, 0
	for _, s := range catalogue {
		for _, v := range s.Variants {
			known[s.Name+"/"+v.Name] = v.Expect.Verdict == string(checker.Valid) || len(v.Expect.Holds) > 0
		}
	}
	for _, s := range catalogue {
		in := failover()
		in.Run.Scenario, in.Run.Cures = s.Name, s.Cures
		for _, c := range reports.Summarize(in).Story.Cures {
			names, ok := strings.CutPrefix(c.Try, "lockchaos reproduce ")
			if !c.Prevents || !ok {
				continue
			}
			shown++
			for name := range strings.FieldsSeq(names) {
				require.True(t, known[name], "%s: %s", s.Name, c.Try)
			}
		}
	}
	require.Greater(t, shown, 30)
}
