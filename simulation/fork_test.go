package simulation_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/simulation"
	"github.com/lockchaos/lockchaos/topologies"
)

// A run that forks is the one without the fork until then, and another one for most seeds from then on.
// With the race detector the runtime shuffles what goroutines do, so that no run comes again. Without the exact build it
// chooses once in some 200 runs which of two clients goes on first that end at one instant, so that one of the twelve may differ.
func TestFork_NoRace(t *testing.T) {
	l := spec(t, "mutex")
	others, same := 0, 0
	for seed := range uint64(12) {
		c, err := simulation.Campaign{Topology: []string{topologies.Single, topologies.Sentinels}[seed%2], Faults: "network,process"}.Draw(l, seed)
		require.NoError(t, err)
		o := run(t, l, c)
		whole, err := o.Read()
		require.NoError(t, err)
		middle := whole.Events[len(whole.Events)/2].Time
		c.Fork = &simulation.Fork{At: middle + 1, Seed: seed + 100}
		o = run(t, l, c)
		forked, err := o.Read()
		require.NoError(t, err)
		before := func(h *history.History) (events []history.Event) {
			for _, e := range h.Events {
				if e.Time <= middle {
					events = append(events, e)
				}
			}
			return events
		}
		if assert.ObjectsAreEqual(before(whole), before(forked)) {
			same++
		}
		if len(whole.Events) != len(forked.Events) || whole.End() != forked.End() {
			others++
		}
		if simulation.Exact() {
			require.Equal(t, o.Hash, run(t, l, c).Hash)
		}
	}
	if simulation.Exact() {
		require.Equal(t, 12, same)
	}
	require.Greater(t, same, 8)
	require.Greater(t, others, 8)
	other := quiet(topologies.Single, l)
	forked := other
	forked.Fork = &simulation.Fork{Seed: 9}
	other.Seed = 9
	start := func(c simulation.Case) []history.Event {
		o := run(t, l, c)
		h, err := o.Read()
		require.NoError(t, err)
		return h.Events[:20]
	}
	require.Equal(t, start(other), start(forked), "what forks at the beginning is the run of the other seed")
	bad := quiet(topologies.Single, l)
	bad.Fork = &simulation.Fork{At: -time.Second}
	_, err := simulation.Run(new(testing.T), l, bad)
	require.ErrorContains(t, err, "no time may be below 0")
}
