package process

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/internal/bootstrap"
)

// BinaryVariable names the environment variable that chooses a redis-server
// other than the first one in PATH.
const BinaryVariable = "LOCKCHAOS_REDIS_SERVER"

// EtcdVariable names the environment variable that chooses an etcd other than the first
// one in PATH.
const EtcdVariable = "LOCKCHAOS_ETCD"

// A Binary is a server program that can be run.
type Binary struct {
	Path string
	// Args come before those of a server.
	Args    []string
	Version string // "7.0.15"
	// Product is what a server calls itself that takes the place of its store's: "valkey".
	// Empty: it is not asked.
	Product string
}

// A program is the server program of a store.
type program struct {
	store bootstrap.Store
	find  func(ctx context.Context) (Binary, error)
	// rebinds says that a server of it listens where it announces itself, and can't be
	// told otherwise: see [resources.rebind].
	rebinds bool
}

// programs are those that the backend can start, by the stores that topologies name.
func programs() map[string]program {
	return map[string]program{
		topologies.StoreRedis:     {store: bootstrap.RedisStore{}, find: FindBinary},
		topologies.StoreEtcd:      {store: bootstrap.NewEtcd(), find: FindEtcd},
		topologies.StoreZooKeeper: {store: bootstrap.ZooKeeper{}, find: FindZooKeeper, rebinds: true},
	}
}

// Find looks for the server program of a store, one of those that topologies name.
func Find(ctx context.Context, store string) (Binary, error) { return programs()[store].find(ctx) }

// A wanted is a server program that is looked for.
type wanted struct {
	name, variable string
	// install says how to get it.
	install   string
	parse     func(out string) (version string, err error)
	product   func(out string) string // nil: it is not asked
	newEnough func(what, version string) error
}

// FindBinary looks for a redis-server: the one that [BinaryVariable] names,
// else the first in PATH. It fails with [topologies.ErrMissing] if there is
// none, with [topologies.ErrTooOld] if it is older than [topologies.MinRedis],
// and with [topologies.ErrUnusable] if either, or that it is no redis-server, is
// true of the one that was named.
func FindBinary(ctx context.Context) (Binary, error) {
	return find(ctx, wanted{
		name: "redis-server", variable: BinaryVariable, install: "`make redis` or `apt-get install redis-server`",
		parse: bootstrap.ParseVersion, product: bootstrap.ParseProduct, newEnough: bootstrap.NewEnough,
	})
}

// FindEtcd looks for an etcd: the one that [EtcdVariable] names, else the first in PATH.
// Its errors are those of [FindBinary], with [topologies.MinEtcd].
func FindEtcd(ctx context.Context) (Binary, error) {
	return find(ctx, wanted{
		name: "etcd", variable: EtcdVariable, install: "`make etcd` or `apt-get install etcd-server`",
		parse: bootstrap.ParseEtcdVersion, newEnough: bootstrap.NewEnoughEtcd,
	})
}

// onLinux fails anywhere else.
func onLinux() error {
	if runtime.GOOS == "linux" {
		return nil
	}
	return fmt.Errorf("%w: servers as local processes need Linux, and this is %s "+
		"(attach to servers that run already with --endpoints or --compose)", topologies.ErrMissing, runtime.GOOS)
}

func find(ctx context.Context, w wanted) (Binary, error) {
	if err := onLinux(); err != nil {
		return Binary{}, err
	}
	named := os.Getenv(w.variable)
	path, err := exec.LookPath(cmp.Or(named, w.name))
	switch {
	case err != nil && named != "":
		return Binary{}, fmt.Errorf("%w: %s names %s, and there is no such program", topologies.ErrUnusable, w.variable, named)
	case err != nil:
		return Binary{}, fmt.Errorf("%w: no %s (install it with %s, or name one in %s)", topologies.ErrMissing, w.name, w.install, w.variable)
	}
	if path, err = filepath.Abs(path); err != nil { // servers are started in folders of their own
		return Binary{}, fmt.Errorf("find %s: %w", w.name, err)
	}
	said, err := askVersion(ctx, path)
	version := ""
	if err == nil {
		version, err = w.parse(said)
	}
	switch {
	case ctx.Err() != nil:
		return Binary{}, context.Cause(ctx)
	case err != nil && named != "":
		return Binary{}, fmt.Errorf("%w: %s names %s, which is no %s: %w", topologies.ErrUnusable, w.variable, named, w.name, err)
	case err != nil:
		return Binary{}, fmt.Errorf("ask %s for its version: %w", path, err)
	}
	err = w.newEnough(path, version)
	switch {
	case err != nil && named != "":
		return Binary{}, fmt.Errorf("%s %w: %w", w.variable, topologies.ErrUnusable, err)
	case err != nil:
		return Binary{}, err
	}
	b := Binary{Path: path, Version: version}
	if w.product != nil {
		b.Product = w.product(said)
	}
	return b, nil
}

func askVersion(ctx context.Context, path string) (string, error) {
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", filepath.Base(path), err)
	}
	return string(out), nil
}
