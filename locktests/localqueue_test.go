package locktests

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

// contend has workers take the lock in turns, each n times, and returns the
// order in which they had it. Two who hold it at once are a data race, and lose a
// count. They begin when each client has a place in the queue.
func contend(t *testing.T, s *redistest.Server, clients []*lock.Client, workers, n int, o lock.Options) (served []int) {
	t.Helper()
	rdb := s.Client(t, nil)
	first := acquire(t, open(t, s, lock.Config{}), "first", long)
	var all, asking sync.WaitGroup
	asking.Add(workers)
	errs := make(chan error, workers)
	for i := range workers {
		all.Go(func() {
			asking.Done()
			for range n {
				h, err := clients[i%len(clients)].Acquire(t.Context(), "orders", o)
				if err != nil {
					errs <- err
					return
				}
				served = append(served, i)
				if err := h.Release(t.Context()); err != nil {
					errs <- err
					return
				}
			}
		})
		if i < len(clients) {
			queued(t, rdb, int64(i+1))
		}
	}
	asking.Wait() // one that has not begun to ask takes no turns
	require.NoError(t, first.Release(t.Context()))
	all.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	require.Len(t, served, workers*n)
	return served
}

// Many goroutines of one client take turns with few requests, and clients take turns too, with equal shares. Beside other tests
// of the process a goroutine that waits to be run takes no turns: so this one has the process for itself.
func TestLockIsPassedOnInMemory(t *testing.T) {
	for clients, batch := range map[int]int{1: 0, 2: 0, 4: 8} {
		t.Run(fmt.Sprint(clients), func(t *testing.T) {
			s := redistest.Start(t)
			rdb := s.Client(t, nil)
			var cs []*lock.Client
			for range clients {
				cs = append(cs, open(t, s, lock.Config{Batch: batch}))
			}
			require.NoError(t, acquire(t, cs[0], "first", long).Release(t.Context())) // so that a script was run
			before := scriptsRun(t, rdb)
			const workers, each = 16, 200
			served := contend(t, s, cs, workers, each, lock.Options{Wait: time.Minute})
			commands := float64(scriptsRun(t, rdb)-before) / (workers * each)
			t.Logf("%.2f requests for each grant", commands)
			require.Less(t, commands, 1.0)
			left := slices.Repeat([]int{each}, workers)
			for _, who := range served {
				if left[who]--; left[who] == 0 {
					break
				}
			}
			for who, n := range left {
				require.Less(t, n, each/2, "worker %d of %d clients when another one was done", who, clients)
			}
			redistest.Await(t, "tidy server", func() bool { return len(keysLeft(t, rdb)) == 0 })
		})
	}
}

// A batch is no longer than it may be: the other client's ticket comes next.
func TestBatchIsBounded(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	holder := open(t, s, lock.Config{})
	const batch = 4
	c := listening(t, s, holder, lock.Config{Batch: batch})
	other := listening(t, s, holder, lock.Config{})
	h := acquire(t, holder, "a", long)
	var mu sync.Mutex
	var order []string
	var all sync.WaitGroup
	enter := func(name string, c *lock.Client, o lock.Options) {
		all.Go(func() {
			h, err := c.Acquire(t.Context(), "orders", o)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			order = append(order, name)
			mu.Unlock()
			if err := h.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	enter("mine", c, lock.Options{Wait: lock.Forever})
	queued(t, rdb, 1)
	for range 20 {
		enter("mine", c, lock.Options{Wait: lock.Forever})
	}
	enter("other", other, lock.Options{Owner: "b", Wait: lock.Forever})
	queued(t, rdb, 2)
	require.NoError(t, h.Release(t.Context()))
	all.Wait()
	for i, who := range order {
		if who == "other" {
			require.LessOrEqual(t, i, batch+1, "%v", order)
			return
		}
	}
	t.Fatalf("the other client was never served: %v", order)
}

// A grant without an owner may be passed on, so the owner in its lease is good for
// nothing but to tell grants apart: by that name no caller gets into a lock that is
// about to be another caller's.
func TestGrantWithoutAnOwnerCannotBeReentered(t *testing.T) {
	s := redistest.Start(t)
	c := open(t, s, lock.Config{})
	m := c.Mutex("orders")
	for range 2 { // the second one gets it from the server after a wait
		h, err := m.Acquire(t.Context(), within(lock.Forever, lock.Options{Lease: long}))
		require.NoError(t, err)
		next := granting(t.Context(), t, c, lock.Options{Lease: long, Wait: lock.Forever})
		queued(t, s.Client(t, nil), 1)
		_, err = m.Acquire(t.Context(), lock.Options{Owner: h.Lease().Owner, Lease: long})
		require.ErrorIs(t, err, lock.ErrNotAcquired)
		require.NoError(t, h.Release(t.Context()))
		second := <-next
		require.NotNil(t, second)
		_, err = m.Acquire(t.Context(), lock.Options{Owner: h.Lease().Owner, Lease: long})
		require.ErrorIs(t, err, lock.ErrNotAcquired)
		_, err = m.Acquire(t.Context(), lock.Options{Owner: second.Lease().Owner, Lease: long})
		require.ErrorIs(t, err, lock.ErrNotAcquired)
		require.NoError(t, second.Release(t.Context()))
	}
}

// A grant that the server has lost is passed on as often as any other, and then a holder is
// told. Holds are counted by grant: while the last holder of the lost one stands still, the
// server grants the lock anew, and those grants are passed on too.
func TestLostLockIsNotPassedOnForLong(t *testing.T) {
	t.Parallel()
	for _, batch := range []int{0, 4, 1 << 20} {
		t.Run(fmt.Sprint(batch), func(t *testing.T) { lostLock(t, batch) })
	}
}

func lostLock(t *testing.T, batch int) {
	t.Helper()
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	c := open(t, s, lock.Config{Batch: batch})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	lost := make(chan struct{})
	var once sync.Once
	var mu sync.Mutex
	held, of := 0, map[time.Time]int{} // by the end of the lease, which a grant keeps when it is passed on
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for ctx.Err() == nil {
				h, err := c.Acquire(ctx, "orders", lock.Options{Wait: lock.Forever})
				if err != nil {
					continue
				}
				mu.Lock()
				held++
				of[h.Lease().Expires]++
				mu.Unlock()
				if h.Release(context.WithoutCancel(ctx)) != nil {
					once.Do(func() { close(lost) })
				}
			}
		})
	}
	redistest.Await(t, "many holds", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return held > 2000
	})
	redistest.Await(t, "a held lock", func() bool {
		return rdb.Eval(t.Context(), "return redis.call('DEL', KEYS[1])", []string{"lock:{orders}"}).Val() == int64(1)
	})
	select {
	case <-lost:
	case <-time.After(time.Minute):
		t.Error("no caller was told")
	}
	cancel()
	all.Wait()
	if batch == 0 {
		batch = 128
	}
	require.Greater(t, held, len(of), "no grant was passed on")
	for ends, holds := range of {
		require.LessOrEqual(t, holds, 1+batch, "of the grant until %v", ends)
	}
}
