package faultstest

import (
	"context"
	"errors"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/faults/clock"
	"github.com/lockchaos/lockchaos/faults/disk"
	"github.com/lockchaos/lockchaos/faults/failover"
	"github.com/lockchaos/lockchaos/faults/network"
	"github.com/lockchaos/lockchaos/faults/process"
	"github.com/lockchaos/lockchaos/faults/redis"
	"github.com/lockchaos/lockchaos/faults/slots"
	"github.com/lockchaos/lockchaos/topologies"
)

// A fault of a case is made anew each time.
type maker func(d topologies.Deployment) (faults.Fault, error)

// entry is a fault as [Every] injects it.
type entry struct {
	name string
	// on is a topology that can have it; empty: any. It is injected once, on the
	// first of those that fit.
	on    string
	needs []topologies.Control
	make  maker
}

// singleByName is a master that clients find by a name, with its replicas.
const singleByName = topologies.Single + " by name"

// where is how entries call a topology.
func where(t topologies.Topology) string {
	if t.Options.ByName() {
		return t.Name + " by name"
	}
	return t.Name
}

// errUnable says that the links of a deployment can't have the fault.
var errUnable = errors.New("the links are not made for it")

// entries are all faults of servers and links.
func entries() []entry {
	const ms = time.Millisecond
	var (
		wiring    = []topologies.Control{topologies.Wiring}
		processes = []topologies.Control{topologies.Processes}
		settings  = []topologies.Control{topologies.Settings}
		clocks    = []topologies.Control{topologies.Clocks}
		disks     = []topologies.Control{topologies.Disks, topologies.Processes}
		failovers = []topologies.Control{topologies.Failovers}
		crashes   = []topologies.Control{topologies.Failovers, topologies.Processes}
		splits    = []topologies.Control{topologies.Failovers, topologies.Wiring, topologies.Isolation}
	)
	p := network.Pattern{Words: []string{"SET", "nobody-asks-for-this"}}
	return []entry{
		{"bandwidth", "", wiring, paced(func(ls []network.Link) faults.Fault { return network.Bandwidth(ls, "both", 20_000) })},
		{"busy", "", settings, server(func(s topologies.Server) faults.Fault { return redis.Busy(s) })},
		{"clock-back", "", clocks, clocked(func(s clock.Server, c clock.Clock) faults.Fault { return clock.Step(s, c, -time.Hour) })},
		{"clock-forward", "", clocks, clocked(func(s clock.Server, c clock.Clock) faults.Fault { return clock.Step(s, c, time.Hour) })},
		{"clock-freeze", "", clocks, clocked(clock.Freeze)},
		{"clock-rate", "", clocks, clocked(func(s clock.Server, c clock.Clock) faults.Fault { return clock.Rate(s, c, 50) })},
		{"crash-failover", topologies.Sentinels, crashes, crash},
		{"crash-failover", topologies.Cluster, crashes, crash},
		{"cut", "", wiring, client(network.Cut)},
		{"delay-command", "", wiring, read(func(rs []network.Reader) faults.Fault { return network.DelayCommand(rs, p, ms) })},
		{"delay-reply", "", wiring, read(func(rs []network.Reader) faults.Fault { return network.DelayReply(rs, p, ms) })},
		{"drop-command", "", wiring, read(func(rs []network.Reader) faults.Fault { return network.DropCommand(rs, p, false) })},
		{"drop-key", "", settings, server(func(s topologies.Server) faults.Fault { return redis.Drop(s, probes) })},
		{"drop-message", "", wiring, read(func(rs []network.Reader) faults.Fault { return network.DropMessage(rs, p) })},
		{"drop-reply", "", wiring, read(func(rs []network.Reader) faults.Fault { return network.DropReply(rs, p, true) })},
		{"evict", "", settings, server(func(s topologies.Server) faults.Fault { return redis.Evict(s) })},
		{"failover", topologies.Sentinels, failovers, graceful},
		{"failover", topologies.Cluster, failovers, graceful},
		{"flap", "", wiring, client(func(ls []network.Link) faults.Fault { return network.Flap(ls, 20*ms, 20*ms) })},
		{"flush", "", settings, server(func(s topologies.Server) faults.Fault { return redis.Flush(s) })},
		{"full", "", settings, server(func(s topologies.Server) faults.Fault { return redis.Full(s) })},
		{"hold", "", wiring, client(func(ls []network.Link) faults.Fault { return network.Hold(ls, "both") })},
		{"hold-command", "", wiring, read(func(rs []network.Reader) faults.Fault { return network.HoldCommand(rs, p) })},
		{"hold-reply", "", wiring, read(func(rs []network.Reader) faults.Fault { return network.HoldReply(rs, p) })},
		{"kill", "", processes, server(func(s topologies.Server) faults.Fault { return process.Kill(s) })},
		{"kill-pubsub", "", settings, server(func(s topologies.Server) faults.Fault { return redis.KillPubSub(s) })},
		{"latency", "", wiring, client(func(ls []network.Link) faults.Fault { return network.Latency(ls, "both", 30*ms, 5*ms) })},
		{"migrate-slot", topologies.Cluster, settings, migrate},
		{"partition", "", wiring, apart("partition", "redis-1")},
		{"partition-bridge", topologies.Independent, wiring, apart("partition-bridge", "redis-1", "zone-a")},
		{"partition-halves", topologies.Independent, wiring, apart("partition-halves", "redis-1", "redis-2", "zone-a")},
		{"partition-ring", topologies.Cluster, wiring, apart("partition-ring", "redis-1")},
		{"pause", "", processes, server(func(s topologies.Server) faults.Fault { return process.Pause(s) })},
		{"pause-writes", "", settings, server(func(s topologies.Server) faults.Fault { return redis.PauseWrites(s, time.Minute) })},
		{"planned-failover", singleByName, settings, planned(failover.Plan{By: failover.ByFailover})},
		{"planned-failover", singleByName, settings, planned(failover.Plan{By: failover.ByReplicaOf, ClosePubSub: true})},
		{"power-cut", "", disks, disked(func(s disk.Server, d disk.Disk) faults.Fault { return disk.PowerCut(s, d) })},
		{"reset", "", wiring, client(network.Reset)},
		{"restart", "", processes, server(func(s topologies.Server) faults.Fault { return process.Restart(s) })},
		{"restart-empty", "", append([]topologies.Control{topologies.Wiping}, processes...), server(func(s topologies.Server) faults.Fault { return process.RestartEmpty(s) })},
		{"retype-key", "", settings, server(func(s topologies.Server) faults.Fault { return redis.Retype(s, probes) })},
		{"script-flush", "", settings, server(func(s topologies.Server) faults.Fault { return redis.FlushScripts(s) })},
		{"shutdown", "", append(settings, processes...), server(func(s topologies.Server) faults.Fault { return disk.Shutdown(s) })},
		{"slow-close", "", wiring, paced(func(ls []network.Link) faults.Fault { return network.SlowClose(ls, "both", 50*ms) })},
		{"split-brain", topologies.Sentinels, splits, split},
		{"split-brain", topologies.Cluster, splits, split},
		{"stall-disk", "", disks, disked(func(s disk.Server, d disk.Disk) faults.Fault { return disk.Stall(s, d) })},
	}
}

