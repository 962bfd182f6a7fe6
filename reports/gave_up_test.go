package reports_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports"
)

// abandoned is the failover with a client that does not access the resource once its lease is over.
func abandoned() reports.Input {
	in := fenced()
	for i := range in.History.Events {
		if e := &in.History.Events[i]; e.Op == history.Access && e.Type == history.Fail {
			e.Error = history.Abandoned
		}
	}
	return judged(in.Run, in.History)
}

// An access that its client gave up by itself was refused by no resource, and no token
// stopped it.
func TestAnAccessThatWasGivenUpWasNotRefused(t *testing.T) {
	t.Parallel()
	in := abandoned()
	r := reports.Summarize(in)
	told := r.Story.String()
	require.NotContains(t, told, "refused client a")
	require.NotContains(t, told, "token stopped")
	require.Contains(t, told, "(fencing)", "nothing has shown that there is fencing")
	gaveUp := false
	for _, step := range r.Sequence.Steps {
		require.False(t, step.Kind == "refusal" && step.From == "ledger", step.Text)
		gaveUp = gaveUp || step.From == "a" && step.Text == "gives up its access: its lease is over, or about to end"
	}
	require.True(t, gaveUp)
	require.NotContains(t, withoutCode(htmlOf(t, in)), "was refused by ledger")
}

// Fencing is no cure of a run that had it, though no token was refused.
func TestFencingIsNoCureOfARunThatHadIt(t *testing.T) {
	t.Parallel()
	in := forgotten()
	in.Run.Scenario, in.Run.Command = "", "lockchaos run --lock mutex-fenced --topology sentinel --seed 42"
	require.Contains(t, reports.Summarize(in).Story.String(), "(fencing)")
	in.Run.Fencing = true
	told := reports.Summarize(in).Story.String()
	require.NotContains(t, told, "(fencing)")
	require.Contains(t, told, "What may prevent it")
}
