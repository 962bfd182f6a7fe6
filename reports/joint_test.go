package reports_test

import (
	"encoding/json"
	"encoding/xml"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/reports"
)

// joined are the files of many runs together.
func joined(t *testing.T, inputs ...reports.Input) (j reports.Joint, suites []suite, summary string) {
	t.Helper()
	dir := t.TempDir()
	var runs []reports.JointRun
	for _, in := range inputs {
		runs = append(runs, reports.NewJointRun(reports.Summarize(in), "some-run"))
	}
	require.NoError(t, reports.WriteJoint(dir, runs, len(runs)))
	read := func(name string) []byte {
		b, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		return b
	}
	require.NoError(t, json.Unmarshal(read(reports.ResultsFile), &j))
	strictly(t, read(reports.JUnitFile))
	var doc struct {
		Suites []suite `xml:"testsuite"`
	}
	require.NoError(t, xml.Unmarshal(read(reports.JUnitFile), &doc))
	require.FileExists(t, filepath.Join(dir, reports.IndexFile))
	return j, doc.Suites, string(read(reports.MarkdownFile))
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
	dir := t.TempDir()
	var runs []reports.JointRun
	for _, mix := range []string{"network", "process", "process"} {
		run := reports.NewJointRun(reports.Summarize(valid()), "")
		run.Faults = mix
		runs = append(runs, run)
	}
	script := failover()
	script.Run.Seed = 0
	runs = append(runs, reports.NewJointRun(reports.Summarize(script), "script"))
	require.NoError(t, reports.WriteJoint(dir, runs, len(runs)))
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		return string(b)
	}
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
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var runs []reports.JointRun
			for _, v := range tt.runs {
				runs = append(runs, reports.JointRun{Verdict: v, Topology: "single", Lock: "mutex"})
			}
			dir := t.TempDir()
			require.NoError(t, reports.WriteJoint(dir, runs, tt.planned))
			b, err := os.ReadFile(filepath.Join(dir, reports.ResultsFile))
			require.NoError(t, err)
			var joint reports.Joint
			require.NoError(t, json.Unmarshal(b, &joint))
			require.Equal(t, tt.want, joint.Verdict)
			require.Equal(t, tt.planned, joint.Planned)
			require.Equal(t, len(tt.runs) < tt.planned, joint.Interrupted)
			summary, err := os.ReadFile(filepath.Join(dir, reports.MarkdownFile))
			require.NoError(t, err)
			require.Equal(t, joint.Interrupted, strings.Contains(string(summary), "Interrupted: "))
			suites, err := os.ReadFile(filepath.Join(dir, reports.JUnitFile))
			require.NoError(t, err)
			require.Equal(t, joint.Interrupted, strings.Contains(string(suites), `type="interrupted"`))
		})
	}
}
