package reports

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/history"
)

// A request that was open when the record ended was not answered then.
func TestOpenRequestsAreNoAnswers(t *testing.T) {
	t.Parallel()
	h := &history.History{}
	ask := func(process int, from, to time.Duration) {
		h.Events = append(h.Events, history.Event{Process: process, Type: history.Invoke, Op: history.Acquire, Lock: "l", Owner: "o", Time: from})
		if to > 0 {
			h.Events = append(h.Events, history.Event{Process: process, Type: history.OK, Op: history.Acquire, Lock: "l", Owner: "o", Time: to})
		}
	}
	ask(1, 0, time.Second)
	for process := range 50 {
		ask(2+process, 2*time.Second, 0)
	}
	ask(1, 3*time.Second, 4*time.Second)
	for i := range h.Events {
		h.Events[i].Index = int64(i)
	}
	m := newModel(Input{History: h})
	answered := 0.0
	for _, counts := range m.answers(m.whole()) {
		for _, n := range counts {
			answered += n
		}
	}
	require.InDelta(t, 2, answered, 0)
}
