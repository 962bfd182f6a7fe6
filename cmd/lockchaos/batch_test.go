package main

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
)

func TestBatch(t *testing.T) {
	t.Parallel()
	broken := harnessError{errors.New("heal cut: it is still cut")}
	jobs := []int{1, 2, 3, 4, 5}
	t.Run("all jobs in their order", func(t *testing.T) {
		var done []int
		require.NoError(t, batch(t.Context(), 1, jobs, func(_ context.Context, job int) error {
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
			require.NoError(t, batch(t.Context(), 3, jobs, func(context.Context, int) error {
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
		err := batch(t.Context(), 2, jobs, func(ctx context.Context, job int) error {
			begun.Add(1)
			if job == 2 {
				return broken
			}
			<-ctx.Done() // or the test hangs
			return harnessError{ctx.Err()}
		})
		require.Equal(t, broken, err, "and not that the others were ended for it")
		require.LessOrEqual(t, begun.Load(), int64(2))
	})
	t.Run("the end of the context is no error", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var done []int
		require.NoError(t, batch(ctx, 1, jobs, func(_ context.Context, job int) error {
			done = append(done, job)
			cancel()
			return nil
		}))
		require.Equal(t, []int{1}, done)
	})
	t.Run("what could not be undone is told of, whichever of several runs ended first", func(t *testing.T) {
		ended := harnessError{fmt.Errorf("boot: %w", context.Canceled)}
		require.Equal(t, broken, mostSevere(ended, broken))
		require.Equal(t, broken, mostSevere(broken, ended))
		require.Equal(t, broken, mostSevere(verdictError(exitInvalid), broken))
		require.Equal(t, ended, mostSevere(ended, nil))
		require.Equal(t, ended, mostSevere(nil, ended))
		require.NoError(t, mostSevere(nil, nil))
	})
}
