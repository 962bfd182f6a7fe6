package bootstrap

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/internal/proxynet"
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
	Instruments func(server string) topologies.Instruments
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

// An Address is where a node of a topology is.
type Address struct {
	// Listen is where the server listens, and dials from, so that a proxy
	// recognizes it.
	Listen netip.AddrPort
	// Announced is what it tells the others, and all others dial.
	Announced netip.AddrPort
	// Bus and AnnouncedBus are the ports, on the same addresses, at which servers talk
	// to each other: of a cluster's bus, and of the members of a consensus store; 0 in
	// all other topologies.
	Bus, AnnouncedBus uint16
	// Election is a second port of that kind, the same on both addresses; 0 where there
	// is none.
	Election uint16
}

// Among are the ports of servers for each other, as the network of proxies has them.
func (a Address) Among() []proxynet.Door {
	var doors []proxynet.Door
	for _, port := range [][2]uint16{{a.AnnouncedBus, a.Bus}, {a.Election, a.Election}} {
		if port[1] != 0 {
			doors = append(doors, proxynet.Door{
				Virtual: netip.AddrPortFrom(a.Announced.Addr(), port[0]), Real: netip.AddrPortFrom(a.Listen.Addr(), port[1]),
			})
		}
	}
	return doors
}

// Endpoints are the nodes of a topology as the network of proxies has them: the zones, each with
// the source that its clients dial from, the servers, and the name, where the topology has one.
func Endpoints(t topologies.Topology, s Store, at map[string]Address, source func(n int) netip.Addr, name netip.AddrPort) []proxynet.Endpoint {
	var endpoints []proxynet.Endpoint
	for i, zone := range t.Of(topologies.Zone) {
		endpoints = append(endpoints, proxynet.Endpoint{Name: zone, Source: source(i)})
	}
	for server, a := range at {
		p := proxynet.Endpoint{Name: server, Source: a.Listen.Addr(), Virtual: a.Announced, Real: a.Listen, Among: a.Among()}
		if store, ok := s.(Consensus); ok {
			p.Greeting = store.Greeting
		}
		endpoints = append(endpoints, p)
	}
	if t.Options.ByName() {
		endpoints = append(endpoints, proxynet.Endpoint{Name: topologies.Primary, Virtual: name, Moves: true})
	}
	return endpoints
}

// Wire gives the parts the links of a network. Clients of the nth zone dial from its source, and by the
// name, where the topology has one.
func (p *Parts) Wire(n *proxynet.Network, source func(n int) netip.Addr, name netip.AddrPort) {
	p.Proxy, p.Adopt = n.Link, n.Adopt
	p.Dial = func(zone string) Dialer { // which the options of a client bound
		from := source(slices.Index(p.Topology.Of(topologies.Zone), zone))
		return (&net.Dialer{LocalAddr: &net.TCPAddr{IP: from.AsSlice()}}).DialContext
	}
	if p.Topology.Options.ByName() {
		p.Name = &Name{Address: name.String(), Point: func(server string) { n.Point(topologies.Primary, server) }}
	}
}

// A Config is what it takes to run a node: the server program with these arguments,
// in a folder of its own with these files in it. The server rewrites the files.
type Config struct {
	Args  []string
	Files map[string]string // contents by name
}

// Write puts the files into a server's folder.
func (c Config) Write(dir string) error {
	for file, contents := range c.Files {
		path := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(contents), 0o600); err != nil {
			return err
		}
	}
	return nil
}
