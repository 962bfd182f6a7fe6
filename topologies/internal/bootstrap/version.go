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

// NewEnough fails with [topologies.ErrTooOld] if the Redis of what, a program or
// an image, is older than [topologies.MinRedis].
func NewEnough(what, version string) error {
	is, least := strings.Split(version, "."), strings.Split(topologies.MinRedis, ".")
	for i := range min(len(is), len(least)) {
		x, err := strconv.Atoi(is[i])
		if err != nil {
			return fmt.Errorf("%w: %s calls its Redis version %q", topologies.ErrUnusable, what, version)
		}
		switch y, _ := strconv.Atoi(least[i]); { // a constant
		case x > y:
			return nil
		case x < y:
			return fmt.Errorf("%w: %s is version %s, and %s is the oldest that can be driven",
				topologies.ErrTooOld, what, version, topologies.MinRedis)
		}
	}
	return nil
}
