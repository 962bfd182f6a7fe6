package container

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/moby/moby/client"

	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/deploy"
)

// askVersion asks the Redis of an image that says nothing of it.
func (g *ground) askVersion(ctx context.Context, i image) (version string, err error) {
	n, err := g.node("version", netip.AddrPortFrom(g.bridge.address(1), redisPort))
	if err != nil {
		return "", err
	}
	// Its address is wanted for a server.
	defer func() { err = errors.Join(err, n.remove(ctx), n.observer.Close()) }()
	if err := n.create(ctx, i, g.bridge, g.labels, deploy.Config{Args: []string{"--version"}}); err != nil {
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
	m := regexp.MustCompile(`\bv=(\d+\.\d+\.\d+)`).FindStringSubmatch(string(out))
	if m == nil {
		return "", fmt.Errorf("no version in %q", strings.TrimSpace(string(out)))
	}
	return m[1], nil
}

// newEnough fails with [topologies.ErrTooOld] for a Redis that can't be driven.
func newEnough(image, version string) error {
	is, least := strings.Split(version, "."), strings.Split(topologies.MinRedis, ".")
	for i := range min(len(is), len(least)) {
		x, err := strconv.Atoi(is[i])
		if err != nil {
			return fmt.Errorf("image %s calls its Redis version %q", image, version)
		}
		y, _ := strconv.Atoi(least[i]) // a constant
		if x != y {
			if x < y {
				return fmt.Errorf("%w: image %s has version %s, and %s is the oldest that can be driven",
					topologies.ErrTooOld, image, version, topologies.MinRedis)
			}
			return nil
		}
	}
	return nil
}
