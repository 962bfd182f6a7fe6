package main

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"
)

// batch does jobs, several at a time, in their order as far as they begin one by one. The first error ends it: no further job begins, and the
// context of those under way ends. It waits for all and returns the most severe of the errors; that ctx ended is none.
func batch[J any](ctx context.Context, workers int, jobs []J, do func(context.Context, J) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	errs := make([]error, len(jobs))
	for i, job := range jobs {
		group.Go(func() error {
			if ctx.Err() == nil {
				errs[i] = do(ctx, job)
			}
			return errs[i]
		})
	}
	_ = group.Wait() // which has the first of them
	var severest error
	for _, err := range errs {
		severest = mostSevere(severest, err)
	}
	return severest
}

// mostSevere is the worst of two errors, of which one that says no more than that
// the user ended it hides no other.
func mostSevere(a, b error) error {
	if errors.Is(a, context.Canceled) {
		a, b = b, a
	}
	return worst(a, b)
}
