package reports_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports"
)

// downgraded is a writer that goes on as a reader on a server that forgot it as a writer, so
// that it is granted the one and refused the release of the other.
func downgraded() reports.Input {
	s := &script{}
	s.declareAs("orders", history.Event{Kind: "rw"})
	from := len(s.events)
	s.acquire(1, "orders", "a#1", "redis-1", 10, 11, 2000)
	s.fault(history.Inject, "restart-empty", "redis-1", 20, 30, history.OK, "redis-1 was killed, lost its data and answers again", "")
	s.attempt(1, history.Release, "orders", "a#1", 51, 52, history.Fail, "lock: not held")
	for i := range s.events[from:] {
		if e := &s.events[from+i]; e.Owner != "" {
			e.Mode = history.Write
		}
	}
	from = len(s.events)
	s.acquire(1, "orders", "a#1", "redis-1", 40, 50, 2000)
	s.release(1, "orders", "a#1", "redis-1", 70, 71)
	for i := range s.events[from:] {
		s.events[from+i].Mode = history.Read
	}
	r := run()
	r.Lock, r.Command = "rwmutex", "lockchaos run --lock rwmutex"
	return judged(r, s.history())
}

// A client that lost one of its two holds of a lock lost that which it was refused to give
// back, and not the later one.
func TestStory_TellsTheHoldThatWasLost(t *testing.T) {
	t.Parallel()
	c := reports.Summarize(downgraded()).Causes
	require.Len(t, c, 1)
	require.Equal(t, "restart-empty", c[0].Fault)
	require.Equal(t, "Client a lost orders 1,958 ms before its lease could run out", c[0].Story.Headline)
	require.Equal(t, "client a was granted orders (write) by redis-1 and was entitled to hold it until 2.010 s", c[0].Story.Events[0].Text)
	last := c[0].Story.Events[len(c[0].Story.Events)-1]
	require.Equal(t, "client a was told that it does not hold orders (write), in answer to its release", last.Text)
	require.NotContains(t, c[0].Story.String(), "(read)")
	require.NotEmpty(t, c[0].Cures, "the server forgot it while it was held")

	var steps, leaves []string
	for _, step := range c[0].Sequence.Steps {
		steps = append(steps, step.Text)
	}
	require.Contains(t, steps, "acquire orders (write)")
	require.Contains(t, steps, "release orders (write)")
	for _, w := range c[0].Why.Because[0].Because {
		leaves = append(leaves, w.Text)
	}
	require.Equal(t, "client a was granted orders (write) by redis-1; client a was refused the release of orders (write)", strings.Join(leaves, "; "))
}

// The story of too many permits says how many each grant had, so that the reader can add them.
func TestStory_SaysHowManyPermits(t *testing.T) {
	t.Parallel()
	s := &script{}
	s.declareAs("orders", history.Event{Kind: history.KindSemaphore, Capacity: 2})
	s.acquire(1, "orders", "a#1", "redis-1", 10, 11, 5000)
	s.in(func(e *history.Event) { e.Mode, e.Permits = history.Permit, 2 })
	s.acquire(2, "orders", "b#1", "redis-1", 20, 21, 5000)
	s.mode(history.Permit)
	r := reports.Summarize(judged(run(), s.history()))
	require.Len(t, r.Causes, 1)
	require.Contains(t, r.Story.Events[0].Text, "client a was granted orders (2 permits) by redis-1")
	require.Contains(t, r.Story.Events[1].Text, "client b was granted orders (permit) by redis-1")
	require.Equal(t, "acquire orders (2 permits)", r.Causes[0].Sequence.Steps[0].Text)
}
