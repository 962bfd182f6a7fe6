package checker_test

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
)

// manyHeld is a history in which two owners hold many locks: with leases that run
// out, with leases that do not, and without, until a process crashes.
func manyHeld(locks int) *history.History {
	h := &history.History{}
	at := 0
	add := func(process int, typ history.Type, op history.Op, lock string, lease time.Duration) {
		e := history.Event{Index: int64(at), Time: time.Duration(10 * at), Process: process, Type: typ, Op: op, Lock: lock, Lease: lease}
		if op != history.Crash {
			e.Owner = "o" + strconv.Itoa(process)
		}
		h.Events = append(h.Events, e)
		at++
	}
	ask := func(process int, op history.Op, lock string, lease time.Duration) {
		add(process, history.Invoke, op, lock, lease)
		add(process, history.OK, op, lock, 0)
	}
	for i := range locks {
		ask(i%2, history.Acquire, strconv.Itoa(i), [...]time.Duration{0, 300, 100_000}[i%3])
	}
	add(0, history.Info, history.Crash, "", 0)
	for i := range locks {
		ask(2, history.Acquire, "filler", 1000)
		ask(2, history.Release, "filler", 0)
		if i%2 == 1 && i%3 != 1 {
			ask(1, history.Release, strconv.Itoa(i), 0)
		}
	}
	return h
}

// A lock that is held and put aside takes part in what the history met.
func TestHeldLocksAreCountedThoughTheyRest(t *testing.T) {
	t.Parallel()
	h := manyHeld(60)
	whole := checker.Check(t.Context(), h)
	require.Positive(t, whole.Results[0].Met[history.MetSeveral])
	require.Positive(t, whole.Results[0].Met[history.MetExpiries])
	for _, least := range []int{1, 8, 30} {
		parts, err := checker.CheckPieces(t.Context(), list(h), least, true)
		require.NoError(t, err)
		require.Equal(t, whole.Verdict, parts.Verdict)
		met := parts.Results[0].Met
		require.Equal(t, whole.Results[0].Met[history.MetSeveral], met[history.MetSeveral], "windows of %d", least)
		if least > 1 { // else each ends between two windows, or with one
			require.Positive(t, met[history.MetExpiries], "windows of %d", least)
		}
	}
}

// An event that was put aside comes back as it was.
func TestEventsComeBackAsTheyWere(t *testing.T) {
	t.Parallel()
	zero, queued := int64(0), int64(1<<40)
	events := []history.Event{
		{Index: 7, Time: 1, Process: 3, Type: history.Invoke, Op: history.Acquire, Owner: "a", Lease: history.Never},
		{Index: 1 << 50, Time: history.Never, Process: 1 << 40, Type: history.OK, Op: history.Acquire, Owner: "a", Expires: 5, Token: 1 << 60, Queued: &queued},
		{Index: 9, Type: history.Fail, Op: history.Extend, Owner: "", Mode: history.Permit, Permits: history.MaxAmount, Queued: &zero},
		{Index: 10, Type: history.Info, Op: history.Release, Owner: "b", Mode: history.Read},
		{Index: 11, Type: history.OK, Op: history.Lost, Owner: "a", Mode: history.Write},
		{Index: 12, Type: history.OK, Op: history.Lost, Owner: "a", Mode: history.Exclusive, Token: -1},
	}
	for i := range events {
		events[i].Lock = "k"
	}
	want := slices.Clone(events)
	want[2].Owner = "p0" // its process
	require.Equal(t, want, checker.PutAside(events))
}
