package harness

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/lockchaos/lockchaos/topologies"
)

// CheckServers refuses servers that are not as was asked for: fewer replicas than are to acknowledge a grant, or other
// options. What was not asked for may be as it is.
func CheckServers(acks int, want topologies.Options, t topologies.Topology) error {
	have := t.Options
	var errs []error
	for _, name := range t.Servers() {
		n, _ := t.Node(name)
		if replicas := len(t.Members(name)) - 1; n.Role == topologies.Master && acks > replicas {
			errs = append(errs, fmt.Errorf("%d replica acks can't come: %s has %d replicas", acks, name, replicas))
			break
		}
	}
	for _, o := range []struct {
		option           string
		none, want, have any
	}{
		{"nodes", 0, want.Nodes, len(t.Servers())},
		{"persistence", "", want.Persistence, cmp.Or(have.Persistence, "one that they do not tell (they must permit CONFIG GET)")},
		{"min-replicas", 0, want.MinReplicas, have.MinReplicas},
		{"node-timeout", time.Duration(0), want.NodeTimeout, have.NodeTimeout},
	} {
		if o.want != o.none && o.want != o.have {
			errs = append(errs, fmt.Errorf("%s %v was asked for, and the servers have %v", o.option, o.want, o.have))
		}
	}
	return errors.Join(errs...)
}
