package scenarios

import "github.com/lockchaos/lockchaos/topologies"

// Divided are the links that a partition concerns.
func Divided(t topologies.Topology, fault, target string) ([]topologies.Link, error) {
	links, _, err := divided(t, fault, target, nil)
	return links, err
}
