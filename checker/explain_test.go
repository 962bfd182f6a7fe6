package checker_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/checker/oracle"
	"github.com/lockchaos/lockchaos/history"
)

// What explains a violation fails on its own, as a file too, and every part of
// it is needed.
func TestExplain(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/invalid/*.jsonl")
	require.NoError(t, err)
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			h := load(t, path)
			report := checker.Check(t.Context(), h)
			checker.Explain(t.Context(), h, &report)
			for _, r := range report.Results {
				for _, v := range r.Violations {
					require.NotEmpty(t, v.Minimal, "%s: %s", r.Name, v.Explanation)
					require.LessOrEqual(t, len(v.Minimal), len(h.Events))
					file := oracle.Lines(&history.History{Events: v.Minimal})
					again, err := history.ReadAll(strings.NewReader(file))
					require.NoError(t, err, file)
					alone := checker.Check(t.Context(), again)
					require.Equal(t, checker.Invalid, alone.Verdict, file)
					require.Contains(t, kinds(alone), v.Kind, file)
				}
			}
		})
	}
}

func TestExplainFindsTheFewThatMatterInALongHistory_NoRace(t *testing.T) {
	t.Parallel()
	h := turns(5_000)
	last := h.Events[len(h.Events)-1]
	for i, typ := range []history.Type{history.Invoke, history.OK} {
		e := last
		e.Index, e.Time = last.Index+int64(i)+1, last.Time+1+1
		e.Process, e.Owner, e.Op, e.Type, e.Lease = 50, "thief", history.Acquire, typ, time.Second
		h.Events = append(h.Events, e)
	}
	report, err := checker.CheckReader(t.Context(), history.NewReader(strings.NewReader(oracle.Lines(h))))
	require.NoError(t, err)
	v := result(t, report, "mutual-exclusion").Violations[0]
	require.Len(t, v.Minimal, 4, "two grants, and nothing else")
	checker.Explain(t.Context(), h, &report)
	require.Equal(t, v.Minimal, result(t, report, "mutual-exclusion").Violations[0].Minimal)
}
