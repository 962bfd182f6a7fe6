package bootstrap

import (
	"context"
	"fmt"
	"net"
	"time"

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
}

// A Consensus is a store whose members elect a leader among themselves, and answer a
// write after a majority of them has it. A deployment sees to its members through nothing
// else.
type Consensus interface {
	Store
	// Greeting is how the server at the end of a link of that kind is asked for a sign of
	// life, which it gives at once, whatever state it is in.
	Greeting(kind topologies.LinkKind) probe.Greet
	// State is what the member that listens there says of itself. It does not pass
	// through the leader, so that a member that is cut off answers as well.
	State(ctx context.Context, at Address) (MemberState, error)
	// Serves fails unless clients that dial so can write to the member that they know
	// by that address.
	Serves(ctx context.Context, dial Dialer, announced string) error
	// Empty removes all that clients wrote, by way of the member that listens there.
	Empty(ctx context.Context, at Address) error
	// Meet asks a member that is not ours who it is. Its error says in words what is wrong
	// with the member, unless it could not be reached.
	Meet(ctx context.Context, at Address) (Introduction, error)
	// Claim takes servers that are not ours for owner, by way of any of these members, for a
	// lease; who is another that has them.
	Claim(ctx context.Context, at []Address, owner string, lease time.Duration) (c Claim, who string, err error)
	// Patience is how long a connection between two members waits on its link for the
	// other one to listen.
	Patience() time.Duration
	// HandOver asks the leader that listens there to make another member the leader,
	// named by its [MemberState.ID]. It is not called where a topology is without [topologies.HandOvers].
	HandOver(ctx context.Context, at Address, to string) error
	// Close ends what the store keeps open to the members.
	Close()
}

// NewConsensus returns the consensus store of that name, for one deployment; nil if it is
// another store.
func NewConsensus(store string) Consensus {
	switch store {
	case topologies.StoreEtcd:
		return NewEtcd()
	case topologies.StoreZooKeeper:
		return ZooKeeper{}
	default:
		return nil
	}
}

// NoRedis dials for the observer of a server that is no Redis.
func NoRedis(name string) Dialer {
	return func(context.Context, string, string) (net.Conn, error) {
		return nil, fmt.Errorf("%s is no Redis server", name)
	}
}

// Unnamed is the leader of a member that follows one and does not say which.
const Unnamed = "?"

// A MemberState is what a member of a consensus store says of itself.
type MemberState struct {
	// ID is how the members call it, and Leader how they call the member that it takes
	// for the leader; empty for none, [Unnamed] for one that it does not name.
	ID, Leader string
	// Term is, of a leader whose followers do not name it, greater than that of every
	// leader before it.
	Term uint64
}

// Role is [topologies.Leader] or [topologies.Follower].
func (s MemberState) Role() string {
	if s.ID != "" && s.ID == s.Leader {
		return topologies.Leader
	}
	return topologies.Follower
}

// RedisStore is Redis: its servers, its sentinels and its cluster. How those agree on
// masters is in this package.
type RedisStore struct{}
