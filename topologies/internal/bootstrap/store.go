package bootstrap

import (
	"context"
	"errors"
	"fmt"
	goversion "go/version"
	"io"
	"net"
	"regexp"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/internal/probe"
)

// A Store is what differs between the stores that locks are kept on, for starting their
// servers and looking at them. Package topologies lists the topologies of each.
type Store interface {
	// Configure tells how to run a server of a topology, given the addresses of all.
	Configure(t topologies.Topology, name string, at map[string]Address) Config
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
	// HandOver asks the leader that listens there to make another member the leader,
	// named by its [MemberState.ID]. It is not called where a topology is without [topologies.HandOvers].
	HandOver(ctx context.Context, at Address, to string) error
}

// NewConsensus returns the consensus store of that name; nil if it is another store.
func NewConsensus(store string) Consensus {
	switch store {
	case topologies.StoreEtcd:
		return Etcd{}
	case topologies.StoreZooKeeper:
		return ZooKeeper{}
	default:
		return nil
	}
}

// direct dials past every link.
func direct(ctx context.Context, network, at string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, network, at)
}

// maxReply is how much of a reply is read.
const maxReply = 1 << 20

// exchange sends a request past every link, to a server that replies and then ends the connection.
func exchange(ctx context.Context, at, request string) (string, error) {
	c, err := direct(ctx, "tcp", at)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := c.SetDeadline(deadline); err != nil {
			return "", err
		}
	}
	if _, err := io.WriteString(c, request); err != nil {
		return "", err
	}
	reply, err := io.ReadAll(io.LimitReader(c, maxReply))
	switch {
	case err != nil:
		return "", err
	case len(reply) == 0:
		return "", fmt.Errorf("it answers nothing: %w", io.EOF)
	}
	return string(reply), nil
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

// What a run writes to a store that is not ours: the claim, the proof, and all that locks
// write, which is below a name of ours.
const (
	// ClaimKey says who drives the servers.
	ClaimKey = "lockchaos:claim"
	// LocksPrefix is below what locks on a consensus store keep their keys, or nodes.
	LocksPrefix = "/lockchaos"
)

// ErrClaimLost says that the servers gave a claim up which was not renewed for a lease.
var ErrClaimLost = errors.New("the servers have given up this run's claim to them, which was not renewed in time")

// An Introduction is what a member that is not ours says of itself and of the others.
type Introduction struct {
	// Member tells it apart from all others of its cluster.
	Member string
	// Members is how many there are.
	Members int
	Version string
	// Leaderless says why it does not serve clients now, which may pass; empty if it does.
	Leaderless string
}

// A Claim is the right to drive servers that are not ours, as they keep it: for a lease,
// unless it is renewed.
type Claim interface {
	// Owner is who has it, as the member that listens there knows; empty if there is none.
	Owner(ctx context.Context, at Address) (string, error)
	// Renew begins the lease again; [ErrClaimLost] if it has ended.
	Renew(ctx context.Context) error
	// Sweep removes what this run has written: of what has a name of ours, all that was
	// made after the claim.
	Sweep(ctx context.Context) error
	// Release ends the claim.
	Release(ctx context.Context) error
}

// A program is what the version of a store's server program is told by.
type program struct {
	name   string
	says   string // what it prints
	oldest string // that the harness can drive
}

func programOf(store string) program {
	switch store {
	case topologies.StoreEtcd:
		return program{"etcd", `(?m)^etcd Version: (\d+\.\d+\.\d+)`, topologies.MinEtcd}
	case topologies.StoreZooKeeper:
		return program{"ZooKeeper", `Apache ZooKeeper, version (\d+\.\d+\.\d+)`, topologies.MinZooKeeper}
	default:
		return program{"Redis", `\bv=(\d+\.\d+\.\d+)`, topologies.MinRedis}
	}
}

// mostPrinted is how much of what a program prints is told where it has no version, in bytes.
const mostPrinted = 300

// ParseVersion reads what the server program of a store prints that is asked for its version:
// by --version, and for ZooKeeper by [ZooKeeperVersionClass].
func ParseVersion(store, out string) (string, error) {
	p := programOf(store)
	m := regexp.MustCompile(p.says).FindStringSubmatch(out)
	if m == nil {
		return "", fmt.Errorf("no version of %s in what it prints: %q", p.name, out[:min(len(out), mostPrinted)])
	}
	return m[1], nil
}

// ParseProduct reads from the same what the server is: "redis", or what a server in its
// place calls itself, such as "valkey".
func ParseProduct(out string) string {
	if m := regexp.MustCompile(`^([A-Za-z]+) server v=`).FindStringSubmatch(out); m != nil {
		return strings.ToLower(m[1])
	}
	return topologies.StoreRedis
}

// NewEnough fails with [topologies.ErrTooOld] if the server of what, a program, an
// image or a member, is older than the oldest that the harness can drive, such as
// [topologies.MinRedis].
func NewEnough(store, what, version string) error {
	p := programOf(store)
	switch is := "go" + version; { // the order of Go's versions is that of all that have a major and a minor one
	case !goversion.IsValid(is):
		return fmt.Errorf("%w: %s calls its %s version %q", topologies.ErrUnusable, what, p.name, version)
	case goversion.Compare(is, "go"+p.oldest) < 0:
		return fmt.Errorf("%s %w: %s is version %s, and %s is the oldest that can be driven",
			strings.ToLower(p.name), topologies.ErrTooOld, what, version, p.oldest)
	default:
		return nil
	}
}
