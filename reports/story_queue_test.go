package reports_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports"
)

// renumbered is a fair lock whose server is killed between two grants, so that the request that
// comes later gets the earlier place. The server was killed at an instant in milliseconds.
func renumbered(killed float64, more func(s *script)) reports.Input {
	s := &script{}
	s.declareAs("orders", history.Event{Fair: true})
	s.acquire(1, "orders", "a#1", "redis-1", 10, 11, 900)
	s.queued(17)
	s.release(1, "orders", "a#1", "redis-1", 12, 13)
	if killed > 0 {
		s.fault(history.Inject, "kill", "redis-1", killed, killed+2, history.OK, "redis-1 is gone", "")
		s.fault(history.Heal, "kill", "redis-1", 200, 210, history.OK, "redis-1 answers again", "")
	}
	s.acquire(2, "orders", "b#1", "redis-1", 300, 301, 900)
	s.queued(16)
	s.release(2, "orders", "b#1", "redis-1", 310, 311)
	if more != nil {
		more(s)
	}
	r := run()
	r.Lock, r.Command = "mine", "lockchaos run --lock mine --topology sentinel"
	return judged(r, s.history())
}

// A request that was sent when another had been granted was not overtaken by it: a queue that
// a server lost in between gave the places anew.
func TestStory_TellsAQueueThatBeganAnew(t *testing.T) {
	t.Parallel()
	r := reports.Summarize(renumbered(20, nil))
	require.Len(t, r.Causes, 1)
	require.Equal(t, "kill", r.Causes[0].Fault)
	told := r.Story.String()
	require.Equal(t, "A later request for orders got an earlier place in its queue", r.Story.Headline)
	require.NotContains(t, told, "overtook")
	require.Contains(t, told, "When client b asked, client a had been granted the lock already: its place is too early, which counts as overtaking.")
	require.Contains(t, told, "append-only file")
	require.Equal(t, "redis-1 was killed", r.Causes[0].Why.Because[1].Because[0].Text)

	told = reports.Summarize(renumbered(0, nil)).Story.String()
	require.Contains(t, told, "Look at what counts the places of the queue")
}

// Of several, a request that was overtaken is told first, however short.
func TestStory_TellsTheRequestThatWasOvertaken(t *testing.T) {
	t.Parallel()
	r := reports.Summarize(renumbered(0, func(s *script) {
		s.acquire(3, "orders", "c#1", "redis-1", 400, 421, 900)
		s.queued(18)
		s.acquire(4, "orders", "d#1", "redis-1", 401, 411, 900)
		s.queued(19)
		s.release(4, "orders", "d#1", "redis-1", 415, 416)
	}))
	require.Equal(t, "Client d overtook client c in the queue of orders, by 10 ms", r.Story.Headline)
}

// What began before a fault is not told with two times that read the same.
func TestStory_TellsNoOrderOfEqualInstants(t *testing.T) {
	t.Parallel()
	s := &script{}
	jumped(s)
	s.fault(history.Inject, "latency", "redis-1", 801.0002, 802, history.OK, "seen", "")
	told := reports.Summarize(judged(run(), s.history())).Story.String()
	require.Contains(t, told, "The fault does not explain it, as far as the record shows.")
}
