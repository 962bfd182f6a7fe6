package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/topologies"
)

// nameEvery is how often it is looked whether the master is another one, and so how
// late, about, a name moves.
const nameEvery = 10 * time.Millisecond

// name is an address that follows the master, as that of a health check does. A
// nil name does nothing, and leads wherever it should.
type name struct {
	Name

	to   atomic.Pointer[string] // nil before it leads anywhere
	stop func()
}

// begin has the name follow the master until end. It goes by what the servers
// agree on, and stays where it is while they do not.
func (n *name) begin(d *deployment) {
	if n == nil {
		return
	}
	shard := d.topology.Shards()[0]
	n.stop = await.Behind(context.Background(), func(ctx context.Context) {
		for ; ctx.Err() == nil; _ = await.Pause(ctx, nameEvery) {
			if master, err := d.Master(ctx, shard); err == nil && n.leadsTo(master) != nil {
				n.Point(master)
				n.to.Store(&master)
			}
		}
	})
}

// end leaves the name where it is.
func (n *name) end() {
	if n != nil && n.stop != nil {
		n.stop()
	}
}

// target is the server that new connections are led to.
func (n *name) target() (string, error) {
	to := n.to.Load()
	if to == nil {
		return "", errors.New("the name leads to no server")
	}
	return *to, nil
}

// leadsTo fails unless new connections are led to that server.
func (n *name) leadsTo(server string) error {
	if n == nil {
		return nil
	}
	to, err := n.target()
	if err == nil && to != server {
		err = fmt.Errorf("the name leads to %s, and not to %s", to, server)
	}
	return err
}

// followers are servers of which an operator says who follows whom.
type followers struct {
	*deployment
	steady
}

func (followers) who() string { return "the servers" }

// agree leaves it to the roles.
func (followers) agree(context.Context, map[string]string) error { return nil }

// promote fails.
func (followers) promote(context.Context, string) error {
	return errors.New("the servers replace no master by themselves")
}

// votes has each server vote for the one that it follows, and a master for itself.
// Those that do not answer are left out; they count for the majority.
func (f followers) votes(ctx context.Context, shard string) (votes map[string]int, majority int) {
	votes = map[string]int{}
	members := f.topology.Members(shard)
	for _, server := range members {
		switch role, follows, err := topologies.RoleOf(ctx, f.observer(server)); {
		case err != nil:
		case role == topologies.Master:
			votes[server]++
		default:
			votes[f.NodeAt(follows)]++
		}
	}
	return votes, len(members)/2 + 1
}
