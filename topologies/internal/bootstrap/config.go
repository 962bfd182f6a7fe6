package bootstrap

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/internal/proxynet"
)

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
			p.Greeting, p.Patience = store.Greeting, store.Patience()
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
