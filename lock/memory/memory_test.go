package memory_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/internal/require"
	"github.com/lockchaos/lockchaos/lock/locktest"
	"github.com/lockchaos/lockchaos/lock/memory"
)

func TestContract(t *testing.T) {
	f := locktest.Features{Reentrant: true, Fenced: true, Lease: time.Second, Watchdog: time.Minute}
	for _, c := range locktest.Checks(f) {
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				require.NoError(t, c.Run(t.Context(), memory.New()))
			})
		})
	}
}

func TestWaitersAreServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memory.New()
		first, err := l.Acquire(t.Context(), "orders", lock.Options{})
		require.NoError(t, err)
		var served []int
		for i := range 10 {
			go func() {
				h, err := l.Acquire(t.Context(), "orders", lock.Options{Wait: lock.Forever})
				if err == nil {
					served = append(served, i)
					err = h.Release(t.Context())
				}
				if err != nil {
					t.Error(err)
				}
			}()
			synctest.Wait()
		}
		require.NoError(t, first.Release(t.Context()))
		synctest.Wait()
		require.Equal(t, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, served)
	})
}

func TestWaiterThatLeavesDoesNotHoldUpTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memory.New()
		_, err := l.Acquire(t.Context(), "orders", lock.Options{Lease: time.Minute})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error)
		go func() {
			_, err := l.Acquire(ctx, "orders", lock.Options{Wait: lock.Forever})
			left <- err
		}()
		synctest.Wait()
		begin := time.Now()
		got := make(chan error)
		go func() {
			_, err := l.Acquire(t.Context(), "orders", lock.Options{Wait: lock.Forever})
			got <- err
		}()
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-left, context.Canceled)
		require.NoError(t, <-got)
		require.Equal(t, time.Minute, time.Since(begin), "the second waiter gets it when the lease ends")
	})
}

func TestReentryOutlivesTheFirstLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memory.New()
		short, err := l.Acquire(t.Context(), "orders", lock.Options{Owner: "a", Lease: time.Second})
		require.NoError(t, err)
		_, err = l.Acquire(t.Context(), "orders", lock.Options{Owner: "a", Lease: time.Minute})
		require.NoError(t, err)
		time.Sleep(2 * time.Second)
		require.ErrorIs(t, short.Release(t.Context()), lock.ErrNotHeld)
		_, err = l.Acquire(t.Context(), "orders", lock.Options{Owner: "b"})
		require.ErrorIs(t, err, lock.ErrNotAcquired)
		time.Sleep(time.Minute)
		_, err = l.Acquire(t.Context(), "orders", lock.Options{Owner: "b"})
		require.NoError(t, err)
	})
}

func Example() {
	ctx := context.Background()
	locks := memory.New()
	h, err := locks.Acquire(ctx, "orders", lock.Options{Owner: "alice"})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = locks.Acquire(ctx, "orders", lock.Options{Owner: "bob"})
	fmt.Println("bob:", err)
	fmt.Println("alice:", h.Release(ctx))
	// Output:
	// bob: acquire lock "orders": lock not acquired
	// alice: <nil>
}
