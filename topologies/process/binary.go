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

// A Binary is a redis-server that can be run.
type Binary struct {
	Path    string
	Version string // "7.0.15"
}

// FindBinary looks for a redis-server: the one that [BinaryVariable] names,
// else the first in PATH. It fails with [topologies.ErrMissing] if there is
// none, with [topologies.ErrTooOld] if it is older than [topologies.MinRedis],
// and with [topologies.ErrUnusable] if either, or that it is no redis-server, is
// true of the one that was named.
func FindBinary(ctx context.Context) (Binary, error) {
	if runtime.GOOS != "linux" {
		return Binary{}, fmt.Errorf("%w: servers as local processes need Linux, and this is %s "+
			"(attach to servers that run already with --endpoints or --compose)", topologies.ErrMissing, runtime.GOOS)
	}
	named := os.Getenv(BinaryVariable)
	path, err := exec.LookPath(cmp.Or(named, "redis-server"))
	switch {
	case err != nil && named != "":
		return Binary{}, fmt.Errorf("%w: %s names %s, and there is no such program", topologies.ErrUnusable, BinaryVariable, named)
	case err != nil:
		return Binary{}, fmt.Errorf("%w: no redis-server (install it with `make redis` "+
			"or `apt-get install redis-server`, or name one in %s)", topologies.ErrMissing, BinaryVariable)
	}
	if path, err = filepath.Abs(path); err != nil { // servers are started in folders of their own
		return Binary{}, fmt.Errorf("find redis-server: %w", err)
	}
	version, err := askVersion(ctx, path)
	switch {
	case ctx.Err() != nil:
		return Binary{}, context.Cause(ctx)
	case err != nil && named != "":
		return Binary{}, fmt.Errorf("%w: %s names %s, which is no redis-server: %w", topologies.ErrUnusable, BinaryVariable, named, err)
	case err != nil:
		return Binary{}, fmt.Errorf("ask %s for its version: %w", path, err)
	}
	err = bootstrap.NewEnough(path, version)
	switch {
	case err != nil && named != "":
		return Binary{}, fmt.Errorf("%s %w: %w", BinaryVariable, topologies.ErrUnusable, err)
	case err != nil:
		return Binary{}, err
	}
	return Binary{Path: path, Version: version}, nil
}

func askVersion(ctx context.Context, path string) (string, error) {
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", filepath.Base(path), err)
	}
	return bootstrap.ParseVersion(string(out))
}
