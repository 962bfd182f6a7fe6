package process

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/topologies"
)

// redisArgs is the command line of a Redis server without persistence. It
// dials from its own address, so that the fabric knows it, and announces its
// virtual one. Replicas sync through the disk at once: a diskless master
// waits, and calls a replica online before it is.
func redisArgs(at, virtual netip.AddrPort, role string, master netip.AddrPort) []string {
	args := []string{
		"--port", strconv.Itoa(int(at.Port())),
		"--bind", at.Addr().String(),
		"--bind-source-addr", at.Addr().String(),
		"--protected-mode", "no",
		"--save", "", "--appendonly", "no",
		"--dir", ".", "--hz", "100",
		"--replica-announce-ip", virtual.Addr().String(),
		"--replica-announce-port", strconv.Itoa(int(virtual.Port())),
		"--repl-diskless-sync", "no", "--repl-diskless-sync-delay", "0",
		"--repl-ping-replica-period", "1", "--repl-timeout", "5",
	}
	if role == topologies.Replica {
		args = append(args, "--replicaof", master.Addr().String()+" "+strconv.Itoa(int(master.Port())))
	}
	return args
}

// sentinelConf is the file that a sentinel is started with and rewrites.
const sentinelConf = "sentinel.conf"

// disarmed and armed are the down-after-milliseconds of the sentinels: so slow
// that nothing fails over by itself, and as quick as is reliable.
const (
	disarmed = "60000"
	armed    = "300"
)

func writeSentinelConf(path string, at, virtual, master netip.AddrPort) error {
	conf := fmt.Sprintf(`port %d
bind %s
bind-source-addr %s
protected-mode no
dir .
sentinel announce-ip %s
sentinel announce-port %d
sentinel monitor %s %s %d 2
sentinel down-after-milliseconds %s %s
sentinel failover-timeout %s 2000
sentinel parallel-syncs %s 2
`, at.Port(), at.Addr(), at.Addr(), virtual.Addr(), virtual.Port(),
		masterName, master.Addr(), master.Port(), masterName, disarmed, masterName, masterName)
	if err := os.WriteFile(path, []byte(conf), 0o600); err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	return nil
}

// tuneSentinels shortens the periods at which the sentinels look at things.
// Five ping periods and three info periods must exceed the second that a
// sentinel waits between two INFOs while a master is down, else it finds no
// replica good enough to promote.
func (d *Deployment) tuneSentinels(ctx context.Context) error {
	return d.eachSentinel(func(_ string, c *redis.Client) error {
		return c.Do(ctx, "SENTINEL", "DEBUG", "INFO-PERIOD", "400", "PING-PERIOD", "250",
			"ASK-PERIOD", "50", "PUBLISH-PERIOD", quickHello, "TILT-PERIOD", "500").Err()
	})
}

// quickHello and slowHello are the milliseconds between two messages in which
// a sentinel tells the others what it knows. After four of them without news,
// a sentinel turns a replica that became a master back into a replica. In a
// failover that nothing forces, the leader sees the promotion after up to a
// second, and the others must have that much patience.
const (
	quickHello = "100"
	slowHello  = "400"
)

func (d *Deployment) setHello(ctx context.Context, milliseconds string) error {
	return d.eachSentinel(func(_ string, c *redis.Client) error {
		return c.Do(ctx, "SENTINEL", "DEBUG", "PUBLISH-PERIOD", milliseconds).Err()
	})
}

func (d *Deployment) eachSentinel(do func(name string, c *redis.Client) error) error {
	for _, name := range d.topology.Of(topologies.Sentinel) {
		if err := do(name, d.servers[name].observer); err != nil {
			return fmt.Errorf("tell %s: %w", name, err)
		}
	}
	return nil
}

// setDownAfter changes one sentinel's down-after-milliseconds and quorum.
func setDownAfter(ctx context.Context, c *redis.Client, milliseconds, quorum string) error {
	return c.Do(ctx, "SENTINEL", "SET", masterName,
		"down-after-milliseconds", milliseconds, "quorum", quorum).Err()
}

// NodeAt is the name of the server with that virtual address; the address
// itself if there is none.
func (d *Deployment) NodeAt(address string) string {
	for name, s := range d.servers {
		if s.virtual.String() == strings.TrimSpace(address) {
			return name
		}
	}
	return address
}
