package topologies

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/internal/traffic"
)

// The errors of a backend that its user can do something about.
var (
	// ErrMissing says that the machine lacks what the backend needs.
	ErrMissing = errors.New("missing on this machine")
	// ErrUnusable says that what its user named in particular, a program or an
	// image, can't be used.
	ErrUnusable = errors.New("can't be used")
	// ErrTooOld says that the server program found is older than [MinRedis], [MinEtcd] or
	// [MinZooKeeper].
	ErrTooOld = errors.New("is too old")
)

// A CleanupError says what could not be undone or removed, so that it stays behind:
// it is an error of [Deployment.Close], and of a start that failed.
type CleanupError struct{ Err error }

func (e *CleanupError) Error() string { return "left behind: " + e.Err.Error() }
func (e *CleanupError) Unwrap() error { return e.Err }

// Left is the errors as a [CleanupError]; nil if there are none.
func Left(errs ...error) error {
	if err := errors.Join(errs...); err != nil {
		return &CleanupError{err}
	}
	return nil
}

// MinRedis is the oldest Redis that the harness can drive: it needs
// bind-source-addr and SENTINEL DEBUG.
const MinRedis = "7.0.0"

// MinEtcd is the oldest etcd that the harness can drive: it needs pre-vote, and the JSON
// gateway under /v3.
const MinEtcd = "3.4.0"

// MinZooKeeper is the oldest ZooKeeper that the harness drives: no older one was tried.
const MinZooKeeper = "3.8.0"

// A Backend starts deployments. Its Start returns once the deployment is
// ready: roles agreed, replication proven by a write that every replica
// acknowledged, and every zone of clients served.
type Backend interface {
	Start(ctx context.Context, t Topology) (Deployment, error)
}

// A Deployment is a topology that runs. Close stops every process that it
// started and removes every file; the caller that started it closes it. Where it can't,
// its error is a [CleanupError].
type Deployment interface {
	Topology() Topology
	// Version is the version of the servers, and Product what they are: their store, or
	// what a server in its place calls itself, such as "valkey".
	Version() string
	Product() string
	// Server returns a server or a sentinel; nil for any other node.
	Server(name string) Server
	// NodeAt is the name of the server that clients know by an address, or
	// [Primary] for the address of [AccessName]; the address itself if there is
	// none.
	NodeAt(address string) string
	// Addresses are those by which clients know servers and sentinels, and that of
	// [AccessName] where there is one.
	Addresses() []string
	// Proxy returns the proxy of a link by its name; nil for any other.
	Proxy(name string) Proxy
	// Instruments returns what a server sees of the clock and the disk; nil where there is
	// none, or where it can't be interfered with.
	Instruments(server string) Instruments
	// ClientOptions connect clients of a zone as their services would: through
	// the zone's links, by the name where there is one, else by sentinels where
	// there are some. [Clients] makes the clients of them. Of servers that are no
	// Redis, the addresses, the dialer and the timeouts are good for any client.
	ClientOptions(zone string) *redis.UniversalOptions
	// Adopt has the connections of a process group, and of the processes that it
	// started, pass the links of a zone, for clients that can't be told to dial
	// from the zone's address. The function that it returns ends that. The error
	// says that this deployment can't tell its clients apart by their process.
	Adopt(group int, zone string) (end func(), err error)
	// Unsupported says what can't be done to this deployment, and why; empty where
	// nothing is missing.
	Unsupported() map[Capability]string
	// Watch reports what the servers say of themselves, and where the name leads,
	// once and at each change, until the context ends. It looks past every fault.
	Watch(ctx context.Context, report func(Observation))
	// AwaitReady blocks until the deployment is whole again: one master a
	// shard, all servers attached, replication proven, every zone served. It
	// has a bound of its own, and its error says what it waited for last.
	AwaitReady(ctx context.Context) error
	// Master is the server that the majority takes for a shard's master and
	// that takes itself for one. A shard is named by its boot master, one of
	// [Topology.Shards]; any other is an error, here and below.
	Master(ctx context.Context, shard string) (string, error)
	// AwaitMaster blocks until the majority agrees on a master other than old,
	// and the name leads there, if clients go by one.
	AwaitMaster(ctx context.Context, shard, old string) (string, error)
	// Arm makes the servers quick to declare a master down and to replace it;
	// Disarm makes them slow again, so that nothing else fails over. Where the
	// servers have one speed only, as in a cluster, both do nothing.
	Arm(ctx context.Context) error
	Disarm(ctx context.Context) error
	// Promote asks for a graceful failover of a shard, and does not wait for
	// it; Disarm must follow once the master has changed. It fails where the
	// servers replace no master by themselves ([Topology.Elects]), or without [Failovers].
	Promote(ctx context.Context, shard string) error
	// CheckClaim fails once another run has the deployment, as it can that of another
	// operator. It asks no server, and says nothing of whether the deployment is whole.
	CheckClaim() error
	// Empty removes all that clients wrote, past every fault, for another run. It fails where
	// the servers are not the harness's own, or their store has no such thing.
	Empty(ctx context.Context) error
	// Reuse has Close do something else from now on, for a deployment that outlives its
	// user; nil: it closes.
	Reuse(instead func() error)
	Close() error
}

