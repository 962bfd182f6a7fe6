package attach

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/Shopify/toxiproxy/v2/client"
	"github.com/moby/moby/client"

	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/topologies"
)

// peers stands for all servers as callers of each other: a toxiproxy can't tell
// who dials, so all that they send to one of them passes the same proxy.
const peers = "peers"

// zones are the groups of clients.
func zones() []string { return []string{"zone-a", "zone-b"} }

// A linkProxy is a proxy that stands for a link, because it is named as the link is:
// "zone-a>redis-1", "peers>redis-1", and "peers>redis-1.bus" for a cluster's
// bus, since no slash can stand in the name of a proxy.
type linkProxy struct {
	*toxiproxy.Proxy

	from, to string
	bus      bool
	at       string // where it is dialled from here
	target   string // its upstream, as it is dialled from here
}

// A proxySet is what stands before the servers, and where they run: the proxies of a
// toxiproxy, and the containers of a compose project. Either may be missing. All addresses
// in it, and those that servers announce, have a host and a port.
type proxySet struct {
	toxiproxy  *toxiproxyAPI
	proxied    *container // the one that toxiproxy runs in
	gates      []linkProxy
	engine     *client.Client
	containers []container
}

// open finds the proxies that stand for links. None is an error that lists what there
// is instead; so is one that is disabled, unless we have leave to enable it.
func (y *proxySet) open(all map[string]*toxiproxy.Proxy, yes bool) error {
	names := slices.Sorted(maps.Keys(all))
	for _, name := range names {
		from, to, ok := strings.Cut(name, ">")
		if !ok || to == "" || !slices.Contains(append(zones(), peers), from) {
			continue
		}
		g := linkProxy{Proxy: all[name], from: from}
		g.to, g.bus = strings.CutSuffix(to, ".bus")
		if !g.Enabled && !yes {
			return usage("proxy %s is disabled, as by a run that was killed; one with leave to disturb the deployment (--yes) enables it", name)
		}
		g.at, g.target = y.listener(g.Listen), y.upstream(g.Upstream)
		y.gates = append(y.gates, g)
	}
	if len(y.gates) == 0 {
		return usage("toxiproxy at %s has no proxy that is named as a link, such as zone-a>redis-1, but %s",
			y.toxiproxy.at, cmp.Or(strings.Join(names, ", "), "none"))
	}
	return nil
}

// listener is where an address is reached on which toxiproxy listens.
func (y *proxySet) listener(address string) string {
	host, port, _ := net.SplitHostPort(address)
	if ip := net.ParseIP(host); host != "" && (ip == nil || !ip.IsUnspecified() && !ip.IsLoopback()) {
		return address
	}
	return y.beside(port)
}

// beside is where a port is reached of the machine, or container, in which
// toxiproxy runs.
func (y *proxySet) beside(port string) string {
	if y.proxied != nil {
		if at, ok := y.proxied.publishedPort(port); ok {
			return at
		}
	}
	host, _, _ := net.SplitHostPort(y.toxiproxy.at)
	return net.JoinHostPort(host, port)
}

// upstream is where an address is reached that toxiproxy dials.
func (y *proxySet) upstream(address string) string {
	host, port, _ := net.SplitHostPort(address)
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		return y.beside(port)
	}
	return y.outside(host, port)
}

// outside is where a server is reached that others know by host and port. On
// Linux the addresses of containers can be dialled from the host; a port that is
// published anywhere changes with each start of the container.
func (y *proxySet) outside(host, port string) string {
	if net.ParseIP(host) != nil && runtime.GOOS == "linux" {
		return net.JoinHostPort(host, port)
	}
	for _, c := range y.containers {
		if !c.answersTo(host) {
			continue
		}
		if at, ok := c.publishedPort(port); ok {
			return at
		}
		if ips := c.addresses(); len(ips) > 0 {
			return net.JoinHostPort(ips[0], port)
		}
	}
	return net.JoinHostPort(host, port)
}

