package simredis_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/internal/traffic"
	"github.com/lockchaos/lockchaos/simulation/world"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/process"
)

// Keys of the first two shards of a cluster.
const (
	ofFirst  = "b" // slot 3300
	ofSecond = "c" // slot 7365
)

// An asked cluster is one that can be asked, real or simulated.
type askedCluster struct {
	nodes []string // by name, from redis-1
	at    func(name string) *redis.Client
	// alias replaces addresses and IDs by names, which both clusters have.
	alias func(text string) string
}

// named is a cluster whose nodes have these names, by address.
func named(t *testing.T, nodes []string, at func(name string) *redis.Client, nodeAt func(address string) string) askedCluster {
	t.Helper()
	slots, err := at(nodes[0]).ClusterSlots(t.Context()).Result() //nolint:staticcheck // the simulated cluster answers this, as clients ask it
	require.NoError(t, err)
	var names []string
	for _, s := range slots {
		for _, n := range s.Nodes {
			name := nodeAt(n.Addr)
			names = append(names, n.ID, name, n.Addr, name, strings.Replace(n.Addr, ":", " ", 1), name)
		}
	}
	require.Len(t, names, 6*len(nodes))
	return askedCluster{nodes, at, strings.NewReplacer(names...).Replace}
}

// ask asks every node that is up the same, and returns the answers, one for each line.
func (a askedCluster) ask(t *testing.T, nodes ...string) []string {
	t.Helper()
	var answers []string
	for _, name := range nodes {
		conn := a.at(name).Conn()
		for _, request := range []string{
			"CLUSTER SLOTS", "SET {b}k v", "GET {b}k", "SET {c}k v", "GET {c}k", "DEL {b}k", "MSET {b}x 1 {c}x 2",
			"EVAL return(redis.call('incr',KEYS[1])) 1 {b}n", "EVAL return(1) 2 {b}n {c}n", "EVAL return(redis.call('get',KEYS[1])) 1 {b}absent",
			"READONLY", "GET {b}n", "GET {c}k", "SET {b}n 7", "READWRITE", "GET {b}n", "SELECT 1",
			"MULTI", "SET {b}m 1", "SET {c}m 1", "EXEC",
		} {
			args := []any{}
			for w := range strings.FieldsSeq(request) {
				args = append(args, w)
			}
			reply, err := conn.Do(t.Context(), args...).Result()
			text := fmt.Sprint(reply)
			if err != nil {
				text = err.Error()
			}
			answers = append(answers, name+" "+request+": "+a.alias(text))
		}
		a.replicated(t, conn)
		require.NoError(t, conn.Close())
	}
	return answers
}

// replicated waits until the replicas of a node have what was written by a connection,
// since they are asked next.
func (a askedCluster) replicated(t *testing.T, conn *redis.Conn) {
	t.Helper()
	role, err := conn.Do(t.Context(), "ROLE").Slice()
	require.NoError(t, err)
	if role[0] != "master" {
		return
	}
	replicas := len(role[2].([]any))
	n, err := conn.Wait(t.Context(), replicas, time.Minute).Result()
	require.NoError(t, err)
	require.EqualValues(t, replicas, n)
}

// knows reports whether a node serves, knows that redis-4 has the slots of redis-1, and the replicas of the others, and, once
// that is back, takes it for a replica.
func (a askedCluster) knows(ctx context.Context, node string, back bool) error {
	if err := a.at(node).Get(ctx, ofFirst).Err(); err != nil && strings.HasPrefix(err.Error(), "CLUSTERDOWN") {
		return fmt.Errorf("%s says: %w", node, err)
	}
	slots, err := a.at(node).Do(ctx, "CLUSTER", "SLOTS").Slice()
	if err != nil {
		return fmt.Errorf("ask %s: %w", node, err)
	}
	for _, other := range slots[1:] { // on a busy machine a replica is taken for failed for a while, and left out
		if served, _ := other.([]any); len(served) < 4 {
			return fmt.Errorf("%s says: %s", node, a.alias(fmt.Sprint(slots)))
		}
	}
	text := a.alias(fmt.Sprint(slots[0]))
	if !strings.HasPrefix(text, "[0 5460 [redis-4 ") || strings.Contains(text, "redis-1") != back {
		return fmt.Errorf("%s says: %s", node, text)
	}
	role, err := a.at(node).Do(ctx, "ROLE").Slice()
	if err == nil && role[0] == "slave" && role[3] != "connected" {
		err = fmt.Errorf("%s says: %v", node, role)
	}
	return err
}

