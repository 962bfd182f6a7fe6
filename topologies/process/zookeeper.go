package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/internal/bootstrap"
)

// ZooKeeperVariable names the environment variable that chooses a zookeeper.jar other than
// Debian's, and JavaVariable that of a java other than the first one in PATH.
const (
	ZooKeeperVariable = "LOCKCHAOS_ZOOKEEPER"
	JavaVariable      = "LOCKCHAOS_JAVA"
)

// debianJar is where Debian's package has ZooKeeper. Its manifest names the libraries that
// it needs.
const debianJar = "/usr/share/java/zookeeper.jar"

// FindJava looks for the java that runs ZooKeeper: the one that [JavaVariable] names, else
// the first in PATH. It fails with [topologies.ErrMissing] if there is none.
func FindJava() (string, error) {
	named := os.Getenv(JavaVariable)
	path, err := exec.LookPath(cmp.Or(named, "java"))
	switch {
	case err != nil && named != "":
		return "", fmt.Errorf("%w: %s names %s, and there is no such program", topologies.ErrUnusable, JavaVariable, named)
	case err != nil:
		return "", fmt.Errorf("%w: no java, which ZooKeeper runs on (install it with `make zookeeper` or `apt-get install default-jre-headless`, or name one in %s)",
			topologies.ErrMissing, JavaVariable)
	}
	return filepath.Abs(path)
}

// FindZooKeeper looks for Java and for ZooKeeper: the jar that [ZooKeeperVariable] names,
// else Debian's. Its errors are those of [FindBinary], with [topologies.MinZooKeeper].
func FindZooKeeper(ctx context.Context) (Binary, error) {
	if err := onLinux(); err != nil {
		return Binary{}, err
	}
	named := os.Getenv(ZooKeeperVariable)
	jar, err := filepath.Abs(cmp.Or(named, debianJar))
	if err != nil {
		return Binary{}, err
	}
	_, err = os.Stat(jar)
	switch {
	case err != nil && named != "":
		return Binary{}, fmt.Errorf("%w: %s names %s, and there is no such jar", topologies.ErrUnusable, ZooKeeperVariable, named)
	case err != nil:
		return Binary{}, fmt.Errorf("%w: no ZooKeeper (install it with `make zookeeper` or `apt-get install libzookeeper-java`, or name a zookeeper.jar in %s)",
			topologies.ErrMissing, ZooKeeperVariable)
	}
	java, err := FindJava()
	if err != nil {
		return Binary{}, err
	}
	version, err := askZooKeeper(ctx, java, jar)
	switch {
	case ctx.Err() != nil:
		return Binary{}, context.Cause(ctx)
	case err != nil:
		return Binary{}, fmt.Errorf("%w: %s runs no ZooKeeper from %s: %w", topologies.ErrUnusable, java, jar, err)
	}
	if err := bootstrap.NewEnough(topologies.StoreZooKeeper, jar, version); err != nil {
		return Binary{}, err
	}
	var beside []string
	if log := filepath.Join(filepath.Dir(jar), "slf4j-simple.jar"); exists(log) {
		beside = append(beside, log)
	}
	return Binary{Path: java, Args: bootstrap.ZooKeeperProgram(jar, beside...), Version: version}, nil
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// askZooKeeper has java say which ZooKeeper is in the jar.
func askZooKeeper(ctx context.Context, java, jar string) (string, error) {
	var said strings.Builder
	cmd := exec.CommandContext(ctx, java, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xmx64m",
		"-cp", jar, bootstrap.ZooKeeperVersionClass)
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		first, _, _ := strings.Cut(strings.TrimSpace(said.String()), "\n")
		return "", errors.New(cmp.Or(first, err.Error()))
	}
	return bootstrap.ParseVersion(topologies.StoreZooKeeper, string(out))
}
