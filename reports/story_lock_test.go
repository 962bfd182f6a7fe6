package reports_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/promises"
	"github.com/lockchaos/lockchaos/reports"
)

func TestStory_WeighsTheVerdict(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name           string
		found, control checker.Verdict
		want           string
	}{
		{"limit", checker.Invalid, checker.Invalid, "was invalid too: a limit of these servers"},
		{"defect", checker.Invalid, checker.Valid, "was valid: these servers do not explain it"},
		{"undecided control", checker.Invalid, checker.Unknown, "which decides nothing"},
		{"undecided run", checker.Unknown, checker.Valid, "which decides nothing"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			in := reports.Input{
				Run: history.Run{
					Lock: "own", Unpromised: []string{promises.NoToken, promises.NoReleaseTells},
					Control: &history.Control{Lock: "correct-key", Verdict: string(tc.control)},
				},
				History: &history.History{}, Report: checker.Report{Verdict: tc.found},
			}
			weight := strings.Join(reports.Summarize(in).Story.Weight, "\n")
			require.Contains(t, weight, tc.want)
			require.Contains(t, weight, "The lock does not promise fencing tokens (their order is not judged), a refusal of a release")
		})
	}
	require.Empty(t, reports.Summarize(reports.Input{History: &history.History{}}).Story.Weight)
}
