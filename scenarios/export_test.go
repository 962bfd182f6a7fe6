package scenarios

import (
	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/topologies"
)

// Divided are the links that a partition concerns.
func Divided(t topologies.Topology, fault, target string) ([]topologies.Link, error) {
	spec, err := faults.ByName(fault)
	if err != nil {
		return nil, err
	}
	return spec.LinksOf(t, faults.Step{Fault: fault, Target: target})
}
