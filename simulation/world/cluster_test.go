package world_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/simulation/world"
	"github.com/lockchaos/lockchaos/topologies"
)

// first is a key of the first shard of a cluster.
const first = "b"

// clustered runs a test with three masters and a replica of each, a client that follows
// the slots, and one of each node.
func clustered(t *testing.T, plan []world.Fault, test func(t *testing.T, rdb *redis.ClusterClient, node func(i int) *redis.Client, told *notices)) {
	t.Helper()
	logging.Disable()
	synctest.Test(t, func(t *testing.T) {
		w := world.New(1, plan)
		var told notices
		w.Notice = told.add
		var addresses []string
		for i := range 6 {
			addresses = append(addresses, w.AddServer(fmt.Sprintf("redis-%d", i+1)).Address())
		}
		w.Cluster(3, 0)
		z := w.AddZone("zone-a")
		require.NoError(t, w.Start())
		rdb, _ := topologies.Clients(&redis.UniversalOptions{
			Addrs: addresses, IsClusterMode: true, Dialer: z.Dialer(), MaxRetries: -1, DialerRetries: 1, PoolSize: 100, DisableIdentity: true,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		})[0].(*redis.ClusterClient)
		clients := map[int]*redis.Client{}
		node := func(i int) *redis.Client {
			if clients[i] == nil {
				clients[i] = redis.NewClient(options(z, addresses[i-1]))
			}
			return clients[i]
		}
		defer func() {
			require.NoError(t, rdb.Close())
			for _, c := range clients {
				require.NoError(t, c.Close())
			}
			time.Sleep(time.Minute)
			w.Close()
		}()
		test(t, rdb, node, &told)
	})
}

// until waits for something, and returns how long it took.
func until(t *testing.T, what func() bool) time.Duration {
	t.Helper()
	begin := time.Now()
	for !what() {
		require.Less(t, time.Since(begin), 20*time.Second)
		time.Sleep(10 * ms)
	}
	return time.Since(begin)
}

// notices keeps the roles that a world tells of.
type notices struct {
	mu  sync.Mutex
	all map[string][]string // the servers that got a role
}

func (n *notices) add(notice world.Notice) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.all == nil {
		n.all = map[string][]string{}
	}
	n.all[notice.Role] = append(n.all[notice.Role], notice.Server)
}

func (n *notices) of(role string) []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.all[role])
}

func (n *notices) promoted() []string { return n.of("master") }

// A master that is gone is replaced when the node timeout and an election have passed, and
// comes back as a replica.
func TestClusterReplacesAMaster(t *testing.T) {
	for _, name := range []string{world.Kill, world.Pause, world.CrashFailover} {
		f := world.Fault{Name: name, Target: "redis-1", Keep: true, At: 100 * ms, For: 5 * time.Second}
		clustered(t, []world.Fault{f}, func(t *testing.T, rdb *redis.ClusterClient, node func(int) *redis.Client, told *notices) {
			t.Helper()
			require.NoError(t, rdb.Set(t.Context(), first, "before", 0).Err())
			time.Sleep(100 * ms)
			took := until(t, func() bool { return len(told.promoted()) > 0 })
			require.Equal(t, []string{"redis-4"}, told.promoted())
			require.GreaterOrEqual(t, took, world.NodeTimeout+450*ms, "no replica asks for votes before")
			require.Less(t, took, 2*time.Second)
			until(t, func() bool { // a master that stood still carries out what waits for it before it knows
				return rdb.Set(t.Context(), first, "after", 0).Err() == nil && node(4).Get(t.Context(), first).Val() == "after"
			})
			until(t, func() bool {
				role, err := node(1).Do(t.Context(), "ROLE").Slice()
				return err == nil && role[0] == "slave" && role[3] == "connected"
			})
			require.Equal(t, []string{"redis-1"}, told.of("replica"))
			require.ErrorContains(t, node(1).Get(t.Context(), first).Err(), "MOVED 3300 ")
			one := node(4).Conn()
			defer one.Close()
			require.NoError(t, one.Set(t.Context(), first, "again", 0).Err())
			require.Equal(t, int64(1), one.Wait(t.Context(), 1, time.Second).Val(), "it has a replica again")
		})
	}
}

// A master that is back before it is missed stays one, and serves nothing for two seconds.
func TestClusterMasterThatRestarts(t *testing.T) {
	clustered(t, []world.Fault{{Name: world.Kill, Target: "redis-1", Keep: true, At: 100 * ms, For: 20 * ms}}, func(t *testing.T, rdb *redis.ClusterClient, node func(int) *redis.Client, told *notices) {
		t.Helper()
		require.NoError(t, rdb.Set(t.Context(), first, "v", 0).Err())
		time.Sleep(200 * ms)
		require.ErrorContains(t, node(1).Get(t.Context(), first).Err(), "CLUSTERDOWN The cluster is down")
		took := until(t, func() bool { return node(1).Get(t.Context(), first).Err() == nil })
		require.Greater(t, took, 1800*ms)
		require.Empty(t, told.promoted())
	})
}

