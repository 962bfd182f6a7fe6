package reports_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports"
)

// What was measured stands in all reports, in a table with each way to play the run once, and the faults in
// effect are no cause without it.
func TestMeasuredCausesAreShown(t *testing.T) {
	t.Parallel()
	in := failover()
	in.Run.Scenario, in.Run.Command = "", "lockchaos run --topology sentinel --seed 1"
	r := reports.Summarize(in)
	require.Empty(t, r.Causes)
	require.Equal(t, "lockchaos run --topology sentinel --seed 1 --causes", r.Next)
	require.NotEmpty(t, r.Story.InEffect.Faults)
	attached := in
	attached.Run.Backend = "attach"
	require.Empty(t, reports.Summarize(attached).Next, "it can't be played again")

	in.Run.Causes = []history.Cause{{
		Kind: "double-grant", Verdict: history.CauseDeployment, Text: "with split-brain 5 of 5 runs show a double grant, without it 0 of 5, the control lock 5 of 5: a limit of this deployment",
		Faults: []history.Suspect{{Fault: "split-brain", Target: "{redis-1}", Role: history.RoleNeeded}}, Control: "correct-key",
		Arms: []history.Arm{
			{Arm: history.ArmAll, Seen: 5, N: 5, Interval: reports.Interval(5, 5)},
			{Arm: history.ArmNone, N: 5, Interval: reports.Interval(0, 5)},
			{Arm: history.ArmWithout, Same: true, N: 5},
			{Arm: history.ArmOnly, Same: true, Seen: 5, N: 5},
			{Arm: history.ArmControl, Seen: 5, N: 5, Interval: reports.Interval(5, 5)},
		},
	}}
	r = reports.Summarize(in)
	require.Equal(t, in.Run.Causes, r.Causes)
	require.Empty(t, r.Next, "it is measured")
	var text, terminal, markdown, page bytes.Buffer
	require.NoError(t, reports.WriteText(&text, r, reports.TextOptions{}))
	require.Contains(t, strings.Join(strings.Fields(text.String()), " "), "measured "+in.Run.Causes[0].Text)
	require.NoError(t, reports.WriteText(&terminal, r, reports.TextOptions{Width: 80, Dir: "runs/1"}))
	require.Contains(t, terminal.String(), "a limit of this deployment\n")
	require.LessOrEqual(t, strings.Count(terminal.String(), "\n"), 14)
	require.NoError(t, reports.WriteMarkdown(&markdown, r))
	require.Contains(t, markdown.String(), "| with the faults of the run | 5 of 5 | 56 to 100 % |\n| without any fault | 0 of 5 | 0 to 44 % |\n| with the faults, and the control lock correct-key | 5 of 5 | 56 to 100 % |\n\n")
	require.NoError(t, reports.WriteHTML(&page, in))
	require.Contains(t, page.String(), `<td>without any fault</td><td class="num">0 of 5</td>`)
	require.NotContains(t, page.String(), "<td>without split-brain")
	require.NotContains(t, page.String(), "Measured of other violations")
	in.Run.Causes = append(in.Run.Causes, in.Run.Causes[0])
	page.Reset()
	require.NoError(t, reports.WriteHTML(&page, in))
	require.Equal(t, 1, strings.Count(page.String(), "Measured of other violations</summary>"))
}
