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

// FindBinary looks for a redis-server: the one that [BinaryVariable] names,
// else the first in PATH. It fails with [topologies.ErrMissing] if there is
// none, with [topologies.ErrTooOld] if it is older than [topologies.MinRedis],
// and with [topologies.ErrUnusable] if either, or that it is no redis-server, is
// true of the one that was named.
func FindBinary(ctx context.Context) (Binary, error) {
	return find(ctx, topologies.StoreRedis, "redis-server", BinaryVariable)
}

// FindEtcd looks for an etcd: the one that [EtcdVariable] names, else the first in PATH.
// Its errors are those of [FindBinary], with [topologies.MinEtcd].
func FindEtcd(ctx context.Context) (Binary, error) {
	return find(ctx, topologies.StoreEtcd, "etcd", EtcdVariable)
}

// onLinux fails anywhere else.
func onLinux() error {
	if runtime.GOOS == "linux" {
		return nil
	}
	return fmt.Errorf("%w: servers as local processes need Linux, and this is %s "+
		"(attach to servers that run already with --endpoints or --compose)", topologies.ErrMissing, runtime.GOOS)
}

// find looks for the server program of a store, whose package is called as that is.
func find(ctx context.Context, store, name, variable string) (Binary, error) {
	if err := onLinux(); err != nil {
		return Binary{}, err
	}
	named := os.Getenv(variable)
	path, err := exec.LookPath(cmp.Or(named, name))
	switch {
	case err != nil && named != "":
		return Binary{}, fmt.Errorf("%w: %s names %s, and there is no such program", topologies.ErrUnusable, variable, named)
	case err != nil:
		return Binary{}, fmt.Errorf("%w: no %s (install it with `make %[3]s` or `apt-get install %[3]s-server`, or name one in %s)", topologies.ErrMissing, name, store, variable)
	}
	if path, err = filepath.Abs(path); err != nil { // servers are started in folders of their own
		return Binary{}, fmt.Errorf("find %s: %w", name, err)
	}
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	version := ""
	if err != nil {
		err = fmt.Errorf("%s --version: %w", filepath.Base(path), err)
	} else {
		version, err = bootstrap.ParseVersion(store, string(out))
	}
	switch {
	case ctx.Err() != nil:
		return Binary{}, context.Cause(ctx)
	case err != nil && named != "":
		return Binary{}, fmt.Errorf("%w: %s names %s, which is no %s: %w", topologies.ErrUnusable, variable, named, name, err)
	case err != nil:
		return Binary{}, fmt.Errorf("ask %s for its version: %w", path, err)
	}
	err = bootstrap.NewEnough(store, path, version)
	if err != nil && named != "" {
		err = fmt.Errorf("%s %w: %w", variable, topologies.ErrUnusable, err)
	}
	if err != nil {
		return Binary{}, err
	}
	b := Binary{Path: path, Version: version}
	if store == topologies.StoreRedis {
		b.Product = bootstrap.ParseProduct(string(out))
	}
	return b, nil
}
