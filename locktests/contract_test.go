package locktests

import (
	"context"
	"net"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/locktest"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

// A family is a kind of lock that keeps the contract.
type family struct {
	name     string
	features locktest.Features
	open     func(t *testing.T, servers []redis.UniversalClient, prefix string) lock.Locker
}

// families are those that live on one deployment: the kinds that exclude each other, and
// several of them as one.
func families() (all []family) {
	for _, k := range kinds() {
		if k.shared { // it is shared
			continue
		}
		all = append(all, family{
			k.name,
			locktest.Features{
				Reentrant: k.reentrant, Fenced: k.name == "FencedMutex",
				Watchdog: watchful, Lease: leisurely, Apart: true, Callers: 60,
			},
			func(t *testing.T, servers []redis.UniversalClient, prefix string) lock.Locker {
				t.Helper()
				c := newClient(t, servers[0], lock.Config{Prefix: prefix, Watchdog: watchful})
				if k.reentrant {
					return k.of(c)
				}
				return single(c)
			},
		})
	}
	return append(all, family{"MultiLock", all[0].features, pair})
}

// single is a semaphore of one permit as a lock.
func single(c *lock.Client) lock.Locker {
	return lock.LockerFunc(func(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
		s := c.Semaphore(name)
		if name != "" {
			if _, err := s.TrySetPermits(context.WithoutCancel(ctx), 1); err != nil {
				return nil, err
			}
		}
		return s.Lease(ctx, 1, o)
	})
}

func (f family) keepsTheContract(t *testing.T, servers []redis.UniversalClient) {
	t.Helper()
	locktest.Run(t, func(t *testing.T) lock.Locker {
		t.Helper()
		return f.open(t, servers, apart())
	}, f.features)
}

func TestLocksKeepTheContract(t *testing.T) {
	t.Parallel()
	for i, f := range families() {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			if i == 0 {
				f.features.Callers = 1000
			}
			f.keepsTheContract(t, []redis.UniversalClient{redistest.Start(t).Client(t, nil)})
		})
	}
	t.Run("Mutex, acknowledged by a replica", func(t *testing.T) {
		t.Parallel()
		s := redistest.Start(t)
		s.Replica(t)
		f := families()[0]
		f.open = func(t *testing.T, servers []redis.UniversalClient, prefix string) lock.Locker {
			t.Helper()
			return newClient(t, servers[0], lock.Config{Prefix: prefix, Watchdog: watchful, ReplicaAcks: 1, AckTimeout: attentive})
		}
		f.keepsTheContract(t, []redis.UniversalClient{s.Client(t, nil)})
	})
	t.Run("Redlock, two of five servers dead", func(t *testing.T) {
		t.Parallel()
		q := startQuorum(t, 5)
		for _, s := range q[:2] {
			s.Kill()
		}
		redlock().keepsTheContract(t, q.clients(t))
	})
}

// A cluster client spreads the locks over two servers, each of which has half of
// the slots.
func TestShardsAreRenewedApart(t *testing.T) {
	t.Parallel()
	shards := []*redistest.Server{redistest.Start(t), redistest.Start(t)}
	cluster := func(t *testing.T) *redis.ClusterClient {
		t.Helper()
		rdb := redis.NewClusterClient(&redis.ClusterOptions{
			ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
				return []redis.ClusterSlot{
					{Start: 0, End: 8191, Nodes: []redis.ClusterNode{{Addr: "shard:0"}}},
					{Start: 8192, End: 16383, Nodes: []redis.ClusterNode{{Addr: "shard:1"}}},
				}, nil
			},
			Dialer: func(ctx context.Context, _, addr string) (net.Conn, error) {
				return shards[addr[len(addr)-1]-'0'].Dial(ctx)
			},
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		})
		t.Cleanup(func() { require.NoError(t, rdb.Close()) })
		return rdb
	}
	t.Run("a shard that is gone does not hold up the renewals of the other", func(t *testing.T) {
		c := newClient(t, cluster(t), lock.Config{Watchdog: shortWatchdog})
		hold := func(name string) *lock.Hold {
			h, err := c.Acquire(t.Context(), name, lock.Options{})
			require.NoError(t, err)
			return h
		}
		here, gone := hold("{b}"), hold("{a}") // slots 3300 and 15495
		shards[1].Kill()
		happened(t, gone.Lost(), "the loss of a hold on a server that is gone")
		select {
		case <-here.Lost():
			t.Fatal("a hold on the other server was lost")
		default:
		}
		require.NoError(t, here.Release(t.Context()))
	})
	t.Run("acknowledged by a replica", func(t *testing.T) {
		shards[0].Replica(t)
		// A busy machine took longer than shortWatchdog for a renewal that is acknowledged.
		c := newClient(t, cluster(t), lock.Config{ReplicaAcks: 1, Watchdog: 3 * shortWatchdog})
		h, err := c.Acquire(t.Context(), "{b}", lock.Options{})
		require.NoError(t, err)
		end := h.Lease().Expires
		redistest.Await(t, "a renewal", func() bool {
			select {
			case <-h.Lost():
				t.Fatal("the hold was lost")
			default:
			}
			return h.Lease().Expires.After(end)
		})
		require.NoError(t, h.Release(t.Context()))
	})
}
