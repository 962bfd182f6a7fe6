package campaign

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports"
	"github.com/lockchaos/lockchaos/scenarios"
	"github.com/lockchaos/lockchaos/simulation"
	"github.com/lockchaos/lockchaos/simulation/world"
)

func TestBatch(t *testing.T) {
	t.Parallel()
	broken := errors.New("heal cut: it is still cut")
	jobs := []int{1, 2, 3, 4, 5}
	t.Run("all jobs in their order", func(t *testing.T) {
		var done []int
		require.NoError(t, Batch(t.Context(), 1, jobs, func(_ context.Context, job int) error {
			done = append(done, job)
			return nil
		}))
		require.Equal(t, jobs, done)
	})
	t.Run("no more at a time than there are workers", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			now, most, all := 0, 0, 0
			count := func(change int) {
				mu.Lock()
				defer mu.Unlock()
				now += change
				most, all = max(most, now), all+max(change, 0)
			}
			require.NoError(t, Batch(t.Context(), 3, jobs, func(context.Context, int) error {
				count(1)
				time.Sleep(time.Second) // of virtual time
				count(-1)
				return nil
			}))
			require.Equal(t, 3, most)
			require.Equal(t, 5, all)
		})
	})
	t.Run("an error ends what is under way", func(t *testing.T) {
		var begun atomic.Int64
		err := Batch(t.Context(), 2, jobs, func(ctx context.Context, job int) error {
			begun.Add(1)
			if job == 2 {
				return broken
			}
			<-ctx.Done() // or the test hangs
			return ctx.Err()
		})
		require.Equal(t, broken, err, "and not that the others were ended for it")
		require.LessOrEqual(t, begun.Load(), int64(2))
	})
	t.Run("the end of the context is no error", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var done []int
		require.NoError(t, Batch(ctx, 1, jobs, func(_ context.Context, job int) error {
			done = append(done, job)
			cancel()
			return nil
		}))
		require.Equal(t, []int{1}, done)
	})
	t.Run("what could not be undone is told of, whichever ended first", func(t *testing.T) {
		both := make(chan struct{})
		require.Equal(t, broken, Batch(t.Context(), 2, jobs[:2], func(ctx context.Context, job int) error {
			if job == 1 {
				defer close(both)
				return fmt.Errorf("boot: %w", context.Canceled)
			}
			<-both
			<-ctx.Done() // which the first has ended
			return broken
		}))
	})
}

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
