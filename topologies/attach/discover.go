package attach

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/internal/bootstrap"
)

// A foundServer is a server as the deployment itself knows it.
type foundServer struct {
	name string
	kind topologies.Kind
	// announced is the address by which clients and other servers know it.
	announced string
	// master is, of a replica, the announced address of its master.
	master string
	// slot is, of a cluster's node, one that it or its master serves.
	slot   int
	access access
	client *redis.Client // past every proxy
	info   serverInfo
}

// A discovery finds out what there is. It only asks.
type discovery struct {
	topology         string // its name
	proxies          *proxySet
	redis, sentinels access
	masterName       string
	master           string // where the sentinels see it
	found            []*foundServer
	clients          []*redis.Client // all that were made
}

// close closes every connection of the discovery.
func (s *discovery) close() {
	for _, c := range s.clients {
		_ = c.Close()
	}
}

// probe connects to a server and asks what it is.
func (s *discovery) probe(ctx context.Context, a access, announced string) (*foundServer, error) {
	at := s.proxies.direct(announced)
	patient := a.observer(at, announced, meetTimeout)
	defer patient.Close()
	r, err := look(ctx, patient)
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) { // a sentinel ends the connections of a server that it makes a replica
		r, err = look(ctx, patient)
	}
	if err != nil {
		if c, ok := s.proxies.container(s.topology, s.proxies.named(announced), announced); ok && c.State != "running" {
			return nil, usage("%s can't be asked: its container %s is %s", announced, c.service(), c.State)
		}
		return nil, a.refused(announced, err)
	}
	c := a.observer(at, announced, lookTimeout)
	s.clients = append(s.clients, c)
	f := &foundServer{announced: announced, kind: topologies.Redis, access: a, client: c, info: r}
	if r.mode == modeSentinel {
		f.kind = topologies.Sentinel
	}
	return f, nil
}

// ask is a client for what a server is asked about itself, with as much patience as for what it is.
func (f *foundServer) ask() *redis.Client { return f.client.WithTimeout(meetTimeout) }

// What a server says of its mode.
const (
	modeAlone    = "standalone"
	modeSentinel = "sentinel"
	modeCluster  = "cluster"
)

// words say what a server of a mode is.
func words(mode string) string {
	return cmp.Or(map[string]string{
		modeAlone: "a server on its own", modeSentinel: "a sentinel", modeCluster: "a node of a cluster",
	}[mode], "of mode "+mode)
}

// expect refuses a server of another mode than the topology has there.
func (f *foundServer) expect(topology, mode string) error {
	if f.info.mode == mode {
		return nil
	}
	hint := map[string]string{modeSentinel: topologies.Sentinels, modeCluster: topologies.Cluster}[f.info.mode]
	if hint != "" {
		hint = " (its topology is " + hint + ")"
	}
	return usage("%s is %s, where topology %s has %s%s", f.announced, words(f.info.mode), topology, words(mode), hint)
}

// run asks all servers of the topology, starting from the endpoints.
func (s *discovery) run(ctx context.Context, endpoints []string) error {
	switch s.topology {
	case topologies.Sentinels:
		return s.replicated(ctx, endpoints)
	case topologies.Cluster:
		return s.cluster(ctx, endpoints)
	case topologies.Single:
		if len(endpoints) != 1 {
			return usage("topology single is one server, and %d endpoints were given", len(endpoints))
		}
		return s.alone(ctx, endpoints)
	default:
		if n := len(endpoints); n < 3 || n%2 == 0 {
			return usage("topology independent is an odd number of servers, three at least, and %d endpoints were given", n)
		}
		return s.alone(ctx, endpoints)
	}
}

// alone finds servers that know nothing of each other, each of them a master.
func (s *discovery) alone(ctx context.Context, endpoints []string) error {
	for _, e := range endpoints {
		f, err := s.probe(ctx, s.redis, e)
		if err != nil {
			return err
		}
		if err := f.expect(s.topology, modeAlone); err != nil {
			return err
		}
		if f.info.role != topologies.Master {
			return usage("%s is a replica of %s, where topology %s has a master", e, f.info.master, s.topology)
		}
		for _, other := range s.found {
			if other.info.id == f.info.id {
				return usage("%s and %s are the same server", other.announced, e)
			}
		}
		s.found = append(s.found, f)
	}
	return nil
}

// cluster learns of all nodes from the first endpoint.
func (s *discovery) cluster(ctx context.Context, endpoints []string) error {
	var first *foundServer
	for _, e := range endpoints {
		f, err := s.probe(ctx, s.redis, e)
		if err != nil {
			return err
		}
		if err := f.expect(topologies.Cluster, modeCluster); err != nil {
			return err
		}
		if first == nil {
			first = f
		}
	}
	ranges, err := first.ask().ClusterSlots(ctx).Result() //nolint:staticcheck // what clients of a cluster go by
	if err != nil {
		return s.redis.refused(first.announced, err)
	}
	for _, r := range ranges {
		master := ""
		for i, n := range r.Nodes {
			at := n.Addr
			if host, port, err := net.SplitHostPort(at); err == nil && host == "" { // it does not know its own address
				own, _, _ := net.SplitHostPort(first.announced)
				at = net.JoinHostPort(own, port)
			}
			if i == 0 {
				master = at
			}
			if slices.ContainsFunc(s.found, func(f *foundServer) bool { return f.announced == at }) {
				continue
			}
			f, err := s.probe(ctx, s.redis, at)
			if err != nil {
				return fmt.Errorf("%s, which %s names as a node: %w", at, first.announced, err)
			}
			if f.slot = r.Start; i > 0 {
				f.master = master
			}
			s.found = append(s.found, f)
		}
	}
	said, err := first.ask().ClusterInfo(ctx).Result()
	if err != nil {
		return s.redis.refused(first.announced, err)
	}
	if known := bootstrap.Info(said)["cluster_known_nodes"]; known != strconv.Itoa(len(s.found)) { // one is not back yet
		return unsettled("the cluster of %s has %s nodes, of which %d serve slots or replicate one that does", first.announced, known, len(s.found))
	}
	return nil
}

