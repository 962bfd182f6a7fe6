package bootstrap

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/internal/traffic"
	"github.com/lockchaos/lockchaos/topologies"
)

// cluster is a Redis Cluster, whose masters vote about each other. It has one
// speed, its node timeout, so that there is nothing to arm.
type cluster struct {
	*deployment
	steady

	mu      sync.Mutex
	elected map[string]time.Time // when a node was seen to have become a master
}

func (*cluster) who() string { return "the masters" }

// votes asks every server that takes itself for a master who serves the shard.
// More than half of the shards must agree, and more than half of those who
// vote: while a master is cut off, it votes for itself, and there is one more.
func (c *cluster) votes(ctx context.Context, shard string) (votes map[string]int, majority int) {
	votes = map[string]int{}
	voters := 0
	for _, name := range c.topology.Of(topologies.Redis) {
		if role, err := c.role(ctx, name); err != nil || role != topologies.Master {
			continue
		}
		if nodes, err := c.serving(ctx, name, shard); err == nil {
			votes[nodes[0]]++
			voters++
		}
	}
	return votes, max(voters, len(c.topology.Shards()))/2 + 1
}

// serving are the nodes that serve a shard as a node knows them: its master, and then those
// that it takes for replicas of that.
func (c *cluster) serving(ctx context.Context, name, shard string) ([]string, error) {
	ranges, err := c.observer(name).ClusterSlots(ctx).Result() //nolint:staticcheck // it tells addresses as clients of a cluster learn them
	if err != nil {
		return nil, fmt.Errorf("ask %s who serves the slots: %w", name, err)
	}
	for _, r := range ranges {
		if slot := c.parts.Slots[shard]; r.Start <= slot && slot <= r.End && len(r.Nodes) > 0 {
			return names.Of(r.Nodes, func(n redis.ClusterNode) string { return c.NodeAt(n.Addr) }), nil
		}
	}
	return nil, fmt.Errorf("%s says that no node serves shard %s", name, shard)
}

func (c *cluster) agree(ctx context.Context, masters map[string]string) error {
	servers := c.topology.Of(topologies.Redis)
	for _, name := range servers {
		info, err := c.info(ctx, name)
		if err != nil {
			return &lacking{name, name + " to answer", err}
		}
		for _, want := range [][2]string{
			{"cluster_slots_assigned", strconv.Itoa(traffic.Slots)},
			{"cluster_slots_ok", strconv.Itoa(traffic.Slots)},
			{"cluster_known_nodes", strconv.Itoa(len(servers))},
			{"cluster_state", "ok"},
		} {
			if said := info[want[0]]; said != want[1] {
				return &lacking{name, name + " to see the cluster whole", fmt.Errorf("it says %s %s, and not %s", want[0], said, want[1])}
			}
		}
		for shard, master := range masters {
			nodes, err := c.serving(ctx, name, shard)
			if err == nil && nodes[0] != master {
				err = fmt.Errorf("it takes %s for it", nodes[0])
			}
			if err != nil {
				return &lacking{name, name + " to know that " + master + " is a master", err}
			}
		}
	}
	return nil
}

// info is what CLUSTER INFO of a node says.
func (d *deployment) info(ctx context.Context, name string) (map[string]string, error) {
	text, err := d.observer(name).ClusterInfo(ctx).Result()
	if err != nil {
		return nil, fmt.Errorf("ask %s for the cluster's state: %w", name, err)
	}
	return Info(text), nil
}

// Info reads what INFO and CLUSTER INFO say, and ZooKeeper's srvr.
func Info(text string) map[string]string {
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if field, value, ok := strings.Cut(line, ":"); ok {
			info[field] = strings.TrimSpace(value)
		}
	}
	return info
}

func (c *cluster) changed(master string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.elected[master] = time.Now()
}

