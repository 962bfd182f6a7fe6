package locktests

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

// behindAName starts a master and a replica, and returns a name that clients reach
// the master by, and a planned failover.
func behindAName(t *testing.T) (name *redistest.Name, failover func()) {
	t.Helper()
	master := redistest.Start(t)
	replica, _ := master.Replica(t)
	name = &redistest.Name{}
	name.Move(master)
	return name, func() {
		t.Helper()
		master.SwapWith(t, replica, func() { name.Move(replica) })
	}
}

// byName returns a client of the server behind a name.
func byName(t *testing.T, n *redistest.Name, c lock.Config) *lock.Client {
	t.Helper()
	rdb := redis.NewClient(optionsOf(n))
	t.Cleanup(func() { _ = rdb.Close() })
	return newClient(t, rdb, c)
}

func optionsOf(n *redistest.Name) *redis.Options {
	o := &redis.Options{}
	n.Use(o)
	return o
}

// After a planned failover behind a name the subscription of a client is still at
// the former master, which is a replica now and hears what its master publishes. A
// waiter holds the lock only if the server that grants it says so.
func TestMessageThatAReplicaHearsIsNoGrant(t *testing.T) {
	t.Parallel()
	name, failover := behindAName(t)
	holder, c := byName(t, name, lock.Config{}), byName(t, name, lock.Config{})
	rdb := redis.NewClient(optionsOf(name))
	defer rdb.Close()
	turn := func() (isHeld bool) {
		h := acquire(t, holder, "a", long)
		holds := granting(t.Context(), t, c, lock.Options{Owner: "b", Wait: lock.Forever})
		// Who is refused makes the lock a hash.
		redistest.Await(t, "refusal", func() bool { return rdb.Type(t.Context(), "lock:{orders}").Val() == "hash" })
		require.NoError(t, h.Release(t.Context()))
		next := <-holds
		require.NotNil(t, next)
		defer func() { _ = next.Release(t.Context()) }()
		isHeld, err := holder.Mutex("orders").IsHeldBy(t.Context(), "b")
		require.NoError(t, err)
		return isHeld
	}
	for range 2 { // then the client has subscribed
		require.True(t, turn())
	}
	failover()
	for range 2 {
		require.True(t, turn(), "the waiter believes that it holds the lock, and the server says otherwise")
	}
}

// Clients that contend for a lock while a planned failover behind a name takes place
// never hold it at the same time, and hand it over as before it soon.
func TestPlannedFailoverBehindAName(t *testing.T) {
	t.Parallel()
	for kind, of := range map[string]func(c *lock.Client) *lock.Mutex{
		"mutex":  func(c *lock.Client) *lock.Mutex { return c.Mutex("orders") },
		"fenced": func(c *lock.Client) *lock.Mutex { return &c.FencedMutex("orders").Mutex },
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			name, failover := behindAName(t)
			var inside, grants, overlaps, notHeld atomic.Int64
			var workers sync.WaitGroup
			stop := make(chan struct{})
			stopped := sync.OnceFunc(func() { close(stop) })
			defer workers.Wait()
			defer stopped()
			for i := range 4 {
				c := byName(t, name, lock.Config{})
				workers.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
						}
						h, err := of(c).Acquire(t.Context(), lock.Options{Owner: fmt.Sprint(i), Lease: long, Wait: time.Minute})
						if err != nil {
							continue // the failover
						}
						grants.Add(1)
						if inside.Add(1) > 1 {
							overlaps.Add(1)
						}
						<-time.After(time.Millisecond) // others come and look
						inside.Add(-1)
						if errors.Is(h.Release(t.Context()), lock.ErrNotHeld) {
							notHeld.Add(1)
						}
					}
				})
			}
			more := func(n int64, what string) {
				t.Helper()
				before := grants.Load()
				redistest.Await(t, what, func() bool { return grants.Load() >= before+n })
			}
			more(200, "grants before the failover")
			failover()
			more(1, "a grant after the failover")
			more(200, "more of them")
			stopped()
			workers.Wait()
			require.Zero(t, overlaps.Load(), "of %d grants", grants.Load())
			require.Zero(t, notHeld.Load(), "of %d grants", grants.Load())
		})
	}
}

// A client that listens to every channel is none to which a lock can be handed over.
func TestListenerToAllChannelsIsNoWaiter(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	all := rdb.PSubscribe(t.Context(), "*")
	defer all.Close()
	_, err := all.Receive(t.Context())
	require.NoError(t, err)
	c := open(t, s, lock.Config{})
	h := acquire(t, c, "a", long)
	draw(t, rdb, ticket("gone", "gone", "x", 60_000, 0), true)
	require.NoError(t, h.Release(t.Context()))
	again, err := c.Mutex("orders").Acquire(t.Context(), lock.Options{Owner: "b", Lease: long})
	require.NoError(t, err)
	require.NoError(t, again.Release(t.Context()))
}
