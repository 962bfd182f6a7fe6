package runtest

import (
	"context"

	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/process"
)

// Backend is [process.Backend] for tests: a start waits for its turn, see [AwaitProcessor].
type Backend struct{ process.Backend }

// Start starts the servers of a topology.
func (b Backend) Start(ctx context.Context, t topologies.Topology) (topologies.Deployment, error) {
	AwaitProcessor(ctx)
	return b.Backend.Start(ctx, t)
}
