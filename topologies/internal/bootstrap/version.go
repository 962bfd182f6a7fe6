package bootstrap

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/lockchaos/lockchaos/topologies"
)

// A program is what the version of a store's server program is told by.
type program struct {
	name   string
	says   string // what it prints
	oldest string // that the harness can drive
}

func programOf(store string) program {
	switch store {
	case topologies.StoreEtcd:
		return program{"etcd", `(?m)^etcd Version: (\d+\.\d+\.\d+)`, topologies.MinEtcd}
	case topologies.StoreZooKeeper:
		return program{"ZooKeeper", `Apache ZooKeeper, version (\d+\.\d+\.\d+)`, topologies.MinZooKeeper}
	default:
		return program{"Redis", `\bv=(\d+\.\d+\.\d+)`, topologies.MinRedis}
	}
}

// mostPrinted is how much of what a program prints is told where it has no version, in bytes.
const mostPrinted = 300

// ParseVersion reads what the server program of a store prints that is asked for its version:
// by --version, and for ZooKeeper by [ZooKeeperVersionClass].
func ParseVersion(store, out string) (string, error) {
	p := programOf(store)
	m := regexp.MustCompile(p.says).FindStringSubmatch(out)
	if m == nil {
		return "", fmt.Errorf("no version of %s in what it prints: %q", p.name, out[:min(len(out), mostPrinted)])
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

// NewEnough fails with [topologies.ErrTooOld] if the server of what, a program, an
// image or a member, is older than the oldest that the harness can drive, such as
// [topologies.MinRedis].
func NewEnough(store, what, version string) error {
	p := programOf(store)
	is, least := strings.Split(version, "."), strings.Split(p.oldest, ".")
	for i := range min(len(is), len(least)) {
		x, err := strconv.Atoi(is[i])
		if err != nil {
			return fmt.Errorf("%w: %s calls its %s version %q", topologies.ErrUnusable, what, p.name, version)
		}
		switch y, _ := strconv.Atoi(least[i]); { // a constant
		case x > y:
			return nil
		case x < y:
			return fmt.Errorf("%s %w: %s is version %s, and %s is the oldest that can be driven",
				strings.ToLower(p.name), topologies.ErrTooOld, what, version, p.oldest)
		}
	}
	return nil
}
