package container

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/internal/bootstrap"
	"github.com/lockchaos/lockchaos/topologies/internal/proxynet"
)

// The ports that nodes listen on are those that their servers come with. The ones they
// announce are all on the gateway, and so differ: the nth server's is n above
// the first of these.
const (
	redisPort, busPort, sentinelPort = 6379, 16379, 26379
	etcdPort, etcdPeerPort           = 2379, 2380
	zooKeeperPort                    = 2181

	redisPorts, sentinelPorts, busPorts, electionPorts = 22000, 22500, 23000, 23500

	// namePort is that of the address that moves, above the servers'.
	namePort = redisPorts + 200
)

// portRanges is how many ranges of ports are tried, each as far above the last
// as they reach, and none in use by outgoing connections.
const portRanges, portRange = 5, 2000

// wire gives every node its addresses and serves the links between them.
// A program that listens on all addresses of the host may have some of the ports.
func (g *resources) wire(t topologies.Topology) error {
	var err error
	for i := range uint16(portRanges) {
		g.addresses = g.bridge.addresses(t, g.program, i*portRange)
		g.name = netip.AddrPortFrom(g.bridge.gateway, namePort+i*portRange)
		g.network, err = proxynet.New(bootstrap.Endpoints(t, g.program.store, g.addresses, source, g.name), t.Links)
		if !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("no free range of ports on %v: each of the %d from %d on has one that is taken: %w", g.bridge.gateway, portRanges, redisPorts+1, err)
	}
	if errors.Is(err, syscall.EADDRNOTAVAIL) {
		return fmt.Errorf("%w: the Docker engine's networks have no address on this host (it is rootless, or in a virtual machine): %w",
			topologies.ErrMissing, err)
	}
	return err
}

// addresses gives every node its own.
func (b *bridge) addresses(t topologies.Topology, p program, above uint16) map[string]bootstrap.Address {
	at := map[string]bootstrap.Address{}
	next := func(first, port uint16) bootstrap.Address {
		n := len(at) + 1
		return bootstrap.Address{
			Listen:    netip.AddrPortFrom(b.address(n), port),
			Announced: netip.AddrPortFrom(b.gateway, first+above+uint16(n)),
		}
	}
	for _, name := range t.Servers() {
		a := next(redisPorts, p.port)
		if t.HasSlots() || t.Consensus() {
			a.AnnouncedBus = a.Announced.Port() + busPorts - redisPorts
			a.Bus = cmp.Or(p.among, a.AnnouncedBus)
		}
		if t.Store() == topologies.StoreZooKeeper {
			a.Election = a.Announced.Port() + electionPorts - redisPorts
		}
		at[name] = a
	}
	for _, name := range t.Of(topologies.Sentinel) {
		at[name] = next(sentinelPorts, sentinelPort)
	}
	return at
}

// source is the address that the clients of the nth zone dial from: a loopback one, which
// reaches the gateway, since that is on this host too. Another deployment can
// have the same, for it has another gateway.
func source(n int) netip.Addr { return netip.AddrFrom4([4]byte{127, 0, 3, byte(n + 1)}) }
