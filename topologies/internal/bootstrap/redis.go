package bootstrap

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/topologies"
)

// RedisStore is Redis: its servers, its sentinels and its cluster. How those agree on
// masters is in this package.
type RedisStore struct{}

// Configure tells how to run a server or sentinel of a topology, given the
// addresses of all of them.
func (RedisStore) Configure(t topologies.Topology, name string, at map[string]Address) Config {
	n, _ := t.Node(name)
	if n.Kind == topologies.Sentinel {
		return Config{
			Args:  []string{sentinelConf, "--sentinel"},
			Files: map[string]string{sentinelConf: configureSentinel(at[name], at[t.Shards()[0]])},
		}
	}
	c := Config{Args: []string{redisConf}, Files: map[string]string{}}
	conf := configureRedis(t.Options, at[name])
	switch {
	case t.HasSlots():
		conf += configureCluster(t.Options, at[name])
		c.Files[nodesConf] = configureNodes(t, name, at)
	case n.Role == topologies.Replica:
		master := at[n.Of].Announced
		conf += fmt.Sprintf("replicaof %s %d\n", master.Addr(), master.Port())
	}
	c.Files[redisConf] = conf
	return c
}

// configureRedis has replicas sync through the disk at once: a diskless master
// waits, and calls a replica online before it is.
func configureRedis(o topologies.Options, at Address) string {
	conf := fmt.Sprintf(`port %d
bind %s
bind-source-addr %s
protected-mode no
dir .
replica-announce-ip %s
replica-announce-port %d
repl-diskless-sync no
repl-diskless-sync-delay 0
repl-ping-replica-period 1
repl-timeout 5
save ""
`, at.Listen.Port(), at.Listen.Addr(), at.Listen.Addr(), at.Announced.Addr(), at.Announced.Port())
	if o.Persistence != topologies.PersistNone && o.Persistence != "" {
		conf += fmt.Sprintf("appendonly yes\nappendfsync %s\n", o.Persistence)
	}
	if o.MinReplicas > 0 {
		conf += fmt.Sprintf("min-replicas-to-write %d\nmin-replicas-max-lag 1\n", o.MinReplicas)
	}
	return conf
}

// The files that a server is started with and rewrites: a sentinel has a server
// that it promotes write down that it is a master now.
const (
	redisConf    = "redis.conf"
	sentinelConf = "sentinel.conf"
	nodesConf    = "nodes.conf"
)

// Alive asks a server by a client of its own whether it answers: one that failed to dial too often stops trying for a while.
func (RedisStore) Alive(ctx context.Context, at Address) error {
	c := redis.NewClient(ObserverOptions(at.Listen.String()))
	defer c.Close()
	return c.Ping(ctx).Err()
}
