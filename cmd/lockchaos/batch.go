package main

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/lockchaos/lockchaos/internal/crew"
)

// batch does jobs, several at a time, which begin in their order. The first error ends it: no further job begins, and the
// context of those under way ends. It waits for all and returns the most severe of the errors; that ctx ended is none. A
// panic of a job is passed on.
func batch[J any](ctx context.Context, workers int, jobs []J, do func(context.Context, J) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var mu sync.Mutex
	var severest error
	var next atomic.Int64
	all := crew.Crew{Failed: stop}
	for range min(workers, len(jobs)) {
		all.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(jobs) {
					return
				}
				if err := do(ctx, jobs[i]); err != nil {
					mu.Lock()
					severest = mostSevere(severest, err)
					mu.Unlock()
					stop()
				}
			}
		})
	}
	all.Wait()
	return severest
}