// A master that reaches no other node serves nothing after the node timeout, before its
// replica is elected, and loses what it wrote until then.
func TestClusterSplitBrain(t *testing.T) {
	clustered(t, []world.Fault{{Name: world.SplitBrain, At: 100 * ms, For: 4 * time.Second}}, func(t *testing.T, rdb *redis.ClusterClient, node func(int) *redis.Client, told *notices) {
		t.Helper()
		require.NoError(t, rdb.Set(t.Context(), first, "v", 0).Err())
		time.Sleep(120 * ms)
		require.NoError(t, node(1).Set(t.Context(), first, "lost", 0).Err())
		took := until(t, func() bool { return node(1).Set(t.Context(), first, "lost", 0).Err() != nil })
		require.Greater(t, took, world.NodeTimeout/2)
		require.ErrorContains(t, node(1).Get(t.Context(), first).Err(), "CLUSTERDOWN")
		require.Empty(t, told.promoted(), "it refuses before it is replaced")
		until(t, func() bool { return len(told.promoted()) > 0 })
		require.Equal(t, "v", node(4).Get(t.Context(), first).Val())
		until(t, func() bool {
			role, err := node(1).Do(t.Context(), "ROLE").Slice()
			return err == nil && role[0] == "slave" && role[3] == "connected"
		})
	})
}

// Without a majority of the masters nothing is replaced, and nothing served.
func TestClusterWithoutAMajority(t *testing.T) {
	clustered(t, []world.Fault{
		{Name: world.Kill, Target: "redis-1", Keep: true, At: 100 * ms, For: 6 * time.Second},
		{Name: world.Kill, Target: "redis-2", Keep: true, At: 110 * ms, For: 6 * time.Second},
	}, func(t *testing.T, rdb *redis.ClusterClient, node func(int) *redis.Client, told *notices) {
		t.Helper()
		require.NoError(t, rdb.Ping(t.Context()).Err())
		time.Sleep(5 * time.Second)
		require.Empty(t, told.promoted())
		require.ErrorContains(t, node(3).Get(t.Context(), "a").Err(), "CLUSTERDOWN") // slot 15495
		until(t, func() bool { return rdb.Set(t.Context(), first, "v", 0).Err() == nil })
	})
}

// A bus that is cut between two nodes is nothing to a majority.
func TestClusterBus(t *testing.T) {
	clustered(t, []world.Fault{
		{Name: world.Cut, Target: "redis-1>redis-2/bus", At: 100 * ms, For: 3 * time.Second},
		{Name: world.Stall, Target: "redis-2>redis-1/bus", At: 100 * ms, For: 3 * time.Second},
	}, func(t *testing.T, rdb *redis.ClusterClient, node func(int) *redis.Client, told *notices) {
		t.Helper()
		require.NoError(t, rdb.Ping(t.Context()).Err())
		for range 40 {
			time.Sleep(100 * ms)
			require.NoError(t, node(1).Set(t.Context(), first, "v", 0).Err())
		}
		require.Empty(t, told.promoted())
	})
}

// A message reaches the subscribers of every node.
func TestClusterMessages(t *testing.T) {
	clustered(t, nil, func(t *testing.T, _ *redis.ClusterClient, node func(int) *redis.Client, _ *notices) {
		t.Helper()
		everywhere := node(6).Subscribe(t.Context(), "c")
		defer everywhere.Close()
		_, err := everywhere.Receive(t.Context())
		require.NoError(t, err)
		require.NoError(t, node(2).Publish(t.Context(), "c", "to all").Err())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		m, err := everywhere.ReceiveMessage(ctx)
		require.NoError(t, err)
		require.Equal(t, "to all", m.Payload)
	})
}

// The same seed is the same cluster.
func TestClusterSameSeed(t *testing.T) {
	var runs [2]string
	for i := range runs {
		clustered(t, []world.Fault{{Name: world.Kill, Target: "redis-2", At: 50 * ms, For: 3 * time.Second}}, func(t *testing.T, _ *redis.ClusterClient, node func(int) *redis.Client, _ *notices) {
			t.Helper()
			var b strings.Builder
			for range 100 {
				time.Sleep(50 * ms)
				fmt.Fprintln(&b, node(5).Set(t.Context(), "c", "v", 0).Err())
			}
			runs[i] = b.String()
		})
	}
	require.Contains(t, runs[0], "<nil>")
	require.Contains(t, runs[0], "MOVED")
	require.Equal(t, runs[0], runs[1])
}

// A client of a cluster does not repeat a request that a server may have carried out, also
// one that was redirected, and returns the error as it was. The clients of a run are those.
func TestClientOfAClusterRepeatsNothing(t *testing.T) {
	for _, fault := range []string{world.DropReply, world.DelayReply} {
		for name, incr := range map[string]func(ctx context.Context, rdb *redis.ClusterClient) error{
			"command": func(ctx context.Context, rdb *redis.ClusterClient) error { return rdb.Incr(ctx, "{b}n").Err() },
			"pipeline": func(ctx context.Context, rdb *redis.ClusterClient) error {
				var n *redis.IntCmd
				_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
					n = p.Incr(ctx, "{b}n")
					return nil
				})
				require.Equal(t, err, n.Err())
				return err
			},
			"transaction": func(ctx context.Context, rdb *redis.ClusterClient) error {
				_, err := rdb.TxPipelined(ctx, func(p redis.Pipeliner) error { return p.Incr(ctx, "{b}n").Err() })
				return err
			},
		} {
			t.Run(fault+"/"+name, func(t *testing.T) {
				plan := []world.Fault{{Name: fault, Target: "zone-a>redis-1", By: 10 * time.Second, After: &world.Anchor{Event: world.Request, Nth: 2}}}
				clustered(t, plan, func(t *testing.T, rdb *redis.ClusterClient, _ func(int) *redis.Client, _ *notices) {
					t.Helper()
					time.Sleep(ms)
					require.NoError(t, incr(t.Context(), rdb))
					err := incr(t.Context(), rdb)
					var network net.Error
					require.ErrorAs(t, err, &network)
					require.Equal(t, fault == world.DelayReply, network.Timeout())
					require.Equal(t, "2", rdb.Get(t.Context(), "{b}n").Val())
					require.NoError(t, incr(t.Context(), rdb))
				})
			})
		}
	}
}
