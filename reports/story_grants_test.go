package reports_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/reports"
)

// grantedLate is a grant that is believed though its lease is over.
func grantedLate() reports.Input {
	s := &script{}
	s.declare("orders")
	s.acquire(1, "orders", "a#1", "redis-1", 10, 500, 200)
	s.access(1, "orders", "a#1", "stock", "1>2", 510, 520)
	return judged(run(), s.history())
}

// A lock that grants a lease which is over did not do its job.
func TestAGrantThatCameTooLateIsTheLocks(t *testing.T) {
	t.Parallel()
	const rightly = "The lock did its job"
	require.Contains(t, reports.Summarize(oversleeper()).Story.String(), rightly)
	told := reports.Summarize(grantedLate()).Story.String()
	require.NotContains(t, told, rightly)
	require.Contains(t, told, "When client a learned of the grant, at 0.500 s, its lease was over: a lock must check that before it answers.")
	require.Contains(t, told, "take a grant that arrives after it for a refusal")
	require.NotContains(t, told, "Hold.Lost")
}