// Names are the faults that [Every] injects.
func Names() []string {
	var all []string
	for _, e := range entries() {
		all = append(all, e.name)
	}
	return all
}

// probes is a pattern of the keys that are there for faults to hit.
const probes = "lockchaos:hit:*"

// master is the first server, which has a shard of its own.
func master(d topologies.Deployment) topologies.Server { return d.Server("redis-1") }

func server(of func(topologies.Server) faults.Fault) maker {
	return func(d topologies.Deployment) (faults.Fault, error) { return of(master(d)), nil }
}

func clocked(of func(clock.Server, clock.Clock) faults.Fault) maker {
	return func(d topologies.Deployment) (faults.Fault, error) { return of(master(d), d.Clock("redis-1")), nil }
}

func disked(of func(disk.Server, disk.Disk) faults.Fault) maker {
	return func(d topologies.Deployment) (faults.Fault, error) { return of(master(d), d.Disk("redis-1")), nil }
}

// wires are those of a deployment; links that it does not break are left out.
func wires(d topologies.Deployment, links []topologies.Link) []network.Link {
	var ls []network.Link
	for _, l := range links {
		if w := d.Wire(l.Name()); w != nil {
			ls = append(ls, w)
		}
	}
	return ls
}

func client(of func([]network.Link) faults.Fault) maker {
	return func(d topologies.Deployment) (faults.Fault, error) {
		links, err := d.Topology().Select("zone-a>redis")
		return of(wires(d, links)), err
	}
}

