package reports_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/reports"
)

// What a story has no room for is what explains least: the faults that made a grant unknown to the
// next master are told, and the cure is the one that is missing.
func TestTheFaultsThatExplainAreTold(t *testing.T) {
	in := acknowledgedByAnother()
	r := reports.Summarize(in)
	story := r.Story.String()
	require.Contains(t, story, "At 0.012 s the link redis-2>redis-1 was cut (1 link refusing) (1 event not told here).")
	require.Contains(t, story, "At 0.402 s the link sentinel-1>redis-3 was cut")
	require.Contains(t, story, "At 0.834 s redis-2 was promoted to master and knew nothing of that grant")
	require.NotContains(t, story, "connected again")

	why := told(r.Causes[0].Why)
	require.Contains(t, why, "the key that redis-1 had for client a had not reached redis-2\nthe link redis-2>redis-1 was cut (1 link refusing)\nthe grant counted although redis-2 had not acknowledged it")
	cure := r.Causes[0].Cures[0]
	require.Empty(t, cure.Config, "the text has it")
	require.Equal(t, "each grant waits for the slowest replica, and none is made while one is away", cure.Cost)
}

// A use after the lease is told with the update that it cost, also if that was begun in time.
func TestTheDamageOfALateUseIsTold(t *testing.T) {
	for value, lost := range map[string]bool{"0>1": true, "1>2": false} {
		s := &script{}
		s.declare("orders")
		s.acquire(1, "orders", "a#1", "redis-1", 10, 11, 1000)
		s.access(1, "orders", "a#1", "stock", value, 20, 1577)
		s.acquire(2, "orders", "b#1", "redis-1", 1500, 1559, 30000)
		s.access(2, "orders", "b#1", "stock", "0>1", 1561, 1562)
		s.access(1, "orders", "a#1", "stock", "1>2", 1579, 1593)
		story := reports.Summarize(judged(run(), s.history())).Story
		require.Contains(t, story.Headline, "after its time on orders was over")
		const told = "After its time was over, client a (at 1.577 s) and client b (at 1.562 s) changed stock, which both had read as 0: one of the two updates is lost."
		if lost {
			require.Contains(t, story.Outcome, told)
		} else {
			require.NotContains(t, story.String(), "one of the two updates is lost")
		}
	}
}
