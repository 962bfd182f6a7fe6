package workload_test

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/memory"
	"github.com/lockchaos/lockchaos/workload"
)

// A mortal lock has a process of its own, which ends.
type mortal struct {
	lock.Locker

	gone chan struct{}
}

func (m mortal) Gone() <-chan struct{} { return m.gone }

// Each client of a lock whose process ends has crashed then: nothing is done for it any more, and the others go on.
func TestClientsCrashWithTheProcessOfTheirLock(t *testing.T) {
	const end = 2 * time.Second
	var b bytes.Buffer
	c := workload.Config{Clients: 4, Lease: 50 * time.Millisecond, Careless: true}
	synctest.Test(t, func(t *testing.T) {
		r := history.NewRecorder(&b)
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		l := memory.New()
		dies := mortal{l, make(chan struct{})}
		time.AfterFunc(end, func() { close(dies.gone) })
		workload.Run(ctx, c, []workload.Zone{{Name: "zone-a", Locker: dies}, {Name: "zone-b", Locker: l}}, r, &workload.Processes{})
		require.NoError(t, r.Close())
	})
	h, err := history.ReadAll(&b)
	require.NoError(t, err)
	crashed := map[int]bool{}
	after := map[string]int{}
	for i := range h.Events {
		e := &h.Events[i]
		if e.Op == history.Crash {
			require.GreaterOrEqual(t, e.Time, end)
			require.Less(t, e.Time, end+time.Millisecond, "at once")
			crashed[e.Process] = true
			continue
		}
		if e.Time > end+time.Millisecond && e.Type != history.Invoke {
			after[e.Owner[:len("zone-a")]]++
		}
		if crashed[e.Process] {
			require.False(t, e.Op == history.Access && e.Type == history.OK, "line %d: an access of a process that has crashed", i+1)
			require.NotEqual(t, history.Invoke, e.Type, "line %d: a request of a process that has crashed", i+1)
		}
	}
	require.Len(t, crashed, 2, "both clients of the zone")
	require.Positive(t, after["zone-b"], "the clients of the other zone go on")
	require.LessOrEqual(t, after["zone-a"], 2, "what was under way ends, and nothing begins")
}
