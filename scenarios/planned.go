package scenarios

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/faults/failover"
	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/topologies"
)

// faultPlanned is a failover that an operator makes, of servers that make none.
const faultPlanned = "planned-failover"

// The parameters of a planned failover.
const (
	paramPubSub = "pubsub" // what becomes of the connections of subscribers

	pubSubKeep  = "keep"
	pubSubClose = "close"
)

// checkFailover checks that the master of a topology can be replaced in that way.
func checkFailover(t topologies.Topology, step ScriptStep) error {
	planned := step.Inject == faultPlanned
	switch _, err := shardOf(t, step.Params); {
	case planned && (len(t.Shards()) == 0 || t.Elects()):
		return fmt.Errorf("%s: needs servers that replace no master by themselves, and clients that find it by a name: topology %s with access %s",
			step.Inject, topologies.Single, topologies.AccessName)
	case planned:
		_, err := planFailover(step.Params)
		return err
	case err != nil:
		return fmt.Errorf("%s: %w", step.Inject, err)
	case !t.Elects():
		return fmt.Errorf("%s: the servers of topology %s replace no master by themselves; %s makes another one the master", step.Inject, t.Name, faultPlanned)
	}
	return nil
}

// planFailover reads the parameters of a planned failover.
func planFailover(params map[string]string) (failover.Plan, error) {
	how, pubsub := cmp.Or(params[paramHow], failover.ByFailover), cmp.Or(params[paramPubSub], pubSubKeep)
	var errs []error
	if ways := []string{failover.ByFailover, failover.ByReplicaOf}; !slices.Contains(ways, how) {
		errs = append(errs, fmt.Errorf("%s: %w", faultPlanned, names.Unknown(paramHow, how, ways)))
	}
	if known := []string{pubSubKeep, pubSubClose}; !slices.Contains(known, pubsub) {
		errs = append(errs, fmt.Errorf("%s: %w", faultPlanned, names.Unknown(paramPubSub, pubsub, known)))
	}
	return failover.Plan{By: how, ClosePubSub: pubsub == pubSubClose}, errors.Join(errs...)
}

// buildPlanned makes a planned failover.
func buildPlanned(d topologies.Deployment, s faults.Step) (faults.Fault, error) {
	if err := checkFailover(d.Topology(), ScriptStep{Inject: s.Fault, Params: s.Params}); err != nil {
		return nil, err
	}
	plan, err := planFailover(s.Params)
	if err != nil {
		return nil, err
	}
	r, ok := d.(topologies.Replicated)
	if !ok {
		return nil, fmt.Errorf("%s: topology %s has nothing to fail over to", s.Fault, d.Topology().Name)
	}
	shard := d.Topology().Shards()[0]
	var servers []failover.Server
	for _, name := range d.Topology().Members(shard) {
		servers = append(servers, d.Server(name))
	}
	return failover.Planned(r, shard, servers, plan), nil
}
