package attach

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/internal/bootstrap"
	"github.com/lockchaos/lockchaos/topologies/internal/docker"
	"github.com/lockchaos/lockchaos/topologies/internal/probe"
	"github.com/lockchaos/lockchaos/topologies/internal/scratch"
)

// plan is what was found, as data. Only links that pass a proxy are in it;
// those from all servers to one begin at peers, which is no node.
func (s *discovery) plan(yes bool) topologies.Topology {
	t := topologies.Topology{Name: s.topology}
	called := map[string]string{}
	for _, f := range s.found {
		called[f.announced] = f.name
	}
	for _, f := range s.found {
		n := topologies.Node{Name: f.name, Kind: f.kind}
		switch {
		case f.kind == topologies.Sentinel:
		case f.master == "":
			n.Role = topologies.Master
		default:
			n.Role, n.Of = topologies.Replica, called[f.master]
		}
		t.Nodes = append(t.Nodes, n)
	}
	for _, zone := range zones() {
		t.Nodes = append(t.Nodes, topologies.Node{Name: zone, Kind: topologies.Zone})
	}
	for _, g := range s.proxies.gates {
		if n, ok := t.Node(g.to); ok && yes {
			t.Links = append(t.Links, g.link(n.Kind))
		}
	}
	return t
}

// noLeave is why nothing destructive is done.
const noLeave = "it needs leave to disturb a deployment that is not lockchaos' own (--yes)"

// noSettings is why nothing is done to what the servers keep.
const noSettings = "the data and the settings of a deployment that is not lockchaos' own are left alone"

// noIsolation is why no node of a cluster is ever alone.
const noIsolation = "a toxiproxy can't cut a node of a cluster off: what the node dials passes the proxies of the others, " +
	"who count it as alive (crash-failover and failover can be had)"

// parts puts together what was found.
func (b Backend) parts(ctx context.Context, s *discovery) (bootstrap.Parts, error) {
	c := s.newClaim(b.Log)
	t := s.plan(b.Yes)
	t.Options = s.options(ctx)
	without := map[topologies.Capability]string{
		topologies.Wiping: noWiping, topologies.Settings: noSettings,
		topologies.Messages: "what passes these links is not read",
	}
	servers := map[string]*server{}
	nodes := map[string]bootstrap.Node{}
	first := map[string]int{}
	logs, err := scratch.Make("logs")
	if err != nil {
		return bootstrap.Parts{}, err
	}
	version := ""
	for _, f := range s.found {
		sv := &server{foundServer: f, direct: s.proxies.direct(f.announced), logs: logs, claim: c}
		in, ok := s.proxies.container(s.topology, f.name, f.announced)
		if ok {
			sv.container = &docker.Container{Engine: s.proxies.engine, ID: in.ID}
		}
		switch {
		case s.proxies.engine == nil:
			sv.why = "no compose project is named, so that no process can be reached"
		case !ok:
			sv.why = fmt.Sprintf("no container of project %s is %s (%s)", b.Compose, f.name, f.announced)
		case !b.Yes:
			sv.why = noLeave
		}
		if sv.why != "" {
			without[topologies.Processes] = sv.why
		}
		servers[f.name] = sv
		nodes[f.name] = bootstrap.Node{Server: sv, Announced: f.announced}
		if f.kind == topologies.Redis {
			version = f.info.version
			if f.master == "" {
				first[f.name] = f.slot
			}
		}
	}
	wires := b.openLinks(s, servers)
	if why := b.whyNoProxies(s); why != "" {
		without[topologies.Proxies] = why
	}
	if t.HasSlots() {
		without[topologies.Isolation] = noIsolation
	}
	if !b.Yes && len(t.Shards()) > 0 {
		without[topologies.Failovers] = noLeave
	}
	b.Log.InfoContext(ctx, "found", "topology", s.topology, "redis", version, "servers", slices.Sorted(maps.Keys(nodes)), "links", len(t.Links))
	return bootstrap.Parts{
		Topology: t, Version: version, Nodes: nodes,
		Proxy: func(name string) topologies.Proxy {
			if w, ok := wires[name]; ok && b.Yes {
				return w
			}
			return nil
		},
		Dial: func(zone string) bootstrap.Dialer {
			return func(ctx context.Context, _, addr string) (net.Conn, error) { return s.dial(ctx, wires, zone, addr) }
		},
		Client: func(o *redis.UniversalOptions) {
			o.Username, o.Password = b.Username, b.Password
			o.SentinelUsername, o.SentinelPassword = b.SentinelUsername, b.SentinelPassword
		},
		MasterName: s.masterName,
		Slots:      first,
		Foreign:    true,
		Take: func(ctx context.Context) error {
			if err := c.takeAll(ctx); err != nil || !b.Yes {
				return err
			}
			for name, w := range wires { // what a run left behind that was killed
				if w.leftover() {
					b.Log.WarnContext(ctx, "mending what an earlier run left", "link", name)
					if err := w.restore(); err != nil {
						return err
					}
				}
			}
			return nil
		},
		Check:   c.held,
		Without: without,
		Log:     b.Log,
		Restore: func() error {
			var errs []error // in an order that does not depend on the run
			for _, name := range slices.Sorted(maps.Keys(wires)) {
				errs = append(errs, wires[name].restore())
			}
			for _, name := range slices.Sorted(maps.Keys(servers)) {
				errs = append(errs, servers[name].restore())
			}
			return errors.Join(errs...)
		},
		Close: func() error {
			c.release()
			s.close()
			return logs.Close()
		},
	}, nil
}

