package reports_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports"
)

func TestMatrix(t *testing.T) {
	t.Parallel()
	cells := []reports.MatrixCell{
		{Lock: "mutex", Topology: "sentinel", Faults: "failover", Breaks: []string{"failover: a replica may not know of a grant"}, Lease: 2 * time.Second, Keeps: "all"},
		{Lock: "redlock", Topology: "independent", Faults: "failover", Impossible: "nothing to fail over to"},
		{Lock: "etcd-mutex", Topology: "etcd", Faults: "failover"},
	}
	var runs []reports.JointRun
	for i, in := range []reports.Input{failover(), valid(), undecided()} {
		in.Run.Seed, in.Run.Scenario, in.Run.Expect = uint64(9-i), "", ""
		runs = append(runs, reports.NewJointRun(reports.Summarize(in), ""))
		cells[0].Add(reports.NewMatrixRun(in, []string{"a-run", "", "<b>"}[i]))
	}
	m := reports.NewMatrix(runs, len(runs), "7-9", 20*time.Second, []string{"failover"}, cells)
	require.Equal(t, checker.Invalid, m.Verdict)
	c := m.Cells[0]
	require.Equal(t, [3]int{1, 1, 1}, [3]int{c.Valid, c.Invalid, c.Unknown})
	require.Equal(t, 1, c.Twice.Seen)
	require.Equal(t, 2, c.Twice.Of, "a run that was not decided tells nothing")
	require.Equal(t, uint64(7), c.Runs[0].Seed)

	dir := t.TempDir()
	require.NoError(t, reports.WriteMatrix(dir, m))
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		return string(b)
	}
	page := read(reports.MatrixFile)
	require.Contains(t, page, `<a href="a-run/report.html"`)
	require.NotContains(t, page, "<b>")
	require.Contains(t, page, "nothing to fail over to")
	require.Contains(t, page, "mutex on sentinel under failover: a correct lock may be invalid: failover: a replica may not know of a grant")
	require.Contains(t, read(reports.MarkdownFile), "| mutex | sentinel | failover | may be invalid | 1 valid, 1 invalid, 1 unknown | 1 of 2 (")
	require.Contains(t, read(reports.MarkdownFile), "| lock | topology | faults | of a correct lock | runs | granted twice (95 %) | double-grant |")
	require.Equal(t, 1, c.Kinds[checker.DoubleGrant])
	strictly(t, []byte(read(reports.JUnitFile)))
	require.Contains(t, read(reports.ResultsFile), `"dir": "<b>"`, "as in the results.json of a run")
	var again reports.Matrix
	require.NoError(t, json.Unmarshal([]byte(read(reports.ResultsFile)), &again))
	require.Equal(t, checker.Invalid, again.Verdict)
	require.Len(t, again.Cells, 3)
	require.Len(t, again.Runs, 3)

	var out bytes.Buffer
	require.NoError(t, reports.WriteMatrixText(&out, m))
	require.Contains(t, out.String(), "redlock on independent under failover: not possible: nothing to fail over to\n")
	require.Contains(t, out.String(), "1 valid, 1 invalid, 1 unknown")
	require.Regexp(t, `(?m)^etcd-mutex +etcd +failover +valid +no run *$`, out.String())
}

// The time without a grant is counted while clients ask, whoever is granted what.
func TestMatrix_unavailable(t *testing.T) {
	t.Parallel()
	s := &script{}
	s.declare("l")
	s.acquire(1, "l", "a#1", "redis-1", 1000, 2000, 500)
	s.acquire(2, "l", "b#1", "redis-1", 3000, 4000, 500)
	s.attempt(3, history.Acquire, "l", "c#1", 5000, 8000, history.Fail, "taken")
	s.attempt(4, history.Acquire, "l", "d#1", 9000, 30000, history.Info, "i/o timeout") // no client asks after 9 s
	in := reports.Input{Run: run(), History: s.history(), Report: report()}
	r := reports.NewMatrixRun(in, "")
	require.Equal(t, 5*time.Second, r.Unavailable)
	require.False(t, r.Twice)
}
