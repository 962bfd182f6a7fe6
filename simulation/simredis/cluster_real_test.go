package simredis_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/simulation/simredis"
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
	// alias replaces what only one of two clusters has by what both have.
	alias func(text string) string
}

// ask asks every node that is up the same, and returns the answers, one for each line.
func (a askedCluster) ask(t *testing.T, nodes ...string) []string {
	t.Helper()
	var answers []string
	for _, name := range nodes {
		conn := a.at(name).Conn()
		for _, request := range []string{
			"CLUSTER KEYSLOT " + ofSecond, "CLUSTER SLOTS", "CLUSTER SHARDS", "CLUSTER NODES", "CLUSTER MYID", "CLUSTER INFO",
			"SET {b}k v", "GET {b}k", "SET {c}k v", "GET {c}k", "DEL {b}k", "MSET {b}x 1 {c}x 2",
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
			answers = append(answers, name+" "+request+": "+a.plain(args, text))
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

var (
	offsets = regexp.MustCompile(`replication-offset:\d+`)
	ports   = regexp.MustCompile(`(endpoint|ip|port):\S+`)
)

// plain is an answer without what differs between two clusters of the same state.
func (a askedCluster) plain(args []any, text string) string {
	text = a.alias(text)
	switch what := fmt.Sprint(args...); what {
	case "CLUSTERNODES":
		var lines []string
		for line := range strings.Lines(text) {
			f := strings.Fields(line) // id address flags master ping pong epoch link slots
			lines = append(lines, strings.Join(append([]string{f[0], f[2], f[3]}, f[8:]...), " "))
		}
		slices.Sort(lines)
		return strings.Join(lines, "; ")
	case "CLUSTERSHARDS":
		text = ports.ReplaceAllString(offsets.ReplaceAllString(text, ""), "")
		shards := strings.Split(strings.ReplaceAll(text, "]", ""), "map[nodes:")
		slices.Sort(shards)
		return strings.Join(strings.Fields(strings.Join(shards, " / ")), " ")
	case "CLUSTERINFO":
		var lines []string
		for line := range strings.Lines(text) {
			name, _, _ := strings.Cut(line, ":")
			if slices.Contains([]string{"cluster_state", "cluster_slots_assigned", "cluster_known_nodes", "cluster_size"}, name) {
				lines = append(lines, strings.TrimSpace(line))
			}
		}
		return strings.Join(lines, " ")
	}
	return text
}

// failedOver reports whether a node knows that redis-4 has the slots of redis-1, which has
// failed, or is its replica.
func (a askedCluster) failedOver(ctx context.Context, node, old string) error {
	text, err := a.at(node).ClusterNodes(ctx).Result()
	if err != nil {
		return fmt.Errorf("ask %s: %w", node, err)
	}
	text = a.alias(text)
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		switch {
		case f[0] == "redis-1" && !strings.Contains(f[2], old), f[0] == "redis-4" && !strings.Contains(f[2], "master"), f[7] != "connected" && f[0] != "redis-1":
			return fmt.Errorf("%s says: %s", node, line)
		}
	}
	state, err := a.at(node).ClusterInfo(ctx).Result()
	if err == nil && !strings.Contains(state, "cluster_state:ok") {
		err = fmt.Errorf("%s says: %s", node, state)
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
		require.NoError(t, await.Until(ctx, func() error { return a.failedOver(ctx, name, "fail") }))
	}
	answers = append(answers, a.ask(t, left...))
	restart()
	for _, name := range all {
		require.NoError(t, await.Until(ctx, func() error { return a.failedOver(ctx, name, "slave") }))
	}
	for _, name := range all { // which each node learns when it has its data
		require.NoError(t, await.Until(ctx, func() error {
			text, err := a.at(name).Do(ctx, "CLUSTER", "SHARDS").Result()
			if err == nil && strings.Count(fmt.Sprint(text), "health:online") != len(all) {
				err = fmt.Errorf("%s says: %v", name, text)
			}
			return err
		}))
	}
	return append(answers, a.ask(t, all...))
}

// A simulated cluster answers its clients as a real one does: before a failover, while a
// master is gone, and when it is back as a replica.
func TestClusterAnswersAsARealOne(t *testing.T) {
	if testing.Short() {
		t.Skip("needs real servers; -short leaves them out")
	}
	if _, err := process.FindBinary(t.Context()); err != nil && os.Getenv("LOCKCHAOS_TEST_REQUIRE") == "" {
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
	nodes := topology.Of(topologies.Redis)
	var names []string
	for _, name := range nodes {
		id, err := d.Server(name).Observer().Do(t.Context(), "CLUSTER", "MYID").Text()
		require.NoError(t, err)
		names = append(names, id, name)
	}
	text, err := d.Server("redis-1").Observer().ClusterNodes(t.Context()).Result()
	require.NoError(t, err)
	for line := range strings.Lines(text) {
		address, _, _ := strings.Cut(strings.Fields(line)[1], "@")
		name := d.NodeAt(address)
		names = append(names, address, name, strings.Replace(address, ":", " ", 1), name)
	}
	genuine := askedCluster{nodes, func(name string) *redis.Client { return d.Server(name).Observer() }, strings.NewReplacer(names...).Replace}
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
			nodes = append(nodes, w.AddServer(fmt.Sprintf("redis-%d", i+1)))
		}
		w.Cluster(3, 0)
		z := w.AddZone("zone-a")
		require.NoError(t, w.Start())
		clients := map[string]*redis.Client{}
		a := askedCluster{at: func(name string) *redis.Client { return clients[name] }}
		for _, n := range nodes {
			clients[n.Name()] = redis.NewClient(&redis.Options{
				Addr: n.Address(), Dialer: z.Dialer(), MaxRetries: -1, DialerRetries: 1, PoolSize: 100,
				DisableIdentity: true, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
			})
			id, err := clients[n.Name()].Do(t.Context(), "CLUSTER", "MYID").Text()
			require.NoError(t, err)
			names = append(names, id, n.Name(), n.Address(), n.Name(), strings.Replace(n.Address(), ":", " ", 1), n.Name())
			a.nodes = append(a.nodes, n.Name())
		}
		a.alias = strings.NewReplacer(names...).Replace
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
	require.Zero(t, world.ShardOf(simredis.KeySlot(ofFirst), 3))
	require.Equal(t, 1, world.ShardOf(simredis.KeySlot(ofSecond), 3))
}
