package main

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/reports"
	"github.com/lockchaos/lockchaos/scenarios"
)

// What a scenario comes to depends on how often it gave its verdict, on what it
// gave instead, and on whether the harness did its part.
func TestTheExitOfSeveralRuns(t *testing.T) {
	t.Parallel()
	judged := func(v checker.Verdict, unexpected error) played {
		return played{in: reports.Input{Report: checker.Report{Verdict: v}}, unexpected: unexpected}
	}
	other := errors.New("it gave another verdict")
	invalid, valid := judged(checker.Invalid, nil), judged(checker.Valid, nil)
	missed, unknown := judged(checker.Valid, other), judged(checker.Unknown, other)
	broken, unsuited := unknown, unknown
	unsuited.in.Run.Unsuited = "step 2: it was refused"
	broken.failed = harnessError{errors.New("heal cut: it is still cut")}
	times := func(n int, p played, and ...played) []played {
		for range n {
			and = append(and, p)
		}
		return and
	}
	tests := []struct {
		name      string
		expect    string
		everyTime bool
		runs      []played
		want      int
	}{
		{"all gave it", "invalid", false, times(3, invalid), exitValid},
		{"nine of ten", "invalid", false, times(9, invalid, missed), exitValid},
		{"nine of ten of one that must each time", "invalid", true, times(9, invalid, missed), exitInvalid},
		{"eight of ten", "invalid", false, times(8, invalid, missed, unknown), exitInvalid},
		{"nothing is known", "invalid", false, times(2, unknown), exitUnknown},
		{"a cure that failed once", "valid", false, times(9, valid, judged(checker.Invalid, other)), exitInvalid},
		{"one that can't be asked of the lock", "valid", true, times(2, unsuited), exitValid},
		{"one that could be asked once", "valid", true, times(1, unsuited, judged(checker.Valid, nil)), exitInvalid},
		{"a heal that failed once", "valid", false, times(9, valid, broken), exitHarness},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := scenarios.Scenario{Name: "x", Expect: scenarios.Expectation{Verdict: tt.expect}, EveryTime: tt.everyTime}
			got := (&scenarioResult{choice: choice{Scenario: s}, runs: tt.runs}).exit(len(tt.runs))
			require.Equal(t, tt.want, exitCode(got), "%v", got)
		})
	}
}
