package bootstrap

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/lockchaos/lockchaos/topologies"
)

// ParseVersion reads what `redis-server --version` prints.
func ParseVersion(out string) (string, error) {
	m := regexp.MustCompile(`\bv=(\d+\.\d+\.\d+)`).FindStringSubmatch(out)
	if m == nil {
		return "", fmt.Errorf("no version in %q", strings.TrimSpace(out))
	}
	return m[1], nil
}

// ParseProduct reads from the same what the server is: "redis", or what a server in its
// place calls itself, such as "valkey".
func ParseProduct(out string) string {
	if m := regexp.MustCompile(`^([A-Za-z]+) server v=`).FindStringSubmatch(out); m != nil {
		return strings.ToLower(m[1])
	}
	return topologies.StoreRedis
}

// NewEnough fails with [topologies.ErrTooOld] if the Redis of what, a program or
// an image, is older than [topologies.MinRedis].
func NewEnough(what, version string) error {
	return newEnough("Redis", what, version, topologies.MinRedis)
}

// NewEnoughEtcd is the same for an etcd, and [topologies.MinEtcd].
func NewEnoughEtcd(what, version string) error {
	return newEnough("etcd", what, version, topologies.MinEtcd)
}

func newEnough(of, what, version, oldest string) error {
	is, least := strings.Split(version, "."), strings.Split(oldest, ".")
	for i := range min(len(is), len(least)) {
		x, err := strconv.Atoi(is[i])
		if err != nil {
			return fmt.Errorf("%w: %s calls its %s version %q", topologies.ErrUnusable, what, of, version)
		}
		switch y, _ := strconv.Atoi(least[i]); { // a constant
		case x > y:
			return nil
		case x < y:
			return fmt.Errorf("%s %w: %s is version %s, and %s is the oldest that can be driven",
				strings.ToLower(of), topologies.ErrTooOld, what, version, oldest)
		}
	}
	return nil
}
