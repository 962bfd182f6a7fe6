package topologies

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// The errors of a backend that its user can do something about.
var (
	// ErrMissing says that the machine lacks what the backend needs.
	ErrMissing = errors.New("missing on this machine")
	// ErrTooOld says that the Redis found is older than [MinRedis].
	ErrTooOld = errors.New("redis is too old")
)

// MinRedis is the oldest Redis that the harness can drive: it needs
// bind-source-addr and SENTINEL DEBUG.
const MinRedis = "7.0.0"

// A Backend starts deployments. Its Start returns once the deployment is
// ready: roles agreed, replication proven by a write that every replica
// acknowledged, and every zone of clients served.
type Backend interface {
	Start(ctx context.Context, t Topology) (Deployment, error)
}

// A Deployment is a topology that runs. Close stops every process that it
// started and removes every file; whoever started it closes it.
type Deployment interface {
	Topology() Topology
	// Version is the version of the Redis servers.
	Version() string
	// Server returns a node of kind [Redis] or [Sentinel]; nil for any other.
	Server(name string) Server
	// NodeAt is the name of the server that clients know by an address; the
	// address itself if there is none.
	NodeAt(address string) string
	// Wire returns a link by its name; nil for any other.
	Wire(name string) Wire
	// ClientOptions connect clients of a zone as their services would: through
	// the zone's links, by sentinels where there are some.
	ClientOptions(zone string) *redis.UniversalOptions
	// Watch reports what the servers say of themselves, once and at each
	// change, until the context ends. It looks past every fault.
	Watch(ctx context.Context, report func(Observation))
	// AwaitReady blocks until the deployment is whole again: one master, all
	// servers attached, replication proven.
	AwaitReady(ctx context.Context) error
	Close() error
}

// A Failover is a deployment that has a master which can change.
type Failover interface {
	Deployment
	// Master is the server that the majority takes for the master and that
	// takes itself for one.
	Master(ctx context.Context) (string, error)
	// AwaitMaster blocks until the majority agrees on a master other than old.
	AwaitMaster(ctx context.Context, old string) (string, error)
	// Arm makes the servers quick to declare a master down and to replace it;
	// Disarm makes them slow again, so that nothing else fails over.
	Arm(ctx context.Context) error
	Disarm(ctx context.Context) error
	// Promote asks for a graceful failover and returns at once; Disarm must
	// follow once the master has changed.
	Promote(ctx context.Context) error
}

// A Server is one process of a deployment.
type Server interface {
	Name() string
	// Kill ends the process at once (SIGKILL) and waits until it is gone.
	Kill(ctx context.Context) error
	// Restart starts a killed process again, with the data on its disk, and
	// waits until it answers.
	Restart(ctx context.Context) error
	// Pause stops the process (SIGSTOP) and waits until it stands still.
	// Resume lets it go on.
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error
	// Observer is a connection past every fault. The deployment closes it.
	Observer() *redis.Client
	// Log is where the server writes its log.
	Log() string
}

// A Wire is the proxy on one link. Its faults add up, and each is ended by the
// function that its beginning returned.
type Wire interface {
	Name() string
	// Cut resets every connection and refuses new ones.
	Cut() (mend func())
	// Hold stops the data of a stream, and keeps it, as a partition with TCP's
	// retransmission does.
	Hold(s Stream) (mend func(), err error)
	// Delay adds a latency with jitter to the data of a stream.
	Delay(s Stream, latency, jitter time.Duration) (mend func(), err error)
	// Reset resets every connection, once, and reports how many there were.
	Reset() int
	// Probe sends a PING through the link and returns how long the answer
	// took.
	Probe(ctx context.Context) (time.Duration, error)
}

// A Stream is a direction of data on a link. It is an alias, so that a fault can
// name the same method without importing this package.
type Stream = string

// The streams of a link.
const (
	Upstream   Stream = "upstream"   // from the one who dialled
	Downstream Stream = "downstream" // to the one who dialled
	Both       Stream = "both"
)

// An Observation is what a server was seen to say.
type Observation struct {
	Node  string
	What  string // role, master
	Value string
}
