package holding_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/history"
)

// A refusal speaks of the owner, and so of all its grants.
func TestRefusalSpeaksOfAllGrants(t *testing.T) {
	t.Parallel()
	var h history.History
	add := func(at time.Duration, typ history.Type, op history.Op, lease time.Duration) {
		h.Events = append(h.Events, history.Event{
			Index: int64(len(h.Events)), Time: at, Process: 1, Type: typ, Op: op, Lock: "k", Owner: "a", Mode: history.Permit, Lease: lease,
		})
	}
	h.Events = append(h.Events, history.Event{Process: history.NoProcess, Type: history.OK, Op: history.Declare, Lock: "k", Kind: history.KindSemaphore, Capacity: 9})
	for i := range time.Duration(3) {
		add(2*i+1, history.Invoke, history.Acquire, 1+100*i)
		add(2*i+2, history.OK, history.Acquire, 0)
	}
	add(10, history.Invoke, history.Release, 0)
	add(11, history.Fail, history.Release, 0)
	holdings := lockOf(&h)
	require.Empty(t, holdings.Unclear)
	require.Len(t, holdings.Denied, 2, "the first grant had run out, and the others had not")
}