// A Capability is something that a deployment lets its user do to it.
type Capability string

// The controls of a deployment.
const (
	// Processes: servers can be killed, restarted, paused and resumed.
	Processes Capability = "processes"
	// Wiping: the data of a killed server can be removed.
	Wiping Capability = "wiping"
	// Proxies: every link of the topology has a [Proxy].
	Proxies Capability = "links"
	// Settings: what is in the servers, and how they answer, can be changed.
	Settings Capability = "settings"
	// Clocks: the wall clock of every server and sentinel can be changed.
	Clocks Capability = "clocks"
	// Disks: what a server had not synced to its disk can be lost.
	Disks Capability = "disks"
	// Workers: clients are told from others by the address that they dial from,
	// and so may be processes of their own.
	Workers Capability = "workers"
	// Failovers: the servers can be had to replace their masters, if their topology is
	// one that does.
	Failovers Capability = "failovers"
	// HandOvers: a server that is in office can be asked to hand over: [Deployment.Promote].
	HandOvers Capability = "hand-overs"
	// Messages: what clients and servers send each other can be read and changed: the
	// [Proxy] of every such link is an [Interceptor].
	Messages Capability = "messages"
	// Bandwidth: that the bandwidth of a link is limited can be proven.
	Bandwidth Capability = "bandwidth"
	// Isolation: a server whose links are cut is out of touch with all others.
	Isolation Capability = "isolation"
)

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
	// Wipe removes the data of a killed server, so that the next Restart
	// starts empty. What the server knows of the others, such as a cluster's
	// slots, stays. It fails while the server runs.
	Wipe(ctx context.Context) error
	// Observer is a connection past every fault. The deployment closes it. Of a
	// server that is no Redis, it refuses every command, and says so.
	Observer() *redis.Client
	// Log is a file with the server's log so far; empty if there is none.
	Log() string
}

// A Proxy is the proxy on one link. Its faults add up, and each is ended by the
// function that its beginning returned.
type Proxy interface {
	Name() string
	// Cut resets every connection and refuses new ones. To toxiproxy's API the proxy is disabled.
	Cut() (mend func())
	// Put lays a toxic on a stream.
	Put(s Stream, t Toxic) (mend func(), err error)
	// Toxics are the types of the toxics that lie on the link now, as toxiproxy says, and whether it is enabled.
	Toxics(ctx context.Context) (types []string, enabled bool, err error)
	// Reset resets every connection, once, and reports how many there were.
	Reset() int
	// Probe sends a request through the link and returns how long the answer
	// took.
	Probe(ctx context.Context) (time.Duration, error)
	// ProbeBandwidth sends so many bytes through the link and back, and times that.
	ProbeBandwidth(ctx context.Context, size int) (time.Duration, error)
	// ProbeClose ends a connection as its caller would, and times until the other
	// end has closed it as well.
	ProbeClose(ctx context.Context) (time.Duration, error)
}

