// Package proxynet wires the parties of a topology so that each pair of them has
// a link of its own, on which faults can be put.
//
// Every server has a real address, where it listens, and a virtual one, which
// it announces and all others dial. The fabric listens on the virtual
// addresses, tells callers apart by the address that they dial from, or
// by their process where [Fabric.Adopt] names it, and forwards through toxiproxy's engine. One address a server is what Sentinel
// and Cluster need to agree with each other; one link a pair is what faults
// need. Nothing here needs privileges: addresses are in 127.0.0.0/8, or those of
// the machine in a network of containers.
package proxynet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"github.com/lockchaos/lockchaos/topologies"
)

// A Party is one end of links.
type Party struct {
	Name string
	// Source is the address that it dials from.
	Source netip.Addr
	// Virtual is the address that the others dial, and Real the one behind
	// it. Both are zero for a party that no other party dials.
	Virtual, Real netip.AddrPort
	// VirtualBus and RealBus are the same for the bus port of a cluster's
	// node; zero for all others.
	VirtualBus, RealBus netip.AddrPort
	// Moves says that the virtual address belongs to no server: it leads to the
	// party that [Fabric.Point] says, over the link to that one.
	Moves bool
}

// A Fabric is the links between some parties. [New] makes it; whoever made it
// closes it.
type Fabric struct {
	engine  *toxiproxy.ApiServer
	parties map[netip.Addr]Party
	wires   map[string]*Wire

	mu        sync.Mutex
	points    map[string]string // where the addresses that move lead to
	groups    map[int]string    // the process groups that stand for parties
	listeners []net.Listener
	strangers int
	done      sync.WaitGroup
}

// New listens on the virtual addresses of the parties and serves the links
// between them. Connections along no link are refused.
func New(parties []Party, links []topologies.Link) (*Fabric, error) {
	f := &Fabric{
		engine:  toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()),
		parties: map[netip.Addr]Party{},
		wires:   map[string]*Wire{},
		points:  map[string]string{},
		groups:  map[int]string{},
	}
	byName := map[string]Party{}
	for _, p := range parties {
		byName[p.Name] = p
		if p.Moves {
			f.points[p.Name] = ""
			continue
		}
		f.parties[p.Source] = p
	}
	for _, l := range links {
		to := byName[l.To].Real
		if l.Kind == topologies.Bus {
			to = byName[l.To].RealBus
		}
		f.wires[l.Name()] = &Wire{
			link: l, engine: f.engine, from: byName[l.From].Source, to: to,
			pipes: map[*pipe]struct{}{},
		}
	}
	for _, p := range parties {
		err := errors.Join(f.listen(p.Virtual, topologies.Link{To: p.Name}),
			f.listen(p.VirtualBus, topologies.Link{To: p.Name, Kind: topologies.Bus}))
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return f, nil
}

// Wire returns a link by its name, or nil.
func (f *Fabric) Wire(name string) topologies.Wire {
	if w, ok := f.wires[name]; ok {
		return w
	}
	return nil
}

// Point has new connections to an address that moves lead to a party; empty: they
// are refused. Those that are open stay where they are.
func (f *Fabric) Point(name, to string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.points[name] = to
}

// target is the party that connections to an address of the named one lead to.
func (f *Fabric) target(name string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if to, moves := f.points[name]; moves {
		return to
	}
	return name
}

// Strangers is how many connections were refused because no link allows them.
func (f *Fabric) Strangers() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.strangers
}

// listen serves the links that lead to an address. They differ in where they
// come from.
func (f *Fabric) listen(at netip.AddrPort, to topologies.Link) error {
	if !at.IsValid() {
		return nil
	}
	var config net.ListenConfig
	l, err := config.Listen(context.Background(), "tcp", at.String())
	if err != nil {
		return fmt.Errorf("listen for %s: %w", to.To, err)
	}
	f.listeners = append(f.listeners, l)
	f.done.Go(func() { f.accept(l, to) })
	return nil
}

func (f *Fabric) accept(l net.Listener, link topologies.Link) {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // one that died before it was accepted
		}
		client := c.(*net.TCPConn)
		f.done.Go(func() { f.forward(client, link) })
	}
}

// forward serves a connection along the link of the party that dialled. One that
// no link allows is reset.
func (f *Fabric) forward(client *net.TCPConn, link topologies.Link) {
	from := client.RemoteAddr().(*net.TCPAddr).AddrPort()
	party := f.parties[from.Addr().Unmap()].Name
	if party == "" {
		party = f.adopted(from, client.LocalAddr().(*net.TCPAddr).AddrPort())
	}
	link.From, link.To = party, f.target(link.To)
	w := f.wires[link.Name()]
	if w == nil {
		f.mu.Lock()
		f.strangers++
		f.mu.Unlock()
		abort(client)
		return
	}
	w.serve(client, false)
}

// Close refuses new connections, resets all open ones and waits for them.
func (f *Fabric) Close() error {
	var errs []error
	for _, l := range f.listeners {
		errs = append(errs, l.Close())
	}
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

// dialTimeout bounds how long a link tries to reach the server behind it.
const dialTimeout = time.Second

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
