package container

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	dockernetwork "github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"

	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/internal/bootstrap"
)

// The images that are used when none is asked for.
const (
	// LocalImage is what `make image` builds from the machine's own Redis. It
	// is used where it is there.
	LocalImage = "lockchaos/testnode:local"
	// OfficialImage is used where it is not.
	OfficialImage = "redis:7.4"
)

// pullTimeout bounds how long an image may take to arrive.
const pullTimeout = 5 * time.Minute

// An image is what nodes are made of.
type image struct {
	name    string
	asked   bool     // by its name
	version string   // of the server in it; empty if it does not say
	ports   []string // that testcontainers publishes unasked
}

// findImage returns the image that is asked for; for an empty name, the local
// one where it is there, else the official one. What is not on this machine is
// pulled.
func findImage(ctx context.Context, c *client.Client, name, store string, log *slog.Logger) (image, error) {
	names := []string{name}
	if name == "" {
		names = []string{LocalImage, OfficialImage}
	}
	i, err := inspect(ctx, c, store, names...)
	if errdefs.IsNotFound(err) {
		log.InfoContext(ctx, "pulling", "image", i.name)
		if err = pull(ctx, c, i.name); err == nil {
			i, err = inspect(ctx, c, store, i.name)
		} else {
			err = fmt.Errorf("it is not here and can't be pulled (`make image` builds %s, which needs no registry): %w", LocalImage, err)
		}
	}
	i.asked = name != ""
	switch {
	case ctx.Err() != nil:
		return image{}, context.Cause(ctx)
	case err != nil:
		return image{}, fmt.Errorf("%w: no image %s: %w", i.unusable(), i.name, err)
	}
	return i, nil
}

// inspect is the first of some images that is on this machine; with an error it has the name of the last.
func inspect(ctx context.Context, c *client.Client, store string, names ...string) (i image, err error) {
	for _, i.name = range names {
		found, missing := c.ImageInspect(ctx, i.name)
		if err = missing; err == nil && found.Config != nil {
			i.version = versionIn(store, found.Config.Labels, found.Config.Env)
			i.ports = slices.Collect(maps.Keys(found.Config.ExposedPorts))
		}
		if !errdefs.IsNotFound(err) {
			break
		}
	}
	return i, err
}

// Image returns the image that a [Backend] without one would use, and the
// version of the Redis in it, empty if it does not say. It pulls nothing: an
// image that is not on this machine is [topologies.ErrMissing].
func Image(ctx context.Context) (name, version string, err error) {
	c, err := connect(ctx)
	if err != nil {
		return "", "", err
	}
	defer c.Close()
	i, err := inspect(ctx, c, topologies.StoreRedis, LocalImage, OfficialImage)
	if errdefs.IsNotFound(err) {
		return "", "", fmt.Errorf("%w: neither %s (`make image`) nor %s (`docker pull %s`) is here",
			topologies.ErrMissing, LocalImage, OfficialImage, OfficialImage)
	}
	return i.name, i.version, err
}

// unusable is what it is that the image is no good: a mistake of the caller that asked
// for it, else something that the machine lacks.
func (i image) unusable() error {
	if i.asked {
		return topologies.ErrUnusable
	}
	return topologies.ErrMissing
}

func pull(ctx context.Context, c *client.Client, name string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, pullTimeout, fmt.Errorf("it did not arrive within %v", pullTimeout))
	defer cancel()
	progress, err := c.ImagePull(ctx, name, client.ImagePullOptions{})
	if err != nil {
		return err
	}
	return errors.Join(progress.Wait(ctx), progress.Close())
}

// versionIn reads the version of a store's server that an image tells of itself: ours in a
// label, the official ones of Redis in their environment.
func versionIn(store string, labels map[string]string, env []string) string {
	if v := labels["org.lockchaos."+store]; v != "" {
		return v
	}
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, strings.ToUpper(store)+"_VERSION="); ok {
			return v
		}
	}
	return ""
}

// onLoopback keeps testcontainers, which publishes whatever ports an image
// declares, from doing so on every address of the host.
func (i image) onLoopback() dockernetwork.PortMap {
	bindings := dockernetwork.PortMap{}
	for _, p := range i.ports {
		if port, err := dockernetwork.ParsePort(p); err == nil {
			bindings[port] = []dockernetwork.PortBinding{{HostIP: netip.AddrFrom4([4]byte{127, 0, 0, 1})}}
		}
	}
	return bindings
}

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
			store: bootstrap.Etcd{}, name: "etcd", asked: version, port: etcdPort, among: etcdPeerPort,
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
