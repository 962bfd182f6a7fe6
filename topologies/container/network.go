package container

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	dockernetwork "github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/network"

	"github.com/lockchaos/lockchaos/internal/await"
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
