package faultstest

import (
	"context"
	"slices"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/topologies"
)

// An entry is a fault as [Every] injects it.
type entry struct {
	faults.Step

	// on is a topology that can have it; empty: any. It is injected once, on the
	// first of those that fit.
	on string
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

// entries are all faults of servers and links, made anew for each deployment.
func entries() []entry {
	var all []entry
	add := func(on, fault, target string, params ...string) {
		step := faults.Step{Fault: fault, Target: target, Params: map[string]string{}}
		for i := 0; i < len(params); i += 2 {
			step.Params[params[i]] = params[i+1]
		}
		all = append(all, entry{step, on})
	}
	const (
		server  = "redis-1" // the first, which has a shard of its own
		clients = "zone-a>redis"
		unasked = "SET never-asked-for"
	)
	add("", "bandwidth", clients, "rate", "20000")
	add("", "clock-back", server, "by", "3600000")
	add("", "clock-forward", server, "by", "3600000")
	add("", "clock-rate", server, "percent", "50")
	add(topologies.Sentinels, "crash-failover", "")
	add(topologies.Cluster, "crash-failover", "")
	add("", "delay-command", clients, "command", unasked, "for", "1")
	add("", "delay-reply", clients, "command", unasked, "for", "1")
	add("", "drop-command", clients, "command", unasked)
	add("", "drop-key", server, "pattern", probes)
	add("", "drop-message", clients, "command", unasked)
	add("", "drop-reply", clients, "command", unasked, "then", "silent")
	add(topologies.Sentinels, "failover", "")
	add(topologies.Cluster, "failover", "")
	add("", "flap", clients, "down", "20", "up", "20")
	add("", "hold-command", clients, "command", unasked)
	add("", "hold-reply", clients, "command", unasked)
	add("", "latency", clients, "latency", "30", "jitter", "5")
	add(topologies.Cluster, "migrate-slot", "", "key", "orders")
	add("", "partition", server)
	add(topologies.Independent, "partition-bridge", server)
	add(topologies.Independent, "partition-halves", "")
	add(topologies.Cluster, "partition-ring", "")
	add(singleByName, "planned-failover", "", "how", "failover")
	add(singleByName, "planned-failover", "", "how", "replicaof", "pubsub", "close")
	add("", "corrupt-key", server, "pattern", probes)
	add("", "slow-close", clients, "by", "50")
	add(topologies.Sentinels, "split-brain", "zone-a")
	add(topologies.Cluster, "split-brain", "zone-a")
	add("", "stall", clients)
	for _, spec := range faults.All() { // any other, as a random run would have it at the least
		if spec.Candidates == nil || slices.ContainsFunc(all, func(e entry) bool { return e.Fault == spec.Name }) {
			continue
		}
		target := clients
		if spec.Target == faults.AtServer || spec.Target == faults.AtProcess {
			target = server
		}
		drawn := faults.Candidate{Params: map[string]string{}}
		for _, p := range spec.Params {
			if p.Draw != "" {
				drawn.Params[p.Name] = p.Draw
			}
		}
		all = append(all, entry{Step: faults.Step{Fault: spec.Name, Target: target, Params: drawn.FirstParams()}})
	}
	return all
}

// make makes the fault for a deployment.
func (e entry) make(d topologies.Deployment) (faults.Fault, error) {
	return faults.New(faults.Site{Deployment: d}, e.Step)
}

// Names are the faults that [Every] injects.
func Names() []string {
	var all []string
	for _, e := range entries() {
		all = append(all, e.Fault)
	}
	return all
}

// probes is a pattern of the keys that are there for faults to hit.
const probes = "lockchaos:hit:*"

// master is the first server, which has a shard of its own.
func master(d topologies.Deployment) topologies.Server { return d.Server("redis-1") }

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
