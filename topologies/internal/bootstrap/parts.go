package bootstrap

import (
	"context"
	"log/slog"
	"net"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/topologies"
)

// Parts are what a backend makes a deployment of.
type Parts struct {
	Topology topologies.Topology
	// Store is what the servers are; nil: Redis.
	Store Store
	// Version is the version of the servers.
	Version string
	// Product is what the servers call themselves where that is not their store.
	Product string
	// Nodes are the servers and sentinels of the topology, by name.
	Nodes map[string]Node
	// Proxy returns the proxy of a link by its name, or nil for none.
	Proxy func(name string) topologies.Proxy
	// Instruments returns the clock and the disk of a server, or nil for none. Nil: they can't
	// be interfered with.
	Instruments func(server string) Instruments
	// Dial returns how clients of a zone dial the addresses that nodes
	// announce.
	Dial func(zone string) Dialer
	// Adopt has a process group dial as a zone does, until end is called; nil
	// where that can't be.
	Adopt func(group int, zone string) (end func())
	// Name is the address by which clients find the master, of a topology with
	// [topologies.AccessName]; nil for all others.
	Name *Name
	// Client adds to the options of every zone's clients what the servers ask
	// for: credentials, TLS. Nil: nothing.
	Client func(o *redis.UniversalOptions)
	// MasterName is how the sentinels call their master; empty is "mymaster".
	MasterName string
	// Slots is one slot that each shard of a cluster serves, by its boot
	// master. Nil: as [RedisStore.Configure] gives them out.
	Slots map[string]int
	// Foreign says that lockchaos did not start the servers: their periods are
	// left alone, and what a failover changes is put back by Disarm, or by
	// Close at the latest.
	Foreign bool
	// Take claims servers that lockchaos did not start, before anything else is written to them. Nil:
	// they are claimed already, or ours.
	Take func(ctx context.Context) error
	// Check is asked, with everything else, whether the deployment is ready. Nil:
	// nothing is.
	Check func() error
	// Without is what the deployment can't do, and why.
	Without map[topologies.Capability]string
	// Log gets a line for what is waited for, each time that this changes. Nil:
	// none.
	Log *slog.Logger
	// Restore ends every fault and lets every server run again. It is called
	// once, before Close and before what a failover changed is put back. Nil:
	// there is nothing to restore.
	Restore func() error
	// Close frees everything behind the parts, the observers included. It is
	// called once.
	Close func() error
}

// Instruments are what a server sees of the clock and the disk.
type Instruments interface {
	topologies.Clock
	topologies.Disk
}

// A Node is a server with the address, host:port, that it announces: the one by
// which clients and the other servers know it.
type Node struct {
	topologies.Server
	Announced string
	// At is where it is, of a member of a consensus store.
	At Address
}

// A Name is an address that leads to one of the servers.
type Name struct {
	// Address is the host:port that clients dial.
	Address string
	// Point has new connections lead to a server, and leaves those that are open
	// where they are.
	Point func(server string)
}

// A Dialer opens connections, as [net.Dialer.DialContext] does.
type Dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// Boot starts the servers and returns the deployment once it is ready. If that fails, the
// parts are closed.
func Boot(ctx context.Context, p Parts) (topologies.Deployment, error) {
	d := assemble(p)
	return d.bring(ctx, d.start)
}

// Adopt returns the deployment of servers that run, once they agree on their masters, were taken, and
// it is ready. If that fails, the parts are closed.
func Adopt(ctx context.Context, p Parts) (topologies.Deployment, error) {
	d := assemble(p)
	return d.bring(ctx, func(ctx context.Context) error {
		err := d.settle(ctx)
		if err == nil && p.Take != nil {
			err = p.Take(ctx)
		}
		return err
	})
}
