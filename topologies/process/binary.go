package process

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/lockchaos/lockchaos/topologies"
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
// none, and with [topologies.ErrTooOld] if it is older than
// [topologies.MinRedis].
func FindBinary(ctx context.Context) (Binary, error) {
	name := os.Getenv(BinaryVariable)
	if name == "" {
		name = "redis-server"
	}
	path, err := exec.LookPath(name)
	switch {
	case err != nil && name != "redis-server":
		return Binary{}, fmt.Errorf("%w: %s names %s, and there is no such program", topologies.ErrMissing, BinaryVariable, name)
	case err != nil:
		return Binary{}, fmt.Errorf("%w: no redis-server (install it with `make redis`, "+
			"`apt-get install redis-server` or `brew install redis`, or name one in %s)", topologies.ErrMissing, BinaryVariable)
	}
	if path, err = filepath.Abs(path); err != nil { // servers are started in folders of their own
		return Binary{}, fmt.Errorf("find redis-server: %w", err)
	}
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return Binary{}, fmt.Errorf("ask %s for its version: %w", path, err)
	}
	version, err := parseVersion(string(out))
	if err != nil {
		return Binary{}, fmt.Errorf("ask %s for its version: %w", path, err)
	}
	if older(version, topologies.MinRedis) {
		return Binary{}, fmt.Errorf("%w: %s is version %s, and %s is the oldest that can be driven",
			topologies.ErrTooOld, path, version, topologies.MinRedis)
	}
	return Binary{Path: path, Version: version}, nil
}

// parseVersion reads what `redis-server --version` prints.
func parseVersion(out string) (string, error) {
	m := regexp.MustCompile(`\bv=(\d+\.\d+\.\d+)`).FindStringSubmatch(out)
	if m == nil {
		return "", fmt.Errorf("no version in %q", strings.TrimSpace(out))
	}
	return m[1], nil
}

// older compares two versions of three numbers.
func older(a, b string) bool {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(as), len(bs)) {
		x, _ := strconv.Atoi(as[i]) // parseVersion let digits through only
		y, _ := strconv.Atoi(bs[i])
		if x != y {
			return x < y
		}
	}
	return false
}
