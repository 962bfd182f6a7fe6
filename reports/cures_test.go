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

// A run whose servers another run took over is unknown in every report, and not
// called a script that was cut short.
func TestTakenOver(t *testing.T) {
	in := failover()
	in.Run.ClaimLostTo = "another run drives it now: process 7 on b"
	in.Report.Results = append(in.Report.Results, checker.Result{Name: "run", Verdict: checker.Unknown, Summary: "what was seen may be the work of another run: " + in.Run.ClaimLostTo})
	r := reports.Summarize(in)
	require.Equal(t, "unknown", string(r.Verdict))
	require.Equal(t, "Not decided: another run took the servers over", r.Story.Headline)
	require.Contains(t, paragraph(r), "process 7 on b")
	require.Contains(t, paragraph(r), "What was recorded has ")
	require.NotContains(t, paragraph(r), "script")
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

// A script that was cut short is as no report expects, and a violation until then stands: the goldens show the rest.
func TestCutShort(t *testing.T) {
	in, broken := cutShort(), failover()
	broken.Run.AbortReason = in.Run.AbortReason
	require.Equal(t, checker.Invalid, reports.Summarize(broken).Verdict)
	in.Run.Expect = "unknown"
	for _, in := range []reports.Input{in, broken} {
		r := reports.Summarize(in)
		out := htmlOf(t, in)
		for _, write := range []func(io.Writer) error{
			func(w io.Writer) error { return reports.WriteText(w, r, reports.TextOptions{}) },
			func(w io.Writer) error { return reports.WriteMarkdown(w, r) },
			func(w io.Writer) error { return reports.WriteJUnit(w, r) },
		} {
			out += string(written(t, write))
		}
		require.NotContains(t, out, "as expected")
		require.NotContains(t, out, "as this scenario expects")
		require.Contains(t, out, "step 9 (heal cut)")
	}
	in.Run.AbortReason = "step 1 (inject hold): " + strings.Repeat("it did not take effect, ", 20)
	r := reports.Summarize(in)
	require.Less(t, len(r.Story.Headline), 300)
	require.Contains(t, paragraph(r), strings.TrimRight(in.Run.AbortReason, ", "), "in full elsewhere")
}

// An error that most operations met stands at the top; what is the lock's usual
// refusal, or met by few, does not.
func TestComplaint(t *testing.T) {
	const oom = "OOM command not allowed when used memory > 'maxmemory'."
	for _, tt := range []struct {
		name      string
		good, bad int
		end       history.Type
		why, want string
	}{
		{"most", 4, 5, history.Info, oom, "5 of 9 requests for a lock ended with the error “" + oom + "”"},
		{"a definite refusal is what a lock is for", 4, 5, history.Fail, "lock not acquired: " + oom, ""},
		{"but for a lock that grants nothing", 0, 5, history.Fail, "lock not acquired: " + oom, "5 of 5 requests for a lock ended with the error “lock not acquired: " + oom + "”"},
		{"they differ in figures only", 0, 3, history.Info, "dial 127.0.0.1:#: refused", "3 of 3 requests for a lock ended with the error “dial 127.0.0.1:0: refused”"},
		{"half", 5, 5, history.Info, oom, ""},
		{"too few to tell", 0, 2, history.Info, oom, ""},
		{"no error", 1, 50, history.Info, "", ""},
	} {
		s := &script{}
		s.declare("orders")
		at := 10.0
		for i := range tt.good {
			s.acquire(1, "orders", fmt.Sprintf("a#%d", i), "redis-1", at, at+1, 100)
			s.release(1, "orders", fmt.Sprintf("a#%d", i), "redis-1", at+2, at+3)
			at += 5
		}
		for i := range tt.bad {
			s.attempt(2+i, history.Acquire, "orders", "b#1", at, at+1, tt.end, strings.ReplaceAll(tt.why, "#", fmt.Sprint(i)))
			at += 5
		}
		r := reports.Summarize(reports.Input{Run: run(), History: s.history(), Report: report(held("mutual-exclusion", "", ""))})
		require.Equal(t, tt.want, r.Story.Notice, tt.name)
		text := string(written(t, func(w io.Writer) error { return reports.WriteText(w, r, reports.TextOptions{Width: 300}) }))
		require.Contains(t, strings.Split(text, "\n")[2], tt.want, "the second line")
	}
	in := notPermitted()
	in.Run.DriverFault = "the driver of zone-a can't be used: it ended"
	require.Equal(t, "Not decided: "+in.Run.DriverFault, reports.Summarize(in).Story.Headline, "it is behind the errors")
}

// The accesses that a resource refused for their tokens are told, and what they kept from happening.
func TestFencingIsTold(t *testing.T) {
	const saved = "At 2.051 s ledger refused client a for its token, 33: the fencing token stopped the damage."
	in := fenced()
	require.Contains(t, paragraph(reports.Summarize(in)), saved)
	in.Report = report(held("mutual-exclusion", "", ""))
	require.Contains(t, paragraph(reports.Summarize(in)), saved, "also where nothing is violated")
	in = fenced()
	in.Report.Record = nil // which is of the history without the change
	for i := range in.History.Events {
		if e := &in.History.Events[i]; e.Op == history.Access && e.Process == 1 {
			e.Owner = "z#1"
		}
	}
	require.NotContains(t, paragraph(reports.Summarize(in)), "stopped the damage", "it was refused to an owner that has no part in the violation")
}

// What the history met is one line of every report.
func TestCoverage(t *testing.T) {
	in := failover()
	in.Report.Results[0].Met = map[string]int{"contention": 1234, "refusals": 7, "hand-overs": 7, history.MetShared: 3, "re-entries": 0}
	r := reports.Summarize(in)
	const line = "contention 1,234 · hand-overs 7 · refusals 7 · holds beside another 3"
	require.Contains(t, string(written(t, func(w io.Writer) error { return reports.WriteMarkdown(w, r) })), "Covered: "+line+"\n")
	require.Equal(t, 1, strings.Count(htmlOf(t, in), "Covered: "+line+"</p>"))
	require.NotContains(t, htmlOf(t, failover()), "Covered")
}
