package container

import (
	"context"
	"errors"
	"net/netip"
	"os"

	"github.com/moby/moby/client"

	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/internal/bootstrap"
)

// A program is the server program of a store.
type program struct {
	store       bootstrap.Store
	name        string
	port, among uint16 // of clients, and of servers for each other
	parse       func(out string) (version string, err error)
	newEnough   func(what, version string) error
}

// programs are those that the backend can start, by the stores that topologies name.
func programs() map[string]program {
	return map[string]program{
		topologies.StoreRedis: {bootstrap.RedisStore{}, "redis-server", redisPort, busPort, bootstrap.ParseVersion, bootstrap.NewEnough},
		topologies.StoreEtcd:  {bootstrap.NewEtcd(), "etcd", etcdPort, etcdPeerPort, bootstrap.ParseEtcdVersion, bootstrap.NewEnoughEtcd},
	}
}

// askVersion asks the server program of an image that says nothing of it.
func (g *ground) askVersion(ctx context.Context, i image) (version string, err error) {
	n, err := g.node("version", bootstrap.Address{Listen: netip.AddrPortFrom(g.bridge.address(1), g.program.port)})
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
	return g.program.parse(string(out))
}
