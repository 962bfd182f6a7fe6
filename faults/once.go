package faults

import (
	"context"
	"sync"
)

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
