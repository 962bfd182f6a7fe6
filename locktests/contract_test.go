package locktests

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/locktest"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

func TestMutexKeepsTheContract(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	locktest.Run(t, func(t *testing.T) lock.Locker {
		t.Helper()
		return open(t, s, lock.Config{Prefix: apart(), Watchdog: watchful})
	}, locktest.Features{Lease: leisurely, Apart: true, Reentrant: true, Watchdog: watchful})
}

func TestMutexWithReplicaAcksKeepsTheContract(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	s.Replica(t)
	locktest.Run(t, func(t *testing.T) lock.Locker {
		t.Helper()
		return open(t, s, lock.Config{Prefix: apart(), Watchdog: watchful, ReplicaAcks: 1, AckTimeout: attentive})
	}, locktest.Features{Lease: leisurely, Apart: true, Reentrant: true, Watchdog: watchful, Callers: 200})
}

// A cluster client spreads the locks over two servers, each of which has half of
// the slots.
func TestMutexOnTwoShardsKeepsTheContract(t *testing.T) {
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
	locktest.Run(t, func(t *testing.T) lock.Locker {
		t.Helper()
		return newClient(t, cluster(t), lock.Config{Prefix: apart(), Watchdog: watchful})
	}, locktest.Features{Lease: leisurely, Apart: true, Reentrant: true, Watchdog: watchful, Callers: 100})

	t.Run("a shard that is gone does not hold up the renewals of the other", func(t *testing.T) {
		c := newClient(t, cluster(t), lock.Config{Watchdog: shortWatchdog})
		hold := func(name string) *lock.Hold {
			h, err := c.Acquire(t.Context(), name, lock.Options{})
			require.NoError(t, err)
			return h
		}
		here, gone := hold("{b}"), hold("{a}") // slots 3300 and 15495
		shards[1].Kill()
		select {
		case <-gone.Lost():
		case <-time.After(time.Minute):
			t.Fatal("a hold on a server that is gone was believed in")
		}
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
