package checker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
)

// The evidence names all permits that are out, so that it proves what it says.
func TestEvidenceOfTooManyPermits(t *testing.T) {
	t.Parallel()
	h := &history.History{Events: []history.Event{{Process: history.NoProcess, Type: history.OK, Op: history.Declare, Lock: "k", Kind: "semaphore", Capacity: 5}}}
	for i := range 6 {
		e := history.Event{
			Index: int64(len(h.Events)), Time: time.Duration(i+1) * time.Second, Process: i, Op: history.Acquire, Type: history.Invoke,
			Lock: "k", Owner: fmt.Sprint("client-", i), Mode: history.Permit, Lease: time.Minute,
		}
		h.Events = append(h.Events, e)
		e.Index, e.Time, e.Type = e.Index+1, e.Time+time.Millisecond, history.OK
		h.Events = append(h.Events, e)
	}
	report := checker.Check(t.Context(), h, checker.Capacity())
	require.Len(t, report.Results[0].Violations, 1)
	require.Equal(t, []int64{2, 4, 6, 8, 10, 12}, report.Results[0].Violations[0].Events)
}
