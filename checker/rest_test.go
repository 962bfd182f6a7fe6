package checker_test

import (
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
