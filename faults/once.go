package faults

import (
	"context"
	"sync"
	"time"
)

// undoTimeout bounds how long an injection that failed may take to undo what
// it had begun.
const undoTimeout = 10 * time.Second

// Undo is the context for undoing what a failed injection had begun: it does
// not end with the run, but after ten seconds.
func Undo(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
}

// Once makes a heal that ends its fault at the first call that succeeds, and
// does nothing from then on.
func Once(heal Heal) Heal {
	var mu sync.Mutex
	done := false
	return func(ctx context.Context) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		if done {
			return "", nil
		}
		effect, err := heal(ctx)
		done = err == nil
		return effect, err
	}
}
