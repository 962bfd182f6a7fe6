package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockchaos/lockchaos/chaos"
	"github.com/lockchaos/lockchaos/lock"
)

// A lock that is asked once at a time becomes a [lock.Locker], which clients can
// also wait for. Its own errors are told by Means.
func ExampleTries() {
	var mu sync.Mutex
	errTaken := errors.New("taken")
	locker := chaos.Tries(func(context.Context, string, time.Duration) (chaos.Grant, error) {
		if !mu.TryLock() {
			return chaos.Grant{}, chaos.Means(errTaken, errTaken, lock.ErrNotAcquired)
		}
		return chaos.Grant{Release: func(context.Context) error { mu.Unlock(); return nil }}, nil
	})
	ctx := context.Background()
	hold, err := locker.Acquire(ctx, "orders", lock.Options{Lease: time.Minute})
	fmt.Println(err)
	_, err = locker.Acquire(ctx, "orders", lock.Options{Lease: time.Minute, Wait: 20 * time.Millisecond})
	fmt.Println(err)
	fmt.Println(hold.Release(ctx))
	// Output:
	// <nil>
	// lock not acquired: taken
	// <nil>
}
