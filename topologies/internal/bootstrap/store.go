package bootstrap

import (
	"context"
	"fmt"

	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/internal/probe"
)

// A Store is what differs between the stores that locks are kept on, for starting their
// servers and looking at them. Package topologies lists the topologies of each.
type Store interface {
	// Configure tells how to run a server of a topology, given the addresses of all.
	Configure(t topologies.Topology, name string, at map[string]Address) (Config, error)
	// Alive fails unless the process of the server that listens there answers. It need
	// not be of use to clients yet.
	Alive(ctx context.Context, at Address) error
	// Greeting is a harmless request for the server at the end of a link of that kind, to
	// which it replies at once, whatever state it is in.
	Greeting(kind topologies.LinkKind) []byte
}

// A Consensus is a store whose members elect a leader among themselves, and answer a
// write after a majority of them has it. A deployment sees to its members through nothing
// else.
type Consensus interface {
	Store
	// State is what the member that listens there says of itself. It does not pass
	// through the leader, so that a member that is cut off answers as well.
	State(ctx context.Context, at Address) (MemberState, error)
	// Serves fails unless clients that dial so can write to the member that they know
	// by that address.
	Serves(ctx context.Context, dial Dialer, announced string) error
	// HandOver asks the leader that listens there to make another member the leader,
	// named by its [MemberState.ID].
	HandOver(ctx context.Context, at Address, to string) error
	// Close ends what the store keeps open to the members.
	Close()
}

// A MemberState is what a member of a consensus store says of itself.
type MemberState struct {
	// ID is how the members call it, and Leader how they call the member that it takes
	// for the leader; empty for none.
	ID, Leader string
}

// Role is [topologies.Leader] or [topologies.Follower].
func (s MemberState) Role() string {
	if s.ID != "" && s.ID == s.Leader {
		return topologies.Leader
	}
	return topologies.Follower
}

// OnlyRedis refuses a topology of another store than Redis, for a backend that can't start
// its servers.
func OnlyRedis(t topologies.Topology) error {
	if t.Store() == topologies.StoreRedis {
		return nil
	}
	return fmt.Errorf("topology %s %w here: its servers run as local processes only (--backend process)", t.Name, topologies.ErrUnusable)
}

// RedisStore is Redis: its servers, its sentinels and its cluster. How those agree on
// masters is in this package.
type RedisStore struct{}

// Configure is [Configure].
func (RedisStore) Configure(t topologies.Topology, name string, at map[string]Address) (Config, error) {
	return Configure(t, name, at)
}

// Alive is [Ping].
func (RedisStore) Alive(ctx context.Context, at Address) error { return Ping(ctx, at.Listen.String()) }

// Greeting is that of [probe.Greeting].
func (RedisStore) Greeting(kind topologies.LinkKind) []byte { return probe.Greeting(kind) }
