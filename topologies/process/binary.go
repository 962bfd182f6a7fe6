package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/internal/bootstrap"
)

// The environment variables that name programs other than the first ones in PATH, and a
// zookeeper.jar other than that of Debian's package.
const (
	BinaryVariable    = "LOCKCHAOS_REDIS_SERVER"
	EtcdVariable      = "LOCKCHAOS_ETCD"
	ZooKeeperVariable = "LOCKCHAOS_ZOOKEEPER"
	JavaVariable      = "LOCKCHAOS_JAVA" // which runs it
)

// debianJar is where Debian's package has ZooKeeper. Its manifest names the libraries that
// it needs.
const debianJar = "/usr/share/java/zookeeper.jar"

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
	file  file
	// rebinds says that a server of it listens where it announces itself, and can't be
	// told otherwise: see [resources.rebind].
	rebinds bool
}

// programs are those that the backend can start, by the stores that topologies name.
func programs() map[string]program {
	return map[string]program{
		topologies.StoreRedis: {store: bootstrap.RedisStore{}, file: file{"redis-server", "program", "`make redis` or `apt-get install redis-server`", BinaryVariable}},
		topologies.StoreEtcd:  {store: bootstrap.Etcd{}, file: file{"etcd", "program", "`make etcd` or `apt-get install etcd-server`", EtcdVariable}},
		topologies.StoreZooKeeper: {
			store: bootstrap.ZooKeeper{}, rebinds: true,
			file: file{debianJar, "jar", "`make zookeeper` or `apt-get install libzookeeper-java`", ZooKeeperVariable},
		},
	}
}

// A file is a program, or a jar.
type file struct{ name, kind, install, variable string }

// find returns its path, and whether the variable names it.
func (f file) find() (path string, named bool, err error) {
	chosen := os.Getenv(f.variable)
	if path = cmp.Or(chosen, f.name); f.kind == "jar" {
		_, err = os.Stat(path)
	} else {
		path, err = exec.LookPath(path)
	}
	switch {
	case err != nil && chosen != "":
		return "", true, fmt.Errorf("%w: %s names %s, and there is no such %s", topologies.ErrUnusable, f.variable, chosen, f.kind)
	case err != nil:
		return "", false, fmt.Errorf("%w: no %s (install it with %s, or name one in %s)", topologies.ErrMissing, filepath.Base(f.name), f.install, f.variable)
	}
	path, err = filepath.Abs(path) // servers are started in folders of their own
	return path, chosen != "", err
}

// Find looks for the server program of a store, one of those that topologies name: the one that a
// variable names, else the first in PATH. It fails with [topologies.ErrMissing] if there is none,
// with [topologies.ErrTooOld] if it is older than [topologies.MinRedis], [topologies.MinEtcd] or
// [topologies.MinZooKeeper], and with [topologies.ErrUnusable] if either, or that it is no such
// program, is true of the one that was named.
func Find(ctx context.Context, store string) (b Binary, err error) {
	if runtime.GOOS != "linux" {
		return b, fmt.Errorf("%w: servers as local processes need Linux, and this is %s "+
			"(attach to servers that run already with --endpoints or --compose)", topologies.ErrMissing, runtime.GOOS)
	}
	f := programs()[store].file
	path, named, err := f.find()
	if err != nil {
		return b, err
	}
	b.Path = path
	ask := []string{"--version"}
	if store == topologies.StoreZooKeeper {
		var otherJava bool
		java := file{"java", "program", "`make zookeeper` or `apt-get install default-jre-headless`", JavaVariable}
		if b.Path, otherJava, err = java.find(); err != nil {
			return b, err
		}
		named = named || otherJava
		ask = []string{"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xmx64m", "-cp", path, bootstrap.ZooKeeperVersionClass}
		var beside []string
		log := filepath.Join(filepath.Dir(path), "slf4j-simple.jar")
		if _, err := os.Stat(log); err == nil {
			beside = append(beside, log)
		}
		b.Args = bootstrap.ZooKeeperProgram(path, beside...)
	}
	said, err := output(ctx, b.Path, ask)
	if err == nil {
		b.Version, err = bootstrap.ParseVersion(store, said)
	}
	switch {
	case ctx.Err() != nil:
		return b, context.Cause(ctx)
	case err != nil && named:
		return b, fmt.Errorf("%w: %s names %s, which is no %s: %w", topologies.ErrUnusable, f.variable, path, filepath.Base(f.name), err)
	case err != nil:
		return b, fmt.Errorf("ask %s for its version: %w", path, err)
	}
	if err = bootstrap.NewEnough(store, path, b.Version); err != nil && named {
		err = fmt.Errorf("%s %w: %w", f.variable, topologies.ErrUnusable, err)
	}
	if store == topologies.StoreRedis {
		b.Product = bootstrap.ParseProduct(said)
	}
	return b, err
}

// output is what a program prints, or why it fails, as it says in a line.
func output(ctx context.Context, path string, args []string) (string, error) {
	var said strings.Builder
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stderr = &said
	out, err := cmd.Output()
	if first, _, _ := strings.Cut(strings.TrimSpace(said.String()), "\n"); err != nil && first != "" {
		return "", errors.New(first)
	} else if err != nil {
		return "", fmt.Errorf("%s %s: %w", filepath.Base(path), args[0], err)
	}
	return string(out), nil
}