// promote asks a replica of the shard to take over.
func (c *cluster) promote(ctx context.Context, shard string) error {
	for _, name := range c.topology.Members(shard) {
		if role, err := c.role(ctx, name); err != nil || role != topologies.Replica {
			continue
		}
		// Asked to take over before it has forgotten the election that it won last, Redis 7.0 counts the votes
		// of that election again: the node calls itself a master without any vote, is put right by the others,
		// and the master that it was to replace takes no writes for five seconds.
		c.mu.Lock()
		forgotten := c.elected[name].Add(max(4*c.topology.Options.NodeTimeout, leastMemory))
		c.mu.Unlock()
		if err := await.Pause(ctx, time.Until(forgotten)); err != nil {
			return err
		}
		if err := await.Until(ctx, func() error { return c.known(ctx, name, shard) }); err != nil {
			return err
		}
		return ask(ctx, func() error { return c.observer(name).ClusterFailover(ctx).Err() },
			"ERR You should send CLUSTER FAILOVER to a replica", "ERR Master is down or failed")
	}
	return fmt.Errorf("shard %s has no replica that answers", shard)
}

// known fails unless the master of a shard takes a node for its replica. Right after a failover
// it may not have heard of it yet, and drops its request to hand over without a word.
func (c *cluster) known(ctx context.Context, replica, shard string) error {
	nodes, err := c.serving(ctx, replica, shard)
	if err != nil {
		return err
	}
	master := nodes[0]
	nodes, err = c.serving(ctx, master, shard)
	if err == nil && (nodes[0] != master || !slices.Contains(nodes, replica)) {
		err = fmt.Errorf("master %s does not know its replica %s: it says that %s serve shard %s", master, replica, strings.Join(nodes, ", "), shard)
	}
	return err
}

// leastMemory is how long a node remembers an election, unless four node
// timeouts are longer: auth_retry_time in cluster.c of Redis.
const leastMemory = 4 * time.Second

// configureCluster makes a server a node of a cluster: one in which slots that
// no node serves affect no other slot, a replica of any age may be promoted, and
// each stays with its shard.
func configureCluster(o topologies.Options, at Address) string {
	return fmt.Sprintf(`cluster-enabled yes
cluster-config-file %s
cluster-node-timeout %d
cluster-port %d
cluster-announce-ip %s
cluster-announce-port %d
cluster-announce-bus-port %d
cluster-require-full-coverage no
cluster-replica-validity-factor 0
cluster-allow-replica-migration no
`, nodesConf, o.NodeTimeout.Milliseconds(), at.Bus, at.Announced.Addr(), at.Announced.Port(), at.AnnouncedBus)
}

// configureNodes writes down a cluster as if it had met already, which saves
// the meeting: all nodes, and the slots that each master serves.
func configureNodes(t topologies.Topology, myself string, at map[string]Address) string {
	servers := t.Of(topologies.Redis)
	id := func(name string) string { return fmt.Sprintf("%040x", slices.Index(servers, name)+1) }
	var conf strings.Builder
	for _, name := range servers {
		n, _ := t.Node(name)
		a := at[name]
		flags, of, epoch, slots := "slave", id(n.Of), 0, ""
		if n.Role == topologies.Master {
			i := slices.Index(t.Shards(), name)
			first, last := traffic.SlotRange(i, len(t.Shards()))
			flags, of, epoch, slots = "master", "-", i+1, fmt.Sprintf(" %d-%d", first, last)
		}
		if name == myself {
			flags = "myself," + flags
		}
		fmt.Fprintf(&conf, "%s %s@%d %s %s 0 0 %d connected%s\n", id(name), a.Announced, a.AnnouncedBus, flags, of, epoch, slots)
	}
	fmt.Fprintf(&conf, "vars currentEpoch %d lastVoteEpoch 0\n", len(t.Shards()))
	return conf.String()
}

// KeyIn is a key of a cluster's slot that begins with the prefix.
func KeyIn(prefix string, slot int) string {
	for i := 0; ; i++ {
		if tag := strconv.Itoa(i); traffic.KeySlot(tag) == slot {
			return prefix + "{" + tag + "}"
		}
	}
}
