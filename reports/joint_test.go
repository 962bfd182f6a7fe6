package reports_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports"
)

// joined are the files of many runs together.
func joined(t *testing.T, inputs ...reports.Input) (j reports.Joint, suites []suite, summary string) {
	t.Helper()
	var runs []reports.JointRun
	for _, in := range inputs {
		runs = append(runs, reports.NewJointRun(reports.Summarize(in), "some-run"))
	}
	read := jointFiles(t, runs, len(runs))
	require.NoError(t, json.Unmarshal([]byte(read(reports.ResultsFile)), &j))
	strictly(t, []byte(read(reports.JUnitFile)))
	var doc struct {
		Suites []suite `xml:"testsuite"`
	}
	require.NoError(t, xml.Unmarshal([]byte(read(reports.JUnitFile)), &doc))
	require.NotEmpty(t, read(reports.IndexFile))
	return j, doc.Suites, read(reports.MarkdownFile)
}

// jointFiles writes the files of many runs, of so many that were planned, and reads them by their names.
func jointFiles(t *testing.T, runs []reports.JointRun, planned int) (read func(name string) string) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, reports.WriteJoint(dir, runs, planned))
	return reading(t, dir)
}

// reading reads the files of a folder.
func reading(t *testing.T, dir string) func(name string) string {
	t.Helper()
	return func(name string) string {
		b, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		return string(b)
	}
}

func TestJoint(t *testing.T) {
	expected, wrong := failover(), failover()
	wrong.Run.Expect = string(checker.Valid)
	random := twoFaults()

	j, suites, summary := joined(t, expected, valid(), expected)
	require.Equal(t, checker.Valid, j.Verdict, "each is as it must be")
	require.Len(t, j.Runs, 3)
	names := map[string]bool{}
	for _, s := range suites {
		require.Zero(t, s.Failures+s.Errors)
		names[s.Name], names[s.Cases[0].Class] = true, true
	}
	require.Len(t, names, 6, "a run that was repeated has a name of its own")
	require.Contains(t, summary, "3 runs: 1 valid, 2 invalid, 0 unknown; 0 not as they must be")
	require.Contains(t, summary, "| double-grant | 2 of 3 |")

	j, suites, summary = joined(t, valid(), wrong, undecided(), random)
	require.Equal(t, checker.Invalid, j.Verdict)
	require.Positive(t, suites[1].Failures)
	require.Contains(t, summary, "| double-grant | 2 of 4 |")
	require.Contains(t, j.Runs[3].Kinds, "premature-loss")

	j, _, _ = joined(t, valid(), undecided())
	require.Equal(t, checker.Unknown, j.Verdict)
	shows := valid()
	shows.Run.Scenario, shows.Run.Expect = "failover-double-grant", string(checker.Invalid)
	j, _, _ = joined(t, shows)
	require.Equal(t, checker.Invalid, j.Verdict, "a scenario that shows nothing is no success")
	joined(t, hostile(leaves))
}

// Runs of one lock and seed under other faults have names of their own, and a script has no
// seed where none was set.
func TestJointNames(t *testing.T) {
	var runs []reports.JointRun
	for _, mix := range []string{"network", "process", "process"} {
		run := reports.NewJointRun(reports.Summarize(valid()), "")
		run.Faults = mix
		runs = append(runs, run)
	}
	script := failover()
	script.Run.Seed = 0
	runs = append(runs, reports.NewJointRun(reports.Summarize(script), "script"))
	read := jointFiles(t, runs, len(runs))
	summary := read(reports.MarkdownFile)
	require.Contains(t, summary, "| sentinel mutex, faults network, seed 42 |")
	require.Contains(t, summary, "| failover-double-grant |")
	require.Contains(t, read(reports.ResultsFile), `"faults": "process"`)
	require.NotContains(t, read(reports.ResultsFile), `"seeds"`)
	require.NotContains(t, read(reports.IndexFile), "<td>0</td>")
	var names []string
	for _, found := range regexp.MustCompile(`<testsuite id="\d+" name="([^"]*)"`).FindAllStringSubmatch(read(reports.JUnitFile), -1) {
		names = append(names, found[1])
	}
	require.Equal(t, []string{
		"lockchaos run sentinel mutex seed-42 faults-network", "lockchaos run sentinel mutex seed-42 faults-process",
		"lockchaos run sentinel mutex seed-42 faults-process run-2", "lockchaos failover-double-grant sentinel mutex seed-0",
	}, names)
}

// Fewer runs than were planned are never valid, however those were that were played.
func TestInterruptedRunsAreNotValid(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		runs    []checker.Verdict
		planned int
		want    checker.Verdict
	}{
		{"all were played", []checker.Verdict{checker.Valid, checker.Valid}, 2, checker.Valid},
		{"one was not", []checker.Verdict{checker.Valid, checker.Valid}, 3, checker.Unknown},
		{"one was invalid before", []checker.Verdict{checker.Valid, checker.Invalid}, 6, checker.Invalid},
		{"none was", nil, 2, checker.Unknown},
	} {
		var runs []reports.JointRun
		for _, v := range tt.runs {
			runs = append(runs, reports.JointRun{Verdict: v, Topology: "single", Lock: "mutex"})
		}
		read := jointFiles(t, runs, tt.planned)
		var joint reports.Joint
		require.NoError(t, json.Unmarshal([]byte(read(reports.ResultsFile)), &joint))
		require.Equal(t, tt.want, joint.Verdict, tt.name)
		require.Equal(t, tt.planned, joint.Planned)
		require.Equal(t, len(tt.runs) < tt.planned, joint.Interrupted)
		require.Equal(t, joint.Interrupted, strings.Contains(read(reports.MarkdownFile), "Interrupted: "))
		require.Equal(t, joint.Interrupted, strings.Contains(read(reports.JUnitFile), `type="interrupted"`))
	}
}

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
	read := reading(t, dir)
	page := read(reports.MatrixFile)
	require.Contains(t, page, `<a href="a-run/report.html"`)
	require.NotContains(t, page, "<b>")
	require.Contains(t, page, "nothing to fail over to")
	require.Contains(t, page, "mutex on sentinel under failover: a correct lock may be invalid: failover: a replica may not know of a grant")
	require.Contains(t, read(reports.MarkdownFile), "| mutex | sentinel | failover | may be invalid | 1 valid, 1 invalid, 1 unknown | 1 of 2 (")
	for _, line := range []string{"| lock | failover | grants |", "| mutex on sentinel | ✗ 1 of 3: double-grant, lost-update † | ", "| redlock on independent | not possible | 0 |", "| etcd-mutex on etcd | no run | 0 |"} {
		require.Contains(t, read(reports.MarkdownFile), line)
	}
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
