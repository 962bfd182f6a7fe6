package scenarios

import (
	"fmt"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/faults/slots"
	"github.com/lockchaos/lockchaos/topologies"
)

// paramKey is the parameter that names a key, or a lock, of a slot.
const paramKey = "key"

// checkSlots checks that the topology has slots, and that one is named.
func checkSlots(t topologies.Topology, fault string, params map[string]string) error {
	switch {
	case t.Name != topologies.Cluster:
		return fmt.Errorf("%s: topology %s has no slots", fault, t.Name)
	case params[paramKey] == "":
		return fmt.Errorf("%s: say whose slot in the parameter %q, such as the name of a lock", fault, paramKey)
	default:
		return nil
	}
}

// buildSlots makes a fault of a slot.
func buildSlots(d topologies.Deployment, s faults.Step) (faults.Fault, error) {
	if err := checkSlots(d.Topology(), s.Fault, s.Params); err != nil {
		return nil, err
	}
	var servers []slots.Server
	for _, name := range d.Topology().Of(topologies.Redis) {
		servers = append(servers, d.Server(name))
	}
	return slots.Migrate(servers, s.Params[paramKey]), nil
}
