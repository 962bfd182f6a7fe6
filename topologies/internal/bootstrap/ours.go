package bootstrap

import (
	"context"
	"errors"

	"github.com/lockchaos/lockchaos/topologies"
)

var (
	_ topologies.Claimed = (*deployment)(nil)
	_ topologies.Emptied = (*deployment)(nil)
)

// CheckClaim fails once another run has the deployment, as one that is attached to
// can become. It asks no server, and says nothing of whether the deployment is whole.
func (d *deployment) CheckClaim() error {
	if d.parts.Check == nil {
		return nil
	}
	return d.parts.Check()
}

// Empty removes what clients wrote to a consensus store.
func (d *deployment) Empty(ctx context.Context) error {
	switch {
	case d.parts.Foreign:
		return errors.New("what is in servers that are not ours stays there")
	case d.members == nil:
		return errors.New("the servers are of no consensus store")
	}
	return d.members.store.Empty(ctx, d.parts.Nodes[d.topology.Servers()[0]].At)
}
