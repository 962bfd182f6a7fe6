package reports_test

import (
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
	r := reports.Summarize(downgraded())
	require.Equal(t, "Client a was told that it does not hold the lock orders, 1,958 ms before its lease was over", r.Story.Headline)
	require.Contains(t, r.Story.Events[0].Text, "client a was granted orders (write) by redis-1 (lease 2,000 ms, until 2.010 s)")
	last := r.Story.Events[len(r.Story.Events)-1]
	require.Equal(t, "client a was refused the release of orders (write)", last.Text)
	require.Equal(t, reports.EventViolation, last.Kind)
	require.NotContains(t, r.Story.String(), "(read)")
	require.Contains(t, r.Story.InEffectText, "restart-empty redis-1 (at 0.030 s)")
	require.NotEmpty(t, r.Story.Cures)

	var steps []string
	for _, step := range r.Sequence.Steps {
		steps = append(steps, step.Text)
	}
	require.Contains(t, steps, "acquire orders (write)")
	require.Contains(t, steps, "release orders (write)")
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
	require.Contains(t, r.Story.Events[0].Text, "client a was granted orders (2 permits) by redis-1")
	require.Contains(t, r.Story.Events[1].Text, "client b was granted orders (permit) by redis-1")
	require.Equal(t, "acquire orders (2 permits)", r.Sequence.Steps[0].Text)
}