// An Interceptor is a [Proxy] that reads what passes it. Those of the backends process
// and container are.
type Interceptor interface {
	Proxy
	// Judge asks what is to become of each message that passes, until it is
	// stopped.
	Judge(judge func(traffic.Message) traffic.Action) (stop func(), err error)
	// Requests are how many requests clients have begun, how many of them have no reply so
	// far, and how many are connections that were refused.
	Requests() (begun, open, refused int64)
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

// StreamsOf lists the streams that a fault's stream means: both, or the one.
func StreamsOf(s Stream) ([]Stream, error) {
	switch s {
	case Both:
		return []Stream{Upstream, Downstream}, nil
	case Upstream, Downstream:
		return []Stream{s}, nil
	default:
		return nil, fmt.Errorf("unknown stream %q (want upstream, downstream or both)", s)
	}
}

// An Observation is what a server was seen to say.
type Observation struct {
	Node  string
	What  string // role, master, epoch; of [Primary], the master that it leads to
	Value string
}

// An Instrumenter is a backend that can have its servers see another clock and
// another disk than they have. It costs them a library that is loaded into
// each, so that a run which needs neither goes without.
type Instrumenter interface {
	Backend
	// Instrumented is the same backend, whose deployments have [Clocks] and
	// [Disks].
	Instrumented() Backend
}

// Instruments are what a server sees of the clock and the disk.
type Instruments interface {
	Clock
	Disk
}

// A Clock is the wall clock that one server, or sentinel, sees.
type Clock interface {
	// Set makes the clock be ahead of the true time by offset from now on, and
	// run at a rate: 1 is that of the true time, 0 stands still. Set(0, 1)
	// makes it true again. It lasts when the server is started again.
	Set(offset time.Duration, rate float64) error
}

// A Disk is what keeps the append-only file of one server.
type Disk interface {
	// Stall makes every sync wait from now on, until it is mended.
	Stall() (mend func())
	// Stalled is how many syncs are waiting.
	Stalled() int
	// CutBack removes from the data of a killed server what it had written
	// and not synced, as a power cut does, and returns how many bytes that
	// were. It fails while the server runs, and where there is no append-only
	// file.
	CutBack(ctx context.Context) (lost int64, err error)
}

// A Toxic is an effect on the data of a link, by the words of toxiproxy's API: see
// https://github.com/Shopify/toxiproxy#toxics. Each fault that lasts on a link is one, but for a cut, which disables the proxy. A
// reset_peer is no Toxic: see [Proxy].Reset.
type Toxic struct {
	Type       string
	Attributes map[string]int64
}

// Latency delays data, give or take the jitter. Both are rounded to whole milliseconds.
func Latency(latency, jitter time.Duration) Toxic {
	return Toxic{"latency", map[string]int64{"latency": latency.Milliseconds(), "jitter": jitter.Milliseconds()}}
}

// Rate lets so many kilobytes a second pass, of 1000 bytes each.
func Rate(rate int) Toxic { return Toxic{"bandwidth", map[string]int64{"rate": int64(rate)}} }

// SlowClose passes the end of a stream on so much later, so that the other end of the connection learns late that it was closed.
func SlowClose(delay time.Duration) Toxic {
	return Toxic{"slow_close", map[string]int64{"delay": delay.Milliseconds()}}
}

// Hold stops the data and keeps it, as a partition with TCP's retransmission does: what was kept is delivered, in order, when
// it is mended. It is lockchaos' own toxic, which a toxiproxy server has if it is lockchaos-toxiproxy.
func Hold() Toxic { return Toxic{TypeHold, nil} }

// TypeHold is the type of [Hold].
const TypeHold = "hold"
