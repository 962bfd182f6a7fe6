package bootstrap

import "github.com/lockchaos/lockchaos/topologies"

var _ topologies.Claimed = (*deployment)(nil)

// CheckClaim fails once another run has the deployment, as one that is attached to
// can become. It asks no server, and says nothing of whether the deployment is whole.
func (d *deployment) CheckClaim() error {
	if d.parts.Check == nil {
		return nil
	}
	return d.parts.Check()
}
