package checker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
)

// An expiry that is written as a duration ends each hold before its grant, so that two
// grants at once overlap nowhere. That is no proof of exclusion.
func TestExpiriesThatAreDurationsProveNothing(t *testing.T) {
	t.Parallel()
	doubleGrant := func(expires func(asked time.Duration) time.Duration) *history.History {
		h := &history.History{}
		for i := range 8 {
			asked := time.Duration(i+5) * time.Second
			e := history.Event{
				Time: asked, Process: i, Op: history.Acquire, Type: history.Invoke, Lock: "k", Owner: fmt.Sprint("client-", i), Lease: 3 * time.Second,
			}
			h.Events = append(h.Events, e)
			e.Time, e.Type, e.Expires = asked+time.Millisecond, history.OK, expires(asked)
			h.Events = append(h.Events, e)
		}
		return h
	}
	lease := func(time.Duration) time.Duration { return 3 * time.Second }
	report := checker.Check(t.Context(), doubleGrant(lease), checker.MutualExclusion())
	require.Equal(t, checker.Unknown, report.Verdict)
	require.Contains(t, report.Results[0].Summary, `"expires" must be nanoseconds since the start of the record, not a length ("lease" is one): 8 of 8 grants were over when they were answered`)

	instant := func(asked time.Duration) time.Duration { return asked + 3*time.Second }
	require.Equal(t, checker.Invalid, checker.Check(t.Context(), doubleGrant(instant), checker.MutualExclusion()).Verdict)
}

// A lease in milliseconds ends each hold long before the holder does, so that a client of a
// correct lock seems to use what it does not hold any more.
func TestLeasesInMillisecondsConvictNothing(t *testing.T) {
	t.Parallel()
	turns := func(lease time.Duration) *history.History {
		h := &history.History{}
		for i := range 8 {
			at := time.Duration(i) * time.Second
			e := history.Event{Process: i, Lock: "k", Owner: fmt.Sprint("client-", i), Resource: "r"}
			add := func(op history.Op, after, took, lease time.Duration) {
				e.Op, e.Lease = op, lease
				e.Type, e.Time = history.Invoke, at+after
				h.Events = append(h.Events, e)
				e.Type, e.Time = history.OK, at+after+took
				h.Events = append(h.Events, e)
			}
			add(history.Acquire, 0, time.Millisecond, lease)
			add(history.Access, 400*time.Millisecond, time.Millisecond, 0)
			add(history.Release, 500*time.Millisecond, time.Millisecond, 0)
		}
		return h
	}
	report := checker.Check(t.Context(), turns(30_000), checker.Standard()...)
	require.Equal(t, checker.Unknown, report.Verdict)
	for _, r := range report.Results {
		require.NotEqual(t, checker.Invalid, r.Verdict, r.Name)
		if r.Name == "assumptions" {
			require.Contains(t, r.Summary, "no lease is as long as a millisecond, of 8 leases: all times are nanoseconds")
		}
	}

	// The same lock with the right unit, and a lease that really is too short for its holds.
	require.NotEqual(t, checker.Invalid, checker.Check(t.Context(), turns(30*time.Second), checker.Standard()...).Verdict)
	require.Equal(t, checker.Invalid, checker.Check(t.Context(), turns(100*time.Millisecond), checker.Standard()...).Verdict)
}

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
