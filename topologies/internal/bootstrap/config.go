package bootstrap

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lockchaos/lockchaos/internal/traffic"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/internal/proxynet"
)

// An Address is where a node of a topology is.
type Address struct {
	// Listen is where the server listens, and dials from, so that a proxy
	// recognizes it.
	Listen netip.AddrPort
	// Announced is what it tells the others, and all others dial.
	Announced netip.AddrPort
	// Bus and AnnouncedBus are the ports, on the same addresses, at which servers talk
	// to each other: of a cluster's bus, and of the members of a consensus store; 0 in
	// all other topologies.
	Bus, AnnouncedBus uint16
	// Election is a second port of that kind, the same on both addresses; 0 where there
	// is none.
	Election uint16
}

// Among are the ports of servers for each other, as the network of proxies has them.
func (a Address) Among() []proxynet.Door {
	var doors []proxynet.Door
	for _, port := range [][2]uint16{{a.AnnouncedBus, a.Bus}, {a.Election, a.Election}} {
		if port[1] != 0 {
			doors = append(doors, proxynet.Door{
				Virtual: netip.AddrPortFrom(a.Announced.Addr(), port[0]), Real: netip.AddrPortFrom(a.Listen.Addr(), port[1]),
			})
		}
	}
	return doors
}

// Endpoints are the nodes of a topology as the network of proxies has them: the zones, each with
// the source that its clients dial from, the servers, and the name, where the topology has one.
func Endpoints(t topologies.Topology, s Store, at map[string]Address, source func(n int) netip.Addr, name netip.AddrPort) []proxynet.Endpoint {
	var endpoints []proxynet.Endpoint
	for i, zone := range t.Of(topologies.Zone) {
		endpoints = append(endpoints, proxynet.Endpoint{Name: zone, Source: source(i)})
	}
	for server, a := range at {
		p := proxynet.Endpoint{Name: server, Source: a.Listen.Addr(), Virtual: a.Announced, Real: a.Listen, Among: a.Among()}
		if store, ok := s.(Consensus); ok {
			p.Greeting, p.Patience = store.Greeting, store.Patience()
		}
		endpoints = append(endpoints, p)
	}
	if t.Options.ByName() {
		endpoints = append(endpoints, proxynet.Endpoint{Name: topologies.Primary, Virtual: name, Moves: true})
	}
	return endpoints
}

// Wire gives the parts the links of a network. Clients of the nth zone dial from its source, and by the
// name, where the topology has one.
func (p *Parts) Wire(n *proxynet.Network, source func(n int) netip.Addr, name netip.AddrPort) {
	p.Proxy, p.Adopt = n.Link, n.Adopt
	p.Dial = func(zone string) Dialer { // which the options of a client bound
		from := source(slices.Index(p.Topology.Of(topologies.Zone), zone))
		return (&net.Dialer{LocalAddr: &net.TCPAddr{IP: from.AsSlice()}}).DialContext
	}
	if p.Topology.Options.ByName() {
		p.Name = &Name{Address: name.String(), Point: func(server string) { n.Point(topologies.Primary, server) }}
	}
}

// A Config is what it takes to run a node: the server program with these arguments,
// in a folder of its own with these files in it. The server rewrites the files.
type Config struct {
	Args  []string
	Files map[string]string // contents by name
}

// Write puts the files into a server's folder.
func (c Config) Write(dir string) error {
	for file, contents := range c.Files {
		path := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(contents), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// DataFiles are patterns of the files and folders in a server's folder that
// hold its data: what [topologies.Server.Wipe] removes.
func DataFiles() []string {
	return []string{"dump.rdb", "temp-*", "appendonlydir", filepath.Join("data", "version-2")}
}

// Configure tells how to run a server or sentinel of a topology, given the
// addresses of all of them.
func (RedisStore) Configure(t topologies.Topology, name string, at map[string]Address) (Config, error) {
	n, ok := t.Node(name)
	if !ok || n.Kind == topologies.Zone {
		return Config{}, fmt.Errorf("topology %s has no server %q", t.Name, name)
	}
	for _, other := range t.Nodes {
		if _, ok := at[other.Name]; !ok && other.Kind != topologies.Zone {
			return Config{}, fmt.Errorf("server %s has no address", other.Name)
		}
	}
	if n.Kind == topologies.Sentinel {
		return Config{
			Args:  []string{sentinelConf, "--sentinel"},
			Files: map[string]string{sentinelConf: configureSentinel(at[name], at[t.Shards()[0]])},
		}, nil
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
	return c, nil
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

// configureCluster makes a server a node of a cluster: one in which slots that
// no node serves affect no other slot, a replica of any age may be promoted, and
// each stays with its shard.
func configureCluster(o topologies.Options, at Address) string {
	return fmt.Sprintf(`cluster-enabled yes
cluster-config-file %s
cluster-node-timeout %d
cluster-port %d
cluster-announce-ip %s
cluster-announce-port %d
cluster-announce-bus-port %d
cluster-require-full-coverage no
cluster-replica-validity-factor 0
cluster-allow-replica-migration no
`, nodesConf, o.NodeTimeout.Milliseconds(), at.Bus, at.Announced.Addr(), at.Announced.Port(), at.AnnouncedBus)
}

// The files that a server is started with and rewrites: a sentinel has a server
// that it promotes write down that it is a master now.
const (
	redisConf    = "redis.conf"
	sentinelConf = "sentinel.conf"
	nodesConf    = "nodes.conf"
)

func configureSentinel(at, master Address) string {
	return fmt.Sprintf(`port %d
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
`, at.Listen.Port(), at.Listen.Addr(), at.Listen.Addr(), at.Announced.Addr(), at.Announced.Port(),
		defaultMasterName, master.Announced.Addr(), master.Announced.Port(),
		defaultMasterName, disarmed, defaultMasterName, defaultMasterName)
}

// configureNodes writes down a cluster as if it had met already, which saves
// the meeting: all nodes, and the slots that each master serves.
func configureNodes(t topologies.Topology, myself string, at map[string]Address) string {
	servers := t.Of(topologies.Redis)
	id := func(name string) string { return fmt.Sprintf("%040x", slices.Index(servers, name)+1) }
	var conf strings.Builder
	for _, name := range servers {
		n, _ := t.Node(name)
		a := at[name]
		flags, of, epoch, slots := "slave", id(n.Of), 0, ""
		if n.Role == topologies.Master {
			i := slices.Index(t.Shards(), name)
			first, last := traffic.SlotRange(i, len(t.Shards()))
			flags, of, epoch, slots = "master", "-", i+1, fmt.Sprintf(" %d-%d", first, last)
		}
		if name == myself {
			flags = "myself," + flags
		}
		fmt.Fprintf(&conf, "%s %s@%d %s %s 0 0 %d connected%s\n", id(name), a.Announced, a.AnnouncedBus, flags, of, epoch, slots)
	}
	fmt.Fprintf(&conf, "vars currentEpoch %d lastVoteEpoch 0\n", len(t.Shards()))
	return conf.String()
}
