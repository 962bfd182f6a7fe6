package container

import (
	"context"
	"errors"
	"net/netip"
	"os"

	"github.com/moby/moby/client"

	"github.com/lockchaos/lockchaos/topologies/internal/bootstrap"
)

// askVersion asks the Redis of an image that says nothing of it.
func (g *ground) askVersion(ctx context.Context, i image) (version string, err error) {
	n, err := g.node("version", netip.AddrPortFrom(g.bridge.address(1), redisPort))
	if err != nil {
		return "", err
	}
	// Its address is wanted for a server.
	defer func() { err = errors.Join(err, n.remove(ctx), n.observer.Close()) }()
	if err := n.create(ctx, i, g.bridge, g.labels, bootstrap.Config{Args: []string{"--version"}}); err != nil {
		return "", err
	}
	if _, err := g.engine.ContainerStart(ctx, n.id, client.ContainerStartOptions{}); err != nil {
		return "", err
	}
	if err := n.ended(ctx); err != nil {
		return "", err
	}
	out, err := os.ReadFile(n.Log())
	if err != nil {
		return "", err
	}
	return bootstrap.ParseVersion(string(out))
}
