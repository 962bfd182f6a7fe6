package container

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	dockernetwork "github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/network"

	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/internal/bootstrap"
	"github.com/lockchaos/lockchaos/topologies/internal/proxynet"
)

// lookTimeout bounds a look at a network that is not removed.
const lookTimeout = 5 * time.Second

// subnetTries is how often a subnet is asked for that another harness then
// takes first.
const subnetTries = 20

// A bridge is the network of a deployment. The host has its first address.
type bridge struct {
	*testcontainers.DockerNetwork

	gateway netip.Addr
}

// makeBridge makes a network whose nodes keep their addresses. The engine
// grants fixed addresses only where it was told the subnet, so it is asked for
// a network of its choice, which keeps clear of the host's routes, and then for
// the same one again by its subnet. If another program takes that
// subnet in between, it tries again.
func makeBridge(ctx context.Context, c *client.Client, labels map[string]string) (*bridge, error) {
	var errs []error
	for range subnetTries {
		subnet, err := freeSubnet(ctx, c, labels)
		if err != nil {
			return nil, fmt.Errorf("make network: %w", err)
		}
		b := &bridge{gateway: subnet.Addr().Next()}
		b.DockerNetwork, err = network.New(ctx, network.WithLabels(labels), network.WithIPAM(&dockernetwork.IPAM{
			Config: []dockernetwork.IPAMConfig{{Subnet: subnet, Gateway: b.gateway}},
		}))
		if err == nil {
			return b, nil
		}
		if !strings.Contains(err.Error(), "overlap") {
			return nil, fmt.Errorf("make network: %w", err)
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("make network: every subnet was taken by another program first: %w", errs[len(errs)-1])
}

// freeSubnet is one that the engine would use now.
func freeSubnet(ctx context.Context, c *client.Client, labels map[string]string) (subnet netip.Prefix, err error) {
	n, err := network.New(ctx, network.WithLabels(labels))
	if err != nil {
		return netip.Prefix{}, err
	}
	defer func() { err = errors.Join(err, n.Remove(context.WithoutCancel(ctx))) }()
	seen, err := c.NetworkInspect(ctx, n.ID, client.NetworkInspectOptions{})
	if err != nil {
		return netip.Prefix{}, err
	}
	for _, config := range seen.Network.IPAM.Config {
		if config.Subnet.Addr().Is4() {
			return config.Subnet.Masked(), nil
		}
	}
	return netip.Prefix{}, fmt.Errorf("the engine's networks have no IPv4 addresses: %+v", seen.Network.IPAM)
}

// errMiscounts says that the engine never lets a network go, because it counts
// endpoints that it does not have: a defect of some engines.
var errMiscounts = errors.New("the engine counts containers on a network that has none: restart it (moby/moby#42119)")

// letGo removes a network whose containers are removed. The engine says that a
// running container is removed before it has taken it off its network, and
// refuses to remove the network for as long as it has not. Milliseconds are usual.
func letGo(ctx context.Context, c *client.Client, id string, remove func(context.Context) error) error {
	const refusal = "active endpoints"
	err := insist(ctx, remove, refusal)
	if err == nil || !strings.Contains(err.Error(), refusal) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTimeout)
	defer cancel()
	if n, lost := c.NetworkInspect(ctx, id, client.NetworkInspectOptions{}); lost == nil && len(n.Network.Containers) == 0 {
		return fmt.Errorf("%w: %w", errMiscounts, err)
	}
	return err
}

// insist removes something that the engine refuses to remove for a reason that
// passes: one that says so in these words.
func insist(ctx context.Context, remove func(context.Context) error, passing ...string) error {
	ctx, cancel := context.WithTimeout(ctx, clearTimeout)
	defer cancel()
	return await.While(ctx, func(err error) bool {
		return slices.ContainsFunc(passing, func(p string) bool { return strings.Contains(err.Error(), p) })
	}, func() error { return remove(ctx) })
}

// address is that of the nth node, from 1.
func (b *bridge) address(n int) netip.Addr {
	a := b.gateway
	for range n {
		a = a.Next()
	}
	return a
}

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