// behind is the proxy that stands for a server's address. Servers announce the
// listener of their peers' proxy; where there is none, they announce the address
// that the proxies lead to. The user may also name the listener of a zone's proxy.
func (y *proxySet) behind(address string) (linkProxy, bool) {
	_, port, _ := net.SplitHostPort(address)
	for _, test := range []func(linkProxy) bool{
		func(g linkProxy) bool {
			_, listen, _ := net.SplitHostPort(g.Listen)
			return g.from == peers && listen == port
		},
		func(g linkProxy) bool { return g.Upstream == address || g.target == address },
		func(g linkProxy) bool { return g.at == address },
	} {
		for _, g := range y.gates {
			if !g.bus && test(g) {
				return g, true
			}
		}
	}
	return linkProxy{}, false
}

// direct is where a server is dialled past every proxy.
func (y *proxySet) direct(announced string) string {
	if g, ok := y.behind(announced); ok {
		return g.target
	}
	host, port, _ := net.SplitHostPort(announced)
	return y.outside(host, port)
}

// named is what a proxy calls the server with that address; empty if none does.
func (y *proxySet) named(announced string) string {
	g, _ := y.behind(announced)
	return g.to
}

// upstreams are addresses of all servers that the proxies lead to, in order of
// their names.
func (y *proxySet) upstreams() []string {
	first := map[string]string{}
	for _, g := range y.gates {
		if _, ok := first[g.to]; !ok && !g.bus {
			first[g.to] = g.target
		}
	}
	var addresses []string
	for _, name := range slices.SortedFunc(maps.Keys(first), say.Natural) {
		addresses = append(addresses, first[name])
	}
	return addresses
}

// container is the one that a server runs in: it has its address, or its name,
// which a compose file of several topologies puts that of the topology before.
func (y *proxySet) container(topology, node, announced string) (container, bool) {
	for _, c := range y.containers {
		if s := c.service(); s == node || s == topology+"-"+node {
			return c, true
		}
	}
	host, port, _ := net.SplitHostPort(announced)
	for _, c := range y.containers {
		// What toxiproxy publishes leads to others.
		if (y.proxied == nil || c.ID != y.proxied.ID) && (c.answersTo(host) || c.publishes(host, port)) {
			return c, true
		}
	}
	return container{}, false
}

// link is the one that the proxy stands for, to a node of a kind.
func (g linkProxy) link(to topologies.Kind) topologies.Link {
	l := topologies.Link{From: g.from, To: g.to, Kind: topologies.Client}
	switch {
	case g.bus:
		l.Kind = topologies.Bus
	case g.from == peers && to == topologies.Sentinel:
		l.Kind = topologies.Gossip
	case g.from == peers:
		l.Kind = topologies.Replication
	}
	return l
}

// apiTimeout bounds one request to a toxiproxy. Some hang for ever: removing a
// toxic from a connection on which a server pushes data to a client that is
// gone does (Shopify/toxiproxy #427).
const apiTimeout = 5 * time.Second

// A toxiproxyAPI is the HTTP API of a toxiproxy server.
type toxiproxyAPI struct {
	*toxiproxy.Client

	at string // "127.0.0.1:8474"
}

// inTime does not wait for a request longer than it may take.
func inTime[T any](ask func() (T, error)) (T, error) {
	type answer struct {
		got T
		err error
	}
	done := make(chan answer, 1)
	go func() {
		got, err := ask()
		done <- answer{got, err}
	}()
	select {
	case a := <-done:
		return a.got, a.err
	case <-time.After(apiTimeout):
		return *new(T), fmt.Errorf("no answer within %v", apiTimeout)
	}
}

// told has something done, which that there is nothing to do is no error of.
func told(done int, ask func() error) error {
	_, err := inTime(func() (struct{}, error) { return struct{}{}, ask() })
	if refused := (*toxiproxy.ApiError)(nil); errors.As(err, &refused) && refused.Status == done {
		return nil
	}
	return err
}
