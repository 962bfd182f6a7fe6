//go:build linux

package faultstest

import (
	"cmp"
	"errors"
	"slices"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/topologies"
)

// An entry is a fault as it is injected.
type entry struct {
	faults.Step

	// on is the topology that has it.
	on string
	// again says that it stands above with other parameters.
	again bool
}

// singleByName is a master that clients find by a name, with its replicas.
const singleByName = topologies.Single + " by name"

// entries are all faults of servers and links, made anew for each deployment.
func entries() []entry {
	var all []entry
	add := func(on, fault, target string, params ...string) {
		step := faults.Step{Fault: fault, Target: target, Params: map[string]string{}}
		for i := 0; i < len(params); i += 2 {
			step.Params[params[i]] = params[i+1]
		}
		on = cmp.Or(on, topologies.Single) // which can have most
		all = append(all, entry{Step: step, on: on, again: slices.ContainsFunc(all, func(e entry) bool { return e.Fault == fault && e.on == on })})
	}
	const (
		server  = "redis-1" // the first, which has a shard of its own
		clients = "zone-a>redis"
		asked   = "SET key-" // by the looks alone
	)
	add("", "bandwidth", clients, "rate", "20")
	add("", "bandwidth", clients, "rate", "20", "stream", "upstream")
	add("", "bandwidth", clients, "rate", "20", "stream", "downstream")
	add("", "clock-back", server, "by", "3600000")
	add("", "clock-forward", server, "by", "60000")
	add("", "clock-rate", server, "percent", "50")
	add("", "clock-rate", server, "percent", "-50")
	add("", "corrupt-key", server, "pattern", probes)
	add(topologies.Sentinels, "crash-failover", "")
	add(topologies.Cluster, "crash-failover", "", "shard", "redis-2")
	add("", "delay-command", clients, "command", asked, "for", "30")
	add("", "delay-reply", clients, "command", asked, "for", "30")
	add("", "drop-command", clients, "command", asked)
	add("", "drop-command", clients, "command", asked, "then", "silent")
	add("", "drop-key", server, "pattern", probes)
	add("", "drop-message", clients, "command", "wanted", "nth", "2")
	add("", "drop-reply", clients, "command", asked, "then", "silent")
	add("", "drop-reply", clients, "command", asked)
	add(topologies.Sentinels, "failover", "")
	add(topologies.Cluster, "failover", "")
	add("", "flap", clients, "down", "20", "up", "20")
	add("", "hold-command", clients, "command", asked)
	add("", "hold-reply", clients, "command", asked)
	add("", "latency", clients, "latency", "30", "jitter", "5")
	add(topologies.Cluster, "migrate-slot", "", "key", moved)
	add("", "partition", server)
	add("", "partition", server, "how", "stall")
	add(topologies.Independent, "partition-bridge", server)
	add(topologies.Independent, "partition-halves", "")
	add(topologies.Cluster, "partition-ring", "")
	add(singleByName, "planned-failover", "")
	add(singleByName, "planned-failover", "", "pubsub", "close")
	add("", "slow-close", clients, "by", "50", "stream", "upstream")
	add("", "slow-close", clients, "by", "50", "stream", "downstream")
	add(topologies.Sentinels, "split-brain", "zone-a")
	add(topologies.Cluster, "split-brain", "zone-a")
	add("", "stall", clients)
	add("", "stall", clients, "stream", "upstream")
	add("", "stall", clients, "stream", "downstream")
	for _, spec := range faults.All() { // any other, as a random run would have it at the least
		if spec.Candidates == nil || spec.Family == faults.Client || slices.ContainsFunc(all, func(e entry) bool { return e.Fault == spec.Name }) {
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
		all = append(all, entry{on: topologies.Single, Step: faults.Step{Fault: spec.Name, Target: target, Params: drawn.FirstParams()}})
	}
	return all
}

// make makes the fault for a deployment that can have it.
func (e entry) make(d topologies.Deployment) (faults.Fault, error) {
	plan, wrong, cant := faults.Environment{Script: true}.Given(d, []faults.Step{e.Step})
	if err := errors.Join(wrong, cant); err != nil {
		return faults.Fault{}, err
	}
	return plan[0].On(faults.Site{Deployment: d})
}