// openLinks are the proxies of all servers, in use.
func (b Backend) openLinks(s *discovery, servers map[string]*server) map[string]*link {
	wires := map[string]*link{}
	for _, g := range s.proxies.gates {
		sv := servers[g.to]
		if sv == nil {
			continue
		}
		w := &link{
			linkProxy: g, announced: sv.announced, access: sv.access,
			toxiproxy: s.proxies.toxiproxy, log: b.Log, put: map[string]bool{},
		}
		w.Prober = probe.Prober{Link: g.link(sv.kind), Open: func(ctx context.Context) (net.Conn, error) { return sv.access.dial(ctx, g.at, sv.announced, nil) }}
		w.Greet = probe.Greeting(w.Link.Kind)
		if g.from == peers {
			w.peers = sv.callers(g.bus)
		}
		wires[w.Name()] = w
	}
	return wires
}

// whyNoProxies is why links of the deployment can't be broken; empty if every zone
// reaches every server by a proxy.
func (b Backend) whyNoProxies(s *discovery) string {
	switch {
	case s.proxies.toxiproxy == nil:
		return "no toxiproxy is named, so that no link can be broken"
	case !b.Yes:
		return noLeave
	}
	var lacking []string
	for _, zone := range zones() {
		for _, f := range s.found {
			if !slices.ContainsFunc(s.proxies.gates, func(g linkProxy) bool { return g.from == zone && g.to == f.name && !g.bus }) {
				lacking = append(lacking, zone+">"+f.name)
			}
		}
	}
	if len(lacking) == 0 {
		return ""
	}
	return fmt.Sprintf("toxiproxy has no proxy for %s", strings.Join(lacking, ", "))
}

// dial goes through a zone's proxy, where there is one, to an address that servers announce. The options of the client bound it.
func (s *discovery) dial(ctx context.Context, wires map[string]*link, zone, announced string) (net.Conn, error) {
	at, a := s.proxies.direct(announced), s.redis
	for _, f := range s.found {
		if f.announced != announced {
			continue
		}
		if w := wires[zone+">"+f.name]; w != nil {
			return w.dial(ctx)
		}
		a = f.access
	}
	return a.dial(ctx, at, announced, nil)
}
