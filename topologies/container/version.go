package container

import (
	"context"
	"errors"
	"net/netip"
	"os"

	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/internal/bootstrap"
)

// A program is the server program of a store.
type program struct {
	store       bootstrap.Store
	name        string
	args        []string // before those of a server
	asked       []string // for its version
	port, among uint16   // of clients, and of servers for each other; the latter 0 for the one that is announced
}

// javaFolder is where an image has zookeeper.jar, and the libraries that its manifest names,
// as Debian's package has them.
const javaFolder = "/usr/share/java/"

// programs are those that the backend can start, by the stores that topologies name.
func programs() map[string]program {
	version := []string{"--version"}
	return map[string]program{
		topologies.StoreRedis: {
			store: bootstrap.RedisStore{}, name: "redis-server", asked: version, port: redisPort, among: busPort,
		},
		topologies.StoreEtcd: {
			store: bootstrap.NewEtcd(), name: "etcd", asked: version, port: etcdPort, among: etcdPeerPort,
		},
		topologies.StoreZooKeeper: {
			store: bootstrap.ZooKeeper{Everywhere: true}, name: "java", asked: []string{"-cp", javaFolder + "zookeeper.jar", bootstrap.ZooKeeperVersionClass}, port: zooKeeperPort,
			args: bootstrap.ZooKeeperProgram(javaFolder+"zookeeper.jar", javaFolder+"slf4j-simple.jar"),
		},
	}
}

// askVersion asks the server program of an image that says nothing of it.
func (g *resources) askVersion(ctx context.Context, store string, i image) (version string, err error) {
	n, err := g.node("version", bootstrap.Address{Listen: netip.AddrPortFrom(g.bridge.address(1), g.program.port)})
	if err != nil {
		return "", err
	}
	// Its address is wanted for a server.
	defer func() { err = errors.Join(err, n.remove(ctx), n.Observer().Close()) }()
	if err := n.create(ctx, i, g.bridge, g.labels, bootstrap.Config{Args: g.program.asked}); err != nil {
		return "", err
	}
	if err := n.Start(ctx); err != nil {
		return "", err
	}
	if err := n.Ended(ctx); err != nil {
		return "", err
	}
	out, err := os.ReadFile(n.Log())
	if err != nil {
		return "", err
	}
	return bootstrap.ParseVersion(store, string(out))
}
