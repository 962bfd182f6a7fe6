package harness

import (
	"errors"
	"fmt"
	"slices"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/topologies"
)

// startable refuses a resource on a server of its own where none can be started.
func (p ResourceConfig) startable(backend string) error {
	if p.Kind != ResourceRedis || backend != attached {
		return nil
	}
	return errors.New("a resource on Redis needs a server of its own, which only the backends process and container can start")
}

// CheckLinks refuses a fault of links of which none can be broken.
func CheckLinks(d topologies.Deployment, step faults.Step) error {
	spec, err := faults.ByName(step.Fault)
	if err != nil || !spec.OnLinks() {
		return err
	}
	links, err := concerned(d.Topology(), spec, step)
	if err == nil && !slices.ContainsFunc(links, func(l topologies.Link) bool { return d.Proxy(l.Name()) != nil }) {
		err = fmt.Errorf("%s: nothing can be done to %s here", step.Fault, step.Target)
	}
	return err
}

// CheckAcks refuses more acknowledgements than a master has replicas.
func CheckAcks(acks int, t topologies.Topology) error {
	for _, name := range t.Servers() {
		if n, _ := t.Node(name); n.Role != topologies.Master {
			continue
		}
		if replicas := len(t.Members(name)) - 1; acks > replicas {
			return fmt.Errorf("%d replica acks can't come: %s has %d replicas", acks, name, replicas)
		}
	}
	return nil
}

// CheckOptions refuses servers that are not as was asked for. What was not asked
// for may be as it is.
func CheckOptions(want topologies.Options, t topologies.Topology) error {
	have := t.Options
	var errs []error
	note := func(option string, want, have any) {
		if want != have {
			errs = append(errs, fmt.Errorf("%s %v was asked for, and the servers have %v", option, want, have))
		}
	}
	if want.Nodes != 0 {
		note("nodes", want.Nodes, len(t.Servers()))
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
