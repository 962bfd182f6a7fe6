package lock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/fence"
)

func Example() { //nolint:testableexamples // needs a server
	ctx := context.Background()
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	locks, err := lock.New(rdb, lock.Config{})
	if err != nil {
		return
	}
	defer locks.Close()

	h, err := locks.Mutex("orders").Acquire(ctx, lock.Options{Wait: 5 * time.Second})
	if errors.Is(err, lock.ErrNotAcquired) {
		return // another client is at it
	}
	if err != nil {
		return // it is not known whether the lock was granted
	}
	defer func() { _ = h.Release(ctx) }() // in the background, if ctx is cancelled by then

	work, cancel := h.Context(ctx) // ends when the lock is lost or released
	defer cancel()
	_ = work
}

// A lock that was taken without a lease and is never released is renewed until
// its client goes; TestWatchdogKeepsALockThatIsNeverReleased does this for real.
func ExampleMutex_Acquire_neverReleased() { //nolint:testableexamples // needs a server
	ctx := context.Background()
	locks, _ := lock.New(redis.NewClient(&redis.Options{}), lock.Config{})
	_, _ = locks.Mutex("orders").Acquire(ctx, lock.Options{Wait: lock.Forever})
	time.Sleep(time.Minute)
	state, _ := locks.Mutex("orders").State(ctx)
	fmt.Println(state.TTL > 0) // true, and so it goes on
	locks.Close()              // from now on the lock lasts for 30s at most
}

// A lease that is shorter than the work lets the next one in, and the first
// one's release says so; TestLeaseShorterThanTheWork does this for real.
func ExampleMutex_Acquire_leaseTooShort() { //nolint:testableexamples // needs a server
	ctx := context.Background()
	locks, _ := lock.New(redis.NewClient(&redis.Options{}), lock.Config{})
	first, _ := locks.Mutex("orders").Acquire(ctx, lock.Options{Lease: 10 * time.Second, Wait: lock.Forever})
	second, _ := locks.Mutex("orders").Acquire(ctx, lock.Options{Lease: time.Minute, Wait: lock.Forever}) // after 10s
	<-first.Lost()                                                                                        // was closed before that
	fmt.Println(errors.Is(first.Release(ctx), lock.ErrNotHeld))                                           // true
	_ = second.Release(ctx)
}

// With the watchdog the work may take as long as it takes: no other client gets in,
// and the release succeeds; TestWatchdogOutlivesTheWork does this for real.
func ExampleMutex_Acquire_watchdog() { //nolint:testableexamples // needs a server
	ctx := context.Background()
	locks, _ := lock.New(redis.NewClient(&redis.Options{}), lock.Config{})
	h, _ := locks.Mutex("orders").Acquire(ctx, lock.Options{Wait: lock.Forever})
	time.Sleep(time.Minute)
	_, err := locks.Mutex("orders").Acquire(ctx, lock.Options{})
	fmt.Println(errors.Is(err, lock.ErrNotAcquired)) // true
	fmt.Println(h.Release(ctx))                      // <nil>
}

// Do is all that most programs need.
func ExampleDo() { //nolint:testableexamples // needs a server
	ctx := context.Background()
	locks, _ := lock.New(redis.NewClient(&redis.Options{Addr: "localhost:6379"}), lock.Config{})
	defer func() { _ = locks.Shutdown(ctx) }()
	err := lock.Do(ctx, locks, "orders", lock.Options{Wait: time.Minute}, func(ctx context.Context) error {
		return ctx.Err() // the work, which ends when ctx does
	})
	fmt.Println(errors.Is(err, lock.ErrNotAcquired))
}

func ExampleFencedMutex() { //nolint:testableexamples // needs a server
	ctx := context.Background()
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	locks, err := lock.New(rdb, lock.Config{})
	if err != nil {
		return
	}
	defer locks.Close()
	guard, err := fence.NewRedis(rdb, fence.Config{})
	if err != nil {
		return
	}

	h, err := locks.FencedMutex("stock").Acquire(ctx, lock.Options{Lease: 10 * time.Second, Wait: lock.Forever})
	if err != nil {
		return
	}
	defer func() { _ = h.Release(ctx) }()
	// Here the process may be paused for a minute, and another client work on the
	// stock. Its token is greater than ours.
	err = guard.Set(ctx, "stock", 42, h.Lease().Token)
	if errors.Is(err, fence.ErrStale) {
		return // nothing was written: our lease is over
	}
}

// One of several processes leads at a time.
func ExampleFencedMutex_leader() { //nolint:testableexamples // needs a server
	ctx := context.Background()
	locks, err := lock.New(redis.NewClient(&redis.Options{Addr: "localhost:6379"}), lock.Config{})
	if err != nil {
		return
	}
	defer func() { _ = locks.Shutdown(ctx) }() // gives up what is left

	for ctx.Err() == nil {
		leads, err := locks.FencedMutex("scheduler").Acquire(ctx, lock.Options{Owner: "node 7", Wait: lock.Forever})
		if err != nil {
			return
		}
		work, cancel := leads.Context(ctx)
		<-work.Done() // the work of the leader, until it leads no more
		cancel()
		_ = leads.Release(ctx)
	}
}

func ExampleClient_RWMutex() { //nolint:testableexamples // needs a server
	ctx := context.Background()
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	locks, err := lock.New(rdb, lock.Config{})
	if err != nil {
		return
	}
	defer locks.Close()
	prices := locks.RWMutex("prices", lock.RWOptions{PreferWriters: true})

	// Write, and go on reading with all the others what was written.
	me := lock.Options{Owner: "importer-1"}
	w, err := prices.Write().Acquire(ctx, me)
	if err != nil {
		return
	}
	r, err := prices.Read().Acquire(ctx, me) // before the write is given back, so that no other writer comes between
	_ = w.Release(ctx)
	if err != nil {
		return
	}
	defer func() { _ = r.Release(ctx) }()
}
