package proxynet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/Shopify/toxiproxy/v2/toxics"

	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/internal/traffic"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/internal/probe"
)

var _ topologies.Interceptor = (*Link)(nil)

// A Link is one link: every connection that one endpoint has to another, and the
// faults that lie on them. Several faults on one link add up.
type Link struct {
	probe.Prober

	engine *toxiproxy.ApiServer
	from   netip.Addr
	// probed is the address that probes ask, and unread says that what passes is none of Redis' messages.
	probed netip.AddrPort
	unread bool

	// listed is the proxy that toxiproxy's API shows for the link. No connection passes it: see [pipe].
	listed *toxiproxy.Proxy

	mu     sync.Mutex
	cuts   int
	pipes  map[*pipe]struct{}
	toxics []toxic // in the order in which they were put
	made   int     // so that each has a name of its own

	interceptors interceptors
	requests     requests
}

// Name is the name of its link.
func (w *Link) Name() string { return w.Link.Name() }

// serve forwards one connection to an address of its end until it ends. What passes it is
// counted, unless it is one of ours.
func (w *Link) serve(client *net.TCPConn, to netip.AddrPort, ours bool) {
	refuse := func() {
		if !ours {
			w.requests.refuse()
		}
		abort(client)
	}
	if w.isCut() {
		refuse()
		return
	}
	server, err := w.reach(to)
	if err != nil {
		refuse()
		return
	}
	var judge, count func(traffic.Message) traffic.Action
	if w.talks() {
		judge = w.interceptors.judge
	}
	if judge != nil && !ours {
		var ended func()
		count, ended = w.requests.count()
		defer ended()
	}
	p := newPipe(w.engine, w.Name(), client, server, judge, count)
	w.mu.Lock()
	if w.cuts > 0 { // since the server was dialled
		w.mu.Unlock()
		if !ours {
			w.requests.refuse()
		}
		p.abort()
		return
	}
	w.pipes[p] = struct{}{}
	for _, i := range w.toxics {
		p.put(i)
	}
	p.start(w.engine)
	w.mu.Unlock()

	<-p.ended
	_ = client.Close() // both streams have ended, so that nothing is lost
	_ = server.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.pipes, p)
	p.free()
}

// reach dials an address of its end. With patience, it tries again while nothing listens
// there and the link is not cut.
func (w *Link) reach(to netip.AddrPort) (server *net.TCPConn, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), w.Greet.Patience)
	defer cancel()
	err = await.Until(ctx, func() error {
		var refused error
		if server, refused = dialFrom(context.Background(), w.from, to); refused != nil && w.isCut() {
			cancel()
		}
		return refused
	})
	return server, err
}

func (w *Link) isCut() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cuts > 0
}

// Cut resets every connection and refuses new ones until the returned function
// was called.
func (w *Link) Cut() (mend func()) {
	w.cut(1)
	w.Reset()
	return sync.OnceFunc(func() { w.cut(-1) })
}

// cut adds to the number of cuts.
func (w *Link) cut(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.listed.Lock()
	defer w.listed.Unlock()
	w.cuts += n
	w.listed.Enabled = w.cuts == 0
}

// Reset resets every connection once and reports how many there were.
func (w *Link) Reset() int {
	w.mu.Lock()
	pipes := make([]*pipe, 0, len(w.pipes))
	for p := range w.pipes {
		pipes = append(pipes, p)
	}
	w.mu.Unlock()
	for _, p := range pipes {
		p.abort()
	}
	return len(pipes)
}

// Put lays a toxic on a stream of every connection that there is and will be.
func (w *Link) Put(s topologies.Stream, t topologies.Toxic) (mend func(), err error) {
	streams, err := topologies.StreamsOf(s)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	var put []toxic
	for _, stream := range streams {
		w.made++
		i := toxic{Toxic: t, name: fmt.Sprintf("fault-%d", w.made), stream: stream}
		if _, err := w.listed.Toxics.AddToxicJson(i.json()); err != nil {
			w.lift(put)
			return nil, fmt.Errorf("put %s on %s: %w", t.Type, w.Name(), err)
		}
		put = append(put, i)
		w.toxics = append(w.toxics, i)
		for p := range w.pipes {
			p.put(i)
		}
	}
	return sync.OnceFunc(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.lift(put)
	}), nil
}

// lift takes toxics off again.
func (w *Link) lift(put []toxic) {
	for _, i := range put {
		_ = w.listed.Toxics.RemoveToxic(context.Background(), i.name) // it is there
		w.toxics = slices.DeleteFunc(w.toxics, func(other toxic) bool { return other.name == i.name })
		for p := range w.pipes {
			p.lift(i)
		}
	}
}

// Toxics are those that lie on the link.
func (w *Link) Toxics(context.Context) (types []string, enabled bool, err error) {
	for _, t := range w.listed.Toxics.GetToxicArray() {
		types = append(types, t.(*toxics.ToxicWrapper).Type)
	}
	w.listed.Lock()
	defer w.listed.Unlock()
	return types, w.listed.Enabled, nil
}

// enter opens a connection through the link for a probe. Not every caller's address is one
// that we could dial from, so that it does not pass the endpoint's listener: both
// of its ends are made here, and one is served.
func (w *Link) enter(ctx context.Context) (net.Conn, error) {
	inner, outer, err := pair(ctx)
	if err != nil {
		return nil, err
	}
	go w.serve(inner, w.probed, true)
	return resetting{outer}, nil
}

// A resetting connection is reset when it is closed.
type resetting struct{ *net.TCPConn }

// Close resets it.
func (c resetting) Close() error {
	abort(c.TCPConn)
	return nil
}

// pair is both ends of a connection.
func pair(ctx context.Context) (inner, outer *net.TCPConn, err error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	var d net.Dialer
	dialled, err := d.DialContext(ctx, "tcp", l.Addr().String())
	if err != nil {
		return nil, nil, err
	}
	for {
		accepted, err := l.Accept()
		if err != nil {
			return nil, nil, errors.Join(err, dialled.Close())
		}
		if accepted.RemoteAddr().String() != dialled.LocalAddr().String() {
			_ = accepted.Close() // another caller dialled
			continue
		}
		return accepted.(*net.TCPConn), dialled.(*net.TCPConn), nil
	}
}
