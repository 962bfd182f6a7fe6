package reports_test

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/reports"
)

func TestAnnotation(t *testing.T) {
	write := func(in reports.Input) string {
		return string(written(t, func(w io.Writer) error { return reports.WriteAnnotation(w, reports.Summarize(in), "runs/1") }))
	}
	require.Empty(t, write(valid()))
	require.Empty(t, write(failover()), "it is invalid, as it must be")

	in := failover()
	in.Run.Scenario, in.Run.Expect = "", ""
	out := write(in)
	require.Regexp(t, `^::error title=lockchaos%3A invalid run sentinel mutex seed-42::Two clients held`, out)
	require.Contains(t, out, "%0A1.716 s client b was granted")
	require.Contains(t, out, "%0Areport: runs/1")
	require.Equal(t, 1, strings.Count(out, "\n"), "a command is one line")

	in = failover()
	in.Run.Expect = string(checker.Valid)
	require.Contains(t, write(in), "::expected valid, got invalid: Two clients")
	in = valid()
	in.Run.Expect = string(checker.Invalid)
	require.Contains(t, write(in), "expected invalid, got valid")
	require.Regexp(t, "^::warning ", write(undecided()))

	// Nothing in it ends the command, or begins another.
	in = hostile("x\n::error::y\r%0A,:")
	in.Run.Expect = ""
	require.Equal(t, 1, strings.Count(write(in), "\n"))
	require.NotContains(t, write(in), "\r")
}
