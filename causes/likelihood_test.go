package causes_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/causes"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/simulation"
)

// Whichever event decides a violation is found: before it one run in ten shows the violation, and after it all do.
func TestLikelihood_FindsWhatDecides(t *testing.T) {
	t.Parallel()
	for n := range 40 {
		var events []history.Event
		for i := range 2 * (3 + rand.IntN(100)) { // two at once
			events = append(events, history.Event{Time: time.Duration(i/2)*time.Millisecond + time.Duration(i%2), Process: i, Type: history.Invoke, Op: history.Acquire, Lock: "a"})
		}
		until := events[len(events)-1].Time
		decides := events[2*rand.IntN(len(events)/2)].Time
		played := 0
		find := func(_ context.Context, c simulation.Case) ([]string, error) {
			played++
			if c.Fork == nil || c.Fork.At > decides && decides > 0 || c.Fork.Seed%10 == 0 {
				return []string{"double-grant"}, nil
			}
			return nil, nil
		}
		c := history.Cause{Kind: "double-grant"}
		require.NoError(t, causes.Likelihood(t.Context(), &c, simulation.Case{Seed: 7, Length: time.Hour}, events, until, find))
		if decides == 0 {
			require.Contains(t, c.Likelihood, "no instant decided it")
			continue
		}
		require.Contains(t, c.Likelihood, "2 of 20 show it from the beginning, and 20 of 20 from", "run %d", n)
		at := int(decides / time.Millisecond)
		require.Contains(t, c.Likelihood, fmt.Sprintf("with what happened at %.3f s: process %d asked to acquire a, and process %d asked to acquire a", decides.Seconds(), 2*at, 2*at+1), "run %d", n)
		require.Less(t, played, 20*20)
	}
}

// Where no event decides it, none is named; and what can't be played is an error.
func TestLikelihood_NamesNoEvent(t *testing.T) {
	t.Parallel()
	var events []history.Event
	for i := range 100 {
		events = append(events, history.Event{Time: time.Duration(i) * time.Millisecond, Process: history.NoProcess, Type: history.Invoke, Op: history.Inject, Fault: "pause", Target: "redis-1"})
	}
	until := events[99].Time
	slowly := func(_ context.Context, c simulation.Case) ([]string, error) {
		if c.Fork == nil || c.Fork.Seed%20 <= uint64(20*c.Fork.At/until) {
			return []string{"stuck"}, nil
		}
		return nil, nil
	}
	c := history.Cause{Kind: "stuck"}
	require.NoError(t, causes.Likelihood(t.Context(), &c, simulation.Case{Length: time.Hour}, events, until, slowly))
	require.NotContains(t, c.Likelihood, "with what happened")
	require.Contains(t, c.Likelihood, "no instant decided it")
	require.Equal(t, history.ArmFrom, c.Arms[0].Arm)
	require.Zero(t, c.Arms[0].From)
	c = history.Cause{Kind: "double-grant"}
	require.NoError(t, causes.Likelihood(t.Context(), &c, simulation.Case{Length: time.Hour}, events, until, slowly))
	require.Equal(t, history.Cause{Kind: "double-grant"}, c, "of what the run itself does not show")
	require.Error(t, causes.Likelihood(t.Context(), &c, simulation.Case{}, events, until, func(context.Context, simulation.Case) ([]string, error) {
		return nil, context.DeadlineExceeded
	}))
}

// What happened is told in words, and the completion of a fault is none of its own.
func TestLikelihood_TellsWhatHappened(t *testing.T) {
	t.Parallel()
	for words, happened := range map[string][]history.Event{
		"the fault kill-client zone-a began, and client a got no certain answer to its release of l, and client a crashed": {
			{Process: history.NoProcess, Op: history.Inject, Type: history.Invoke, Fault: "kill-client", Target: "zone-a"},
			{Process: history.NoProcess, Op: history.Inject, Type: history.OK, Fault: "kill-client", Target: "zone-a"},
			{Op: history.Release, Type: history.Info, Owner: "a#1", Lock: "l"},
			{Op: history.Crash, Type: history.Info, Owner: "a#1"},
		},
		"client a was told that it lost l": {{Op: history.Lost, Type: history.OK, Owner: "a#1", Lock: "l"}},
	} {
		for i := range happened {
			happened[i].Time = time.Second + time.Duration(i)
		}
		find := func(_ context.Context, c simulation.Case) (kinds []string, err error) {
			if c.Fork == nil || c.Fork.At > time.Second {
				kinds = []string{"double-grant"}
			}
			return kinds, nil
		}
		c := history.Cause{Kind: "double-grant"}
		require.NoError(t, causes.Likelihood(t.Context(), &c, simulation.Case{Length: time.Hour}, happened, 2*time.Second, find))
		require.True(t, strings.HasSuffix(c.Likelihood, "with what happened at 1.000 s: "+words), c.Likelihood)
	}
}