// play is the same on both: all is well, redis-1 dies and is replaced, and comes back.
func (a askedCluster) play(t *testing.T, kill, restart func()) (answers [][]string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	all, left := a.nodes, slices.DeleteFunc(slices.Clone(a.nodes), func(n string) bool { return n == "redis-1" })
	answers = append(answers, a.ask(t, all...))
	kill()
	for _, name := range left {
		require.NoError(t, await.Until(ctx, func() error { return a.knows(ctx, name, false) }))
	}
	answers = append(answers, a.ask(t, left...))
	restart()
	for _, name := range all {
		require.NoError(t, await.Until(ctx, func() error { return a.knows(ctx, name, true) }))
	}
	return append(answers, a.ask(t, all...))
}

// A simulated cluster answers its clients as a real one does: before a failover, while a
// master is gone, and when it is back as a replica.
func TestClusterAnswersAsARealOne(t *testing.T) {
	if testing.Short() {
		t.Skip("needs real servers; -short leaves them out")
	}
	if _, err := process.Find(t.Context(), topologies.StoreRedis); err != nil && os.Getenv("LOCKCHAOS_TEST_REQUIRE") == "" {
		t.Skip("there is no real cluster to compare with: ", err)
	}
	simulated := simulatedCluster(t)
	topology, err := topologies.New(topologies.Cluster, topologies.Options{})
	require.NoError(t, err)
	d, err := process.Backend{}.Start(t.Context(), topology)
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	if !strings.HasPrefix(d.Version(), "7.0.") {
		t.Skip("the simulated servers are those of Redis 7.0, and not of " + d.Version())
	}
	require.NoError(t, d.AwaitReady(t.Context()))
	genuine := named(t, topology.Of(topologies.Redis), func(name string) *redis.Client { return d.Server(name).Observer() }, d.NodeAt)
	server := d.Server("redis-1")
	answers := genuine.play(t, func() { require.NoError(t, server.Kill(t.Context())) }, func() { require.NoError(t, server.Restart(t.Context())) })
	for i, when := range []string{"before", "while redis-1 is gone", "when redis-1 is back"} {
		require.Len(t, simulated[i], len(answers[i]))
		for j := range answers[i] {
			if answers[i][j] != simulated[i][j] {
				t.Errorf("%s:\n%s, and simulated\n%s", when, answers[i][j], simulated[i][j])
			}
		}
	}
	require.Contains(t, strings.Join(answers[0], "\n"), "MOVED 7365 redis-2")
	require.Contains(t, strings.Join(answers[1], "\n"), "MOVED 3300 redis-4")
	require.Contains(t, strings.Join(answers[2], "\n"), "CROSSSLOT")
}

// simulatedCluster plays it in a simulation.
func simulatedCluster(t *testing.T) (answers [][]string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := world.New(1, []world.Fault{{Name: world.Kill, Target: "redis-1", Keep: true, At: time.Second, For: 10 * time.Second}})
		var nodes []*world.Node
		var names []string
		for i := range 6 {
			names = append(names, fmt.Sprintf("redis-%d", i+1))
			nodes = append(nodes, w.AddServer(names[i]))
		}
		w.Cluster(3, 0)
		z := w.AddZone("zone-a")
		require.NoError(t, w.Start())
		clients := map[string]*redis.Client{}
		for _, n := range nodes {
			clients[n.Name()] = redis.NewClient(&redis.Options{
				Addr: n.Address(), Dialer: z.Dialer(), MaxRetries: -1, DialerRetries: 1, PoolSize: 100,
				DisableIdentity: true, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
			})
		}
		a := named(t, names, func(name string) *redis.Client { return clients[name] }, w.NodeName)
		begin := time.Now()
		at := func(d time.Duration) func() { return func() { time.Sleep(time.Until(begin.Add(d))) } }
		answers = a.play(t, at(time.Second+time.Millisecond), at(11*time.Second+time.Millisecond))
		for _, c := range clients {
			require.NoError(t, c.Close())
		}
		time.Sleep(time.Minute)
		w.Close()
	})
	return answers
}

func TestShardOf(t *testing.T) {
	for _, x := range []struct{ slot, shard int }{{0, 0}, {5460, 0}, {5461, 1}, {10921, 1}, {10922, 2}, {16383, 2}} {
		require.Equal(t, x.shard, world.ShardOf(x.slot, 3), x.slot)
	}
	require.Zero(t, world.ShardOf(traffic.KeySlot(ofFirst), 3))
	require.Equal(t, 1, world.ShardOf(traffic.KeySlot(ofSecond), 3))
}
