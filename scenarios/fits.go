package scenarios

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/topologies"
)

// fits refuses a deployment on which the script can't be played to its end. One
// that was started for it is as the script was validated for; that of somebody
// else has other servers, links and settings.
func (s Scenario) fits(d topologies.Deployment) error {
	var asked []string
	for _, step := range s.Steps {
		if step.Inject != "" {
			asked = append(asked, step.Inject)
		}
	}
	if err := possible(d, asked); err != nil {
		return err
	}
	t := d.Topology()
	errs := []error{acksFit(s.ReplicaAcks, t), optionsFit(s.Servers, t), s.forgets(t)}
	for _, client := range slices.Sorted(maps.Keys(s.Clients)) {
		if zones := t.Of(topologies.Zone); !slices.Contains(zones, s.Clients[client]) {
			errs = append(errs, fmt.Errorf("client %s: %w", client, names.Unknown("zone", s.Clients[client], zones)))
		}
	}
	for i, step := range s.Steps {
		err := step.validate(s, t)
		if err == nil && step.Inject != "" {
			err = wired(d, step)
		}
		if err != nil {
			errs = append(errs, stepError{i, err})
		}
	}
	return impossible(errs...)
}

// impossible joins reasons; nil if there are none.
func impossible(reasons ...error) error {
	if err := errors.Join(reasons...); err != nil {
		return fmt.Errorf("it %w: %w", ErrImpossible, err)
	}
	return nil
}

// startable refuses a resource on a server of its own where none can be started.
func (p Protected) startable(backend string) error {
	if p.Resource != ResourceRedis || backend != attached {
		return nil
	}
	return errors.New("a resource on Redis needs a server of its own, which only the backends process and container can start")
}

// wired refuses a fault of links of which none can be broken.
func wired(d topologies.Deployment, step ScriptStep) error {
	spec, err := faults.ByName(step.Inject)
	if err != nil || !spec.OnLinks() {
		return err
	}
	links, err := concerned(d.Topology(), spec, faults.Step{Fault: step.Inject, Target: step.Target, Params: step.Params})
	if err == nil && !slices.ContainsFunc(links, func(l topologies.Link) bool { return d.Wire(l.Name()) != nil }) {
		err = fmt.Errorf("%s: nothing can be done to %s here", step.Inject, step.Target)
	}
	return err
}

// acksFit refuses more acknowledgements than a master has replicas.
func acksFit(acks int, t topologies.Topology) error {
	for _, name := range t.Of(topologies.Redis) {
		if n, _ := t.Node(name); n.Role != topologies.Master {
			continue
		}
		if replicas := len(t.Members(name)) - 1; acks > replicas {
			return fmt.Errorf("%d replica acks can't come: %s has %d replicas", acks, name, replicas)
		}
	}
	return nil
}

// optionsFit refuses servers that are not as was asked for. What nobody asked
// for may be as it is.
func optionsFit(want topologies.Options, t topologies.Topology) error {
	have := t.Options
	var errs []error
	note := func(option string, want, have any) {
		if want != have {
			errs = append(errs, fmt.Errorf("%s %v was asked for, and the servers have %v", option, want, have))
		}
	}
	if want.Nodes != 0 {
		note("nodes", want.Nodes, len(t.Of(topologies.Redis)))
	}
	switch {
	case want.Persistence == "":
	case have.Persistence == "":
		errs = append(errs, fmt.Errorf("persistence %s was asked for, and the servers do not tell what they have (they must permit CONFIG GET)", want.Persistence))
	default:
		note("persistence", want.Persistence, have.Persistence)
	}
	if want.MinReplicas != 0 {
		note("min-replicas", want.MinReplicas, have.MinReplicas)
	}
	if want.NodeTimeout != 0 {
		note("node-timeout", want.NodeTimeout, have.NodeTimeout)
	}
	return errors.Join(errs...)
}

// forgets refuses servers that keep their data, where the script kills some that
// are to forget it.
func (s Scenario) forgets(t topologies.Topology) error {
	have := t.Options.Persistence
	if s.Servers.Persistence != "" || have == "" || have == topologies.PersistNone {
		return nil
	}
	for _, step := range s.Steps {
		spec, err := faults.ByName(step.Inject)
		if err == nil && spec.Family == faults.Process && spec.Has(history.Restarts) && !spec.Has(history.Forgets) {
			return fmt.Errorf("%s is to make a server forget what it held, and the servers have persistence %s", step.Inject, have)
		}
	}
	return nil
}
