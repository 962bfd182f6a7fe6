// Package proxynet wires the endpoints of a topology so that each pair of them has
// a link of its own, on which faults can be put.
//
// Every server has a real address, where it listens, and a virtual one, which
// it announces and all others dial. The network listens on the virtual
// addresses, tells callers apart by the address that they dial from, or
// by their process where [Network.Adopt] names it, and forwards through toxiproxy's engine. One address a server is what Sentinel
// and Cluster need to agree with each other; one link a pair is what faults
// need. Nothing here needs privileges: addresses are in 127.0.0.0/8, or those of
// the machine in a network of containers.
package proxynet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
	"github.com/rs/zerolog/log"

	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/internal/probe"
)

// toxiproxy's bandwidth logs each change of its chain to the logger of the process, which may be that of another module.
func init() { log.Logger = log.Hook(quiet{}) } //nolint:gochecknoinits // it is there before any toxic

type quiet struct{}

// Run drops what a bandwidth says.
func (quiet) Run(e *zerolog.Event, _ zerolog.Level, message string) {
	if strings.HasPrefix(message, "BandwidthToxic was interrupted") {
		e.Discard()
	}
}

// An Endpoint is one end of links.
type Endpoint struct {
	Name string
	// Source is the address that it dials from.
	Source netip.Addr
	// Virtual is the address that the others dial, and Real the one behind
	// it. Both are zero for an endpoint that no other endpoint dials.
	Virtual, Real netip.AddrPort
	// Among are the same for the ports at which servers talk to each other: the bus of a
	// cluster's node, the peers of a consensus store's member; empty for all others. A
	// link between two servers leads to all of them.
	Among []Door
	// Greeting is how a link of that kind to the endpoint is probed. Nil: as Redis is,
	// whose messages are taken apart; those of any other endpoint are not.
	Greeting func(kind topologies.LinkKind) probe.Greet
	// Moves says that the virtual address belongs to no server: it leads to the
	// endpoint that [Network.Point] says, over the link to that one.
	Moves bool
}

// A Door is a port of an endpoint: the address that the others dial, and the one behind it.
type Door struct{ Virtual, Real netip.AddrPort }

// A Network is the links between some endpoints. [New] makes it, and its caller
// closes it.
type Network struct {
	engine    *toxiproxy.ApiServer
	endpoints map[netip.Addr]Endpoint
	wires     map[string]*Link

	mu        sync.Mutex
	points    map[string]string // where the addresses that move lead to
	groups    map[int]string    // the process groups that stand for endpoints
	listeners []net.Listener
	closed    bool
	done      sync.WaitGroup
}

// New listens on the virtual addresses of the endpoints and serves the links
// between them. Connections along no link are refused.
func New(endpoints []Endpoint, links []topologies.Link) (*Network, error) {
	f := &Network{
		engine:    toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()),
		endpoints: map[netip.Addr]Endpoint{},
		wires:     map[string]*Link{},
		points:    map[string]string{},
		groups:    map[int]string{},
	}
	byName, between := map[string]Endpoint{}, map[string]topologies.LinkKind{}
	for _, p := range endpoints {
		byName[p.Name] = p
		if p.Moves {
			f.points[p.Name] = ""
			continue
		}
		f.endpoints[p.Source] = p
	}
	for _, l := range links {
		to := byName[l.To]
		w := &Link{engine: f.engine, from: byName[l.From].Source, probed: to.Real, unread: to.Greeting != nil, pipes: map[*pipe]struct{}{}}
		w.Prober = probe.Prober{Link: l, Greet: probe.Greeting(l.Kind), Open: w.enter}
		if among(l.Kind) {
			w.probed = to.Among[0].Real
			between[l.To] = l.Kind
		}
		if w.unread {
			w.Greet = to.Greeting(l.Kind)
		}
		if w.Greet.OfClients {
			w.probed = to.Real
		}
		w.listed = toxiproxy.NewProxy(f.engine, l.Name(), to.Virtual.String(), to.Real.String())
		w.listed.Enabled = true
		if err := f.engine.Collection.Add(w.listed, false); err != nil {
			return nil, fmt.Errorf("link %s: %w", l.Name(), err)
		}
		f.wires[l.Name()] = w
	}
	for _, p := range endpoints {
		err := f.listen(Door{p.Virtual, p.Real}, topologies.Link{To: p.Name})
		for _, door := range p.Among {
			err = errors.Join(err, f.listen(door, topologies.Link{To: p.Name, Kind: between[p.Name]}))
		}
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return f, nil
}

