package locktests

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/locktest"
	"github.com/lockchaos/lockchaos/lock/redistest"
	"github.com/lockchaos/lockchaos/topologies"
)

// deployment starts a topology of real servers, for the length of a test.
func deployment(t *testing.T, name string, o topologies.Options) topologies.Deployment {
	t.Helper()
	if testing.Short() {
		t.Skip("needs real servers; -short leaves them out")
	}
	top, err := topologies.New(name, o)
	require.NoError(t, err)
	d, err := runtest.Backend{}.Start(t.Context(), top)
	if errors.Is(err, topologies.ErrMissing) && os.Getenv(redistest.Required) == "" {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

// clients are those of a zone: one, or one for each independent server.
func clients(t *testing.T, d topologies.Deployment, zone string) []redis.UniversalClient {
	t.Helper()
	o := d.ClientOptions(zone)
	// No fault of a network is looked at here, and the machine may be busy: a few
	// connections do, and a link that doesn't reach its server at once is dialled again. A
	// request is repeated as by default: a client of a cluster that asks a dead node for the
	// slots repeats each of the repetitions, which took it 50 s with ten.
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = patient, patient, patient
	o.PoolSize, o.DialerRetries = 8, 5
	all := topologies.Clients(o)
	t.Cleanup(func() {
		for _, rdb := range all {
			require.NoError(t, rdb.Close())
		}
	})
	return all
}

const (
	// shortWatchdog is a lease in which a busy machine gets something done, and so are
	// watchful and leisurely, where many things are done at the same time.
	shortWatchdog = 3 * time.Second
	watchful      = 5 * time.Second
	leisurely     = 2 * time.Second
)

var prefixes atomic.Int64

// apart is a prefix that no other client has.
func apart() string { return fmt.Sprintf("p%d", prefixes.Add(1)) }

// pair is two locks of one deployment as one, or one on each of the first two
// independent servers.
func pair(t *testing.T, servers []redis.UniversalClient, prefix string) lock.Locker {
	t.Helper()
	c := lock.Config{Prefix: prefix, Watchdog: watchful}
	first := newClient(t, servers[0], c)
	c.Prefix += "-too" // it may be on the same server
	second := newClient(t, servers[min(1, len(servers)-1)], c)
	return lock.LockerFunc(func(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
		m, err := lock.NewMultiLock(lock.Member{Locker: first, Name: name}, lock.Member{Locker: second, Name: name, Deployment: "2"})
		if err != nil {
			return nil, err
		}
		return m.Acquire(ctx, o)
	})
}

// redlock lives on several independent servers.
func redlock() family {
	return family{
		"Redlock",
		locktest.Features{Reentrant: true, SplitVotes: true, Watchdog: watchful, Lease: leisurely, Apart: true, Callers: 40},
		func(t *testing.T, servers []redis.UniversalClient, prefix string) lock.Locker {
			t.Helper()
			r, err := lock.NewRedlock(servers, lock.RedlockConfig{
				Prefix: prefix, Watchdog: watchful, RetryDelay: 10 * time.Millisecond, NodeTimeout: patient,
			})
			require.NoError(t, err)
			t.Cleanup(r.Close)
			return r
		},
	}
}

// steady are options with which nothing fails over by itself.
func steady(name string) topologies.Options {
	if name == topologies.Cluster {
		return topologies.Options{NodeTimeout: 10 * time.Second}
	}
	return topologies.Options{}
}

// What locks promise on each deployment. A change tests the contract of two families on
// each, and all of them are tested every night: what differs between deployments are the
// clients, which the families share.
func TestLocksOnEveryDeployment(t *testing.T) {
	t.Parallel()
	for _, name := range topologies.NamesOf(topologies.StoreRedis) {
		if name == topologies.Single { // as in TestLocksKeepTheContract
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := deployment(t, name, steady(name))
			servers := clients(t, d, "zone-a")
			all := families()
			switch {
			case len(servers) > 1:
				all = []family{redlock(), all[len(all)-1]}
			case !runtest.Nightly():
				all = []family{all[rand.IntN(len(all))], all[rand.IntN(len(all))]}
			}
			t.Run("contract", func(t *testing.T) {
				for _, f := range all {
					t.Run(f.name, func(t *testing.T) {
						t.Parallel()                     // a check waits for leases, mostly
						f.features.Lease = 2 * leisurely // the way to a server is longer
						f.keepsTheContract(t, servers)
					})
				}
			})
			if name == topologies.Cluster {
				t.Run("a slot moves", func(t *testing.T) { slotMoves(t, d) })
				t.Run("a slot stays moving", func(t *testing.T) { slotStaysMoving(t, d) })
			}
			if d.Topology().Elects() {
				t.Run("a graceful failover", func(t *testing.T) { gracefulFailover(t, d) })
				t.Run("a crash of the master", func(t *testing.T) { masterCrashes(t, d) })
			}
		})
	}
}

// A hold that replicas have outlives a failover that nothing forces, and its
// watchdog goes on renewing it on the new master.
func gracefulFailover(t *testing.T, d topologies.Deployment) {
	t.Helper()
	// The failover may take a second, in which no renewal succeeds.
	c := newClient(t, clients(t, d, "zone-a")[0], lock.Config{ReplicaAcks: 1, AckTimeout: 2 * time.Second, Watchdog: 15 * time.Second})
	shard := d.Topology().Shards()[0]
	key := lockAt(t, d, shard)
	h, err := c.Acquire(t.Context(), key, lock.Options{})
	require.NoError(t, err)
	require.NoError(t, d.Promote(t.Context(), shard))
	master, err := d.AwaitMaster(t.Context(), shard, shard)
	require.NoError(t, err)
	require.NoError(t, d.Disarm(t.Context()))
	require.NoError(t, d.AwaitReady(t.Context()))
	require.NotEqual(t, shard, master)
	other := newClient(t, clients(t, d, "zone-b")[0], lock.Config{})
	redistest.Await(t, "the other client to see that the lock is held", func() bool {
		_, err := other.Acquire(t.Context(), key, lock.Options{Lease: long})
		return errors.Is(err, lock.ErrNotAcquired)
	})
	require.NoError(t, h.Extend(t.Context(), time.Minute), "the new master knows of the hold")
	require.NoError(t, h.Release(t.Context()))
}

// After a crash of the master the lock can be had again, by any client that asks: a
// failover leaves no orphan behind (redisson #4822).
func masterCrashes(t *testing.T, d topologies.Deployment) {
	t.Helper()
	a := newClient(t, clients(t, d, "zone-a")[0], lock.Config{Watchdog: shortWatchdog})
	b := newClient(t, clients(t, d, "zone-b")[0], lock.Config{Watchdog: shortWatchdog})
	holder := newClient(t, clients(t, d, "zone-a")[0], lock.Config{Watchdog: shortWatchdog})
	// Another shard than that of the failover before, if there is one.
	shards := d.Topology().Shards()
	shard := shards[len(shards)-1]
	master, err := d.AwaitMaster(t.Context(), shard, "")
	require.NoError(t, err)
	key := lockAt(t, d, master)
	h, err := holder.Acquire(t.Context(), key, lock.Options{})
	require.NoError(t, err)
	require.NoError(t, d.Arm(t.Context()))
	if len(shards) > 1 { // a cluster, in which nothing failed over by itself so far, is in no hurry
		for _, name := range d.Topology().Of(topologies.Redis) {
			require.NoError(t, d.Server(name).Observer().ConfigSet(t.Context(), "cluster-node-timeout", "2000").Err())
		}
	}
	require.NoError(t, d.Server(master).Kill(t.Context()))
	_, err = d.AwaitMaster(t.Context(), shard, master)
	require.NoError(t, err)
	require.NoError(t, d.Disarm(t.Context()))
	holder.Close() // it is gone, whatever the new master knows of its hold
	<-h.Lost()
	for _, c := range []*lock.Client{b, a, b} {
		redistest.Await(t, "the lock", func() bool {
			h, err := c.Acquire(t.Context(), key, lock.Options{Wait: time.Second})
			return err == nil && h.Release(t.Context()) == nil
		})
	}
}

// lockAt is the name of a lock that lives on a server.
func lockAt(t *testing.T, d topologies.Deployment, server string) string {
	t.Helper()
	at := d.Server(server).Observer()
	for i := range 1000 {
		name := fmt.Sprintf("orders-%d", i)
		if !redis.HasErrorPrefix(at.Get(t.Context(), name).Err(), "MOVED") {
			return name
		}
	}
	t.Fatalf("no lock lives on %s", server)
	return ""
}

func optionsOf(n *redistest.Name) *redis.Options {
	o := &redis.Options{}
	n.Use(o)
	return o
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