func paced(of func([]network.Link) faults.Fault) maker {
	return client(func(ls []network.Link) faults.Fault {
		for _, l := range ls {
			if _, ok := l.(network.Pacer); !ok {
				return nil
			}
		}
		return of(ls)
	})
}

func read(of func([]network.Reader) faults.Fault) maker {
	return client(func(ls []network.Link) faults.Fault {
		rs, err := network.Readers(ls)
		if err != nil {
			return nil
		}
		return of(rs)
	})
}

// apart cuts a group off from all others.
func apart(name string, group ...string) maker {
	return func(d topologies.Deployment) (faults.Fault, error) {
		return network.Partition(name, wires(d, d.Topology().Across(group)), false), nil
	}
}

func replicated(d topologies.Deployment) (topologies.Failover, string, error) {
	f, ok := d.(topologies.Failover)
	if !ok {
		return nil, "", errors.New("it has nothing to fail over to")
	}
	return f, d.Topology().Shards()[0], nil
}

func crash(d topologies.Deployment) (faults.Fault, error) {
	f, shard, err := replicated(d)
	return failover.Crash(f, shard, func(name string) process.Process { return d.Server(name) }), err
}

func graceful(d topologies.Deployment) (faults.Fault, error) {
	f, shard, err := replicated(d)
	return failover.Graceful(f, shard), err
}

func split(d topologies.Deployment) (faults.Fault, error) {
	f, shard, err := replicated(d)
	return failover.SplitBrain(f, shard, func(master string) (failover.Side, error) {
		group := []string{master, "zone-a"}
		if sentinels := d.Topology().Of(topologies.Sentinel); len(sentinels) > 0 {
			group = append(group, sentinels[0])
		}
		return failover.Side{Name: strings.Join(group, " "), Links: wires(d, d.Topology().Across(group))}, nil
	}), err
}

func planned(p failover.Plan) maker {
	return func(d topologies.Deployment) (faults.Fault, error) {
		r, ok := d.(topologies.Replicated)
		if !ok {
			return nil, errors.New("it has nothing to fail over to")
		}
		shard := d.Topology().Shards()[0]
		var servers []failover.Server
		for _, name := range d.Topology().Members(shard) {
			servers = append(servers, d.Server(name))
		}
		return failover.Planned(r, shard, servers, p), nil
	}
}

func migrate(d topologies.Deployment) (faults.Fault, error) {
	var all []slots.Server
	for _, name := range d.Topology().Of(topologies.Redis) {
		all = append(all, d.Server(name))
	}
	return slots.Migrate(all, "orders"), nil
}

// bait puts there what faults need to hit: a key on the first server, and a
// client of zone-a that has a connection and a subscription. Whoever called it
// closes the clients.
func bait(ctx context.Context, d topologies.Deployment) (closeAll func(), err error) {
	clients := topologies.Clients(d.ClientOptions("zone-a"))
	var pubsubs []*goredis.PubSub
	closeAll = func() {
		for _, p := range pubsubs {
			_ = p.Close()
		}
		for _, c := range clients {
			_ = c.Close()
		}
	}
	for _, c := range clients {
		p := c.Subscribe(ctx, "lockchaos:hit")
		pubsubs = append(pubsubs, p)
		if _, err := p.Receive(ctx); err != nil {
			closeAll()
			return nil, err
		}
		if err := c.Ping(ctx).Err(); err != nil {
			closeAll()
			return nil, err
		}
	}
	return closeAll, nil
}
