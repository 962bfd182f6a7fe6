package main

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports"
	"github.com/lockchaos/lockchaos/scenarios"
	"github.com/lockchaos/lockchaos/simulation"
	"github.com/lockchaos/lockchaos/simulation/world"
)

// A script whose clients use the resource after the end of their holds proves no lost
// update of the lock, unless the simulated clients could not notice the end either. What
// the lock itself answered is proved by it in any case.
func TestDoubt(t *testing.T) {
	run := func(events ...history.Event) reports.Input {
		granted := history.Event{Op: history.Acquire, Type: history.OK, Owner: "a#1", Expires: time.Second}
		return reports.Input{History: &history.History{Events: append([]history.Event{granted}, events...)}}
	}
	access := func(at time.Duration) history.Event {
		return history.Event{Op: history.Access, Type: history.OK, Owner: "a#1", Time: at}
	}
	told := history.Event{Op: history.Lost, Type: history.OK, Owner: "a#1", Time: time.Millisecond}
	lost := scenarios.Scenario{Expect: scenarios.Expectation{Violation: checker.LostUpdate}}
	double := scenarios.Scenario{Expect: scenarios.Expectation{Violation: checker.DoubleGrant}}
	paused := simulation.Case{Plan: []world.Fault{{Name: world.PauseClient}}}
	require.Empty(t, doubt(simulation.Case{}, lost, run(access(time.Second)), nil))
	require.Contains(t, doubt(simulation.Case{}, lost, run(access(time.Second+1)), nil), "a#1 use the resource after the end of its hold")
	require.NotEmpty(t, doubt(simulation.Case{}, lost, run(told, access(2*time.Millisecond)), nil))
	require.Empty(t, doubt(simulation.Case{}, double, run(access(time.Second+1)), nil))
	require.Empty(t, doubt(paused, lost, run(access(time.Second+1)), nil))
	require.Empty(t, doubt(simulation.Case{Careless: true}, lost, run(access(time.Second+1)), nil))
	require.Equal(t, "it differs", doubt(paused, lost, run(), errors.New("it differs")))
}