// ask has a sentinel say something of what it watches: one server, or a list of them.
func (s *discovery) ask(ctx context.Context, f *foundServer, args ...any) ([]map[string]string, error) {
	all, err := bootstrap.AskSentinel(ctx, f.ask(), args...)
	if err != nil {
		return nil, s.sentinels.refused(f.announced, err)
	}
	return all, nil
}

// addressOf is that of a server, as a sentinel tells it.
func addressOf(seen map[string]string) string { return net.JoinHostPort(seen["ip"], seen["port"]) }

// replicated learns from the sentinels who the others are, and which servers they watch.
func (s *discovery) replicated(ctx context.Context, endpoints []string) error {
	// A sentinel does not know how the others call it, so that each is known by its id.
	known := func(id string) *foundServer {
		for _, f := range s.found {
			if f.info.id == id {
				return f
			}
		}
		return nil
	}
	enter := func(at string) (*foundServer, error) {
		f, err := s.probe(ctx, s.sentinels, at)
		if err != nil {
			return nil, err
		}
		if err := f.expect(topologies.Sentinels, modeSentinel); err != nil {
			return nil, err
		}
		if f.info.id, err = f.ask().Do(ctx, "SENTINEL", "MYID").Text(); err != nil {
			return nil, s.sentinels.refused(at, err)
		}
		if same := known(f.info.id); same != nil {
			return same, nil
		}
		s.found = append(s.found, f)
		return f, nil
	}
	for _, e := range endpoints {
		f, err := enter(e)
		if err == nil {
			err = s.chooseMaster(ctx, f)
		}
		if err != nil {
			return err
		}
	}
	for i := 0; i < len(s.found); i++ { // it grows
		others, err := s.ask(ctx, s.found[i], "SENTINELS", s.masterName)
		if err != nil {
			return err
		}
		for _, other := range others {
			at, f := addressOf(other), known(other["runid"])
			if f == nil {
				if f, err = enter(at); err != nil {
					return fmt.Errorf("%s, which %s names as a sentinel: %w", at, s.found[i].announced, err)
				}
			}
			f.announced = at
		}
	}
	return s.watched(ctx, s.found[0])
}

// chooseMaster takes the name that was typed, or the only one that there is.
func (s *discovery) chooseMaster(ctx context.Context, f *foundServer) error {
	masters, err := s.ask(ctx, f, "MASTERS")
	if err != nil {
		return err
	}
	all := strings.Join(names.Of(masters, func(m map[string]string) string { return m["name"] }), ", ")
	if s.masterName == "" && len(masters) > 1 {
		return usage("sentinel %s watches several masters, of which one must be named: %s", f.announced, all)
	}
	for _, m := range masters {
		if m["name"] == cmp.Or(s.masterName, m["name"]) {
			s.masterName, s.master = m["name"], addressOf(m)
			return nil
		}
	}
	return usage("sentinel %s watches no master named %s, but %s", f.announced, s.masterName, cmp.Or(all, "none"))
}

// watched finds the master and its replicas, as a sentinel has them.
func (s *discovery) watched(ctx context.Context, sentinel *foundServer) error {
	replicas, err := s.ask(ctx, sentinel, "REPLICAS", s.masterName)
	if err != nil {
		return err
	}
	for i, at := range append([]string{s.master}, names.Of(replicas, addressOf)...) {
		f, err := s.probe(ctx, s.redis, at)
		if err != nil {
			return fmt.Errorf("%s, which the sentinels name as the master or a replica: %w", at, err)
		}
		if i > 0 {
			f.master = s.master
		}
		s.found = append(s.found, f)
	}
	return nil
}

// options are the settings of the servers, as far as they tell.
func (s *discovery) options(ctx context.Context) topologies.Options {
	var o topologies.Options
	i := slices.IndexFunc(s.found, func(f *foundServer) bool { return f.kind == topologies.Redis && f.master == "" })
	setting := func(name string) string {
		said, err := s.found[i].ask().ConfigGet(ctx, name).Result()
		if err != nil {
			return "" // a user without the right to ask goes without
		}
		return said[name]
	}
	number := func(name string) int {
		n, _ := strconv.Atoi(setting(name)) // 0 where it is not told
		return n
	}
	o.MinReplicas = number("min-replicas-to-write")
	if s.found[i].info.mode == modeCluster {
		o.NodeTimeout = time.Duration(number("cluster-node-timeout")) * time.Millisecond
	}
	switch setting("appendonly") {
	case "yes":
		o.Persistence = setting("appendfsync")
	case "no":
		o.Persistence = topologies.PersistNone
	}
	return o
}