// among reports whether links of a kind lead to the port at which servers talk to each
// other.
func among(kind topologies.LinkKind) bool {
	return kind == topologies.Bus || kind == topologies.Peer
}

// Link returns a link by its name, or nil. That to an endpoint with a greeting of its own
// is no [topologies.Interceptor].
func (f *Network) Link(name string) topologies.Proxy {
	w, ok := f.wires[name]
	switch {
	case !ok:
		return nil
	case w.unread:
		return unread{w}
	default:
		return w
	}
}

// Dial opens a connection of the endpoint that a link comes from, to the one that it leads
// to. That needs no address of either, but that where the latter listens.
func (f *Network) Dial(ctx context.Context, link string) (net.Conn, error) {
	w, ok := f.wires[link]
	if !ok {
		return nil, fmt.Errorf("there is no link %s", link)
	}
	inner, outer, err := pair(ctx)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		abort(inner)
		return nil, errors.Join(net.ErrClosed, outer.Close())
	}
	f.done.Go(func() { w.serve(inner, w.probed, false) })
	return outer, nil
}

// API is toxiproxy's, on which the links are proxies with the toxics that lie on them. It is to look at: what it changes changes
// no connection.
func (f *Network) API() http.Handler { return f.engine.Routes() }

// unread is a link whose messages are not taken apart.
type unread struct{ topologies.Proxy }

// Point has new connections to an address that moves lead to an endpoint; empty: they
// are refused. Those that are open stay where they are.
func (f *Network) Point(name, to string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.points[name] = to
}

// listen serves the links that lead to an address. They differ in where they
// come from.
func (f *Network) listen(door Door, to topologies.Link) error {
	if !door.Virtual.IsValid() {
		return nil
	}
	var config net.ListenConfig
	l, err := config.Listen(context.Background(), "tcp", door.Virtual.String())
	if err != nil {
		return fmt.Errorf("listen for %s: %w", to.To, err)
	}
	f.listeners = append(f.listeners, l)
	f.done.Go(func() {
		for {
			c, err := l.Accept()
			switch {
			case errors.Is(err, net.ErrClosed):
				return
			case err == nil: // else it died before it was accepted
				f.done.Go(func() { f.forward(c.(*net.TCPConn), to, door.Real) })
			}
		}
	})
	return nil
}

// forward serves a connection along the link of the endpoint that dialled, to the address
// behind the one that it dialled; that of an address that moves is not known before. One
// that no link allows is reset.
func (f *Network) forward(client *net.TCPConn, link topologies.Link, behind netip.AddrPort) {
	from := client.RemoteAddr().(*net.TCPAddr).AddrPort()
	endpoint := f.endpoints[from.Addr().Unmap()].Name
	if endpoint == "" {
		endpoint = f.adopted(from, client.LocalAddr().(*net.TCPAddr).AddrPort())
	}
	f.mu.Lock()
	if to, moves := f.points[link.To]; moves {
		link.To = to
	}
	f.mu.Unlock()
	link.From = endpoint
	w := f.wires[link.Name()]
	if w == nil || among(w.Link.Kind) != among(link.Kind) {
		abort(client)
		return
	}
	if !behind.IsValid() {
		behind = w.probed
	}
	w.serve(client, behind, false)
}

// Close refuses new connections, resets all open ones and waits for them.
func (f *Network) Close() error {
	var errs []error
	for _, l := range f.listeners {
		errs = append(errs, l.Close())
	}
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	for _, w := range f.wires {
		w.Cut()
	}
	f.done.Wait()
	return errors.Join(errs...)
}

// abort closes a connection so that its peer sees a reset and not an end.
func abort(c *net.TCPConn) {
	_ = c.SetLinger(0) // a connection that is already gone needs no reset
	_ = c.Close()
}

// dialTimeout bounds how long a link tries to reach the server behind it. It is longer than the
// second after which the system sends a lost SYN again.
const dialTimeout = 3 * time.Second

// dialFrom dials as the owner of an address would. Only loopback addresses are
// ours to dial from, and only to each other.
func dialFrom(ctx context.Context, from netip.Addr, to netip.AddrPort) (*net.TCPConn, error) {
	d := net.Dialer{Timeout: dialTimeout}
	if from.IsLoopback() && to.Addr().IsLoopback() {
		d.LocalAddr = &net.TCPAddr{IP: from.AsSlice()}
	}
	c, err := d.DialContext(ctx, "tcp", to.String())
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
}
