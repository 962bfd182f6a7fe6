package checker_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/history"
)

// An access belongs to the hold in which it was sent, though it is answered in a
// window in which only an older hold of its owner matters otherwise.
func TestUseUnderWayKeepsItsHold(t *testing.T) {
	t.Parallel()
	h := &history.History{}
	add := func(process int, typ history.Type, op history.Op, owner string) {
		n := len(h.Events)
		h.Events = append(h.Events, history.Event{
			Index: int64(n), Time: time.Duration(n) * time.Millisecond, Process: process, Type: typ, Op: op, Lock: "k", Owner: owner,
		})
	}
	did := func(process int, op history.Op, owner string) {
		add(process, history.Invoke, op, owner)
		add(process, history.OK, op, owner)
	}
	did(1, history.Acquire, "o")
	did(1, history.Release, "o")
	did(2, history.Acquire, "o")
	add(3, history.Invoke, history.Access, "o")
	did(2, history.Release, "o")
	for _, o := range []string{"a", "b", "c", "d"} {
		did(2, history.Acquire, o)
		did(2, history.Release, o)
	}
	add(3, history.OK, history.Access, "o")
	for least := range len(h.Events) {
		require.Empty(t, differences(t, h, 1+least, false), "windows of %d", 1+least)
	}
}
