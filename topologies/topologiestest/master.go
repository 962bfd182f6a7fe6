package topologiestest

import (
	"context"
	"testing"

	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/topologies"
)

// MasterOf is the master, or the leader, of a shard, on which the servers have agreed before ctx
// ends; else the test fails. A server may be late to answer on a busy machine, so that one look
// does not always find it.
func MasterOf(ctx context.Context, t *testing.T, d topologies.Deployment, shard string) (master string) {
	t.Helper()
	err := await.Until(ctx, func() (err error) {
		master, err = d.Master(ctx, shard)
		return err
	})
	if err != nil {
		t.Fatalf("the master of %s: %v", shard, err)
	}
	return master
}
