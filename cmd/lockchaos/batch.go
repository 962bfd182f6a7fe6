package main

import (
	"context"
	"sync"

	"github.com/lockchaos/lockchaos/internal/crew"
)

// A worker does the jobs of a batch, one after the other.
type worker[J any] struct {
	do  func(context.Context, J) error
	end func() error // once, after its last job; nil: nothing is left to end
}

// batch has several workers do jobs, which begin in their order. The first error ends
// it: no further job begins, and the context of those under way ends. It waits for
// all workers and returns the most severe of the errors; that ctx ended is none. A panic
// of a worker is passed on.
func batch[J any](ctx context.Context, workers int, jobs []J, open func(context.Context) (worker[J], error)) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var mu sync.Mutex
	var severest error
	fail := func(err error) {
		if err == nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		severest = mostSevere(severest, err)
		stop()
	}
	queue := make(chan J)
	all := crew.Crew{Failed: stop}
	for range min(workers, len(jobs)) {
		all.Go(func() {
			w, err := open(ctx)
			if err != nil {
				fail(err)
				return
			}
			if w.end != nil {
				defer func() { fail(w.end()) }()
			}
			for job := range queue {
				if ctx.Err() != nil {
					return
				}
				if err := w.do(ctx, job); err != nil {
					fail(err)
					return
				}
			}
		})
	}
	enqueue(ctx, queue, jobs)
	all.Wait()
	return severest
}

// enqueue hands out jobs until they are all taken or the context ends.
func enqueue[J any](ctx context.Context, queue chan<- J, jobs []J) {
	defer close(queue)
	for _, job := range jobs {
		select {
		case queue <- job:
		case <-ctx.Done():
			return
		}
	}
}

// alike opens workers that need nothing of their own.
func alike[J any](do func(context.Context, J) error) func(context.Context) (worker[J], error) {
	return func(context.Context) (worker[J], error) { return worker[J]{do: do}, nil }
}
