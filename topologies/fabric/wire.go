package fabric

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/Shopify/toxiproxy/v2"

	"github.com/lockchaos/lockchaos/topologies"
)

// A Wire is one link: every connection that one party has to another, and the
// faults that lie on them. Several faults on one wire add up.
type Wire struct {
	name   string
	engine *toxiproxy.ApiServer
	from   netip.Addr
	to     Party

	mu     sync.Mutex
	cuts   int
	pipes  map[*pipe]struct{}
	faults []impairment // in the order in which they were put
	made   int          // so that each has a name of its own
}

// Name is "<from>><to>".
func (w *Wire) Name() string { return w.name }

// serve forwards one connection until it ends.
func (w *Wire) serve(client *net.TCPConn) {
	w.mu.Lock()
	cut := w.cuts > 0
	w.mu.Unlock()
	if cut {
		abort(client)
		return
	}
	server, err := dialFrom(context.Background(), w.from, w.to.Real)
	if err != nil {
		abort(client)
		return
	}
	p := newPipe(w.engine, w.name, client, server)
	w.mu.Lock()
	if w.cuts > 0 {
		w.mu.Unlock()
		p.abort()
		return
	}
	w.pipes[p] = struct{}{}
	for _, i := range w.faults {
		p.put(i)
	}
	p.start(w.engine)
	w.mu.Unlock()

	<-p.ended
	_ = client.Close() // both streams have ended, so that nothing is lost
	_ = server.Close()
	w.mu.Lock()
	delete(w.pipes, p)
	w.mu.Unlock()
}

// Cut resets every connection and refuses new ones until the returned function
// was called.
func (w *Wire) Cut() (mend func()) {
	w.mu.Lock()
	w.cuts++
	w.mu.Unlock()
	w.Reset()
	return sync.OnceFunc(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.cuts--
	})
}

// Reset resets every connection once and reports how many there were.
func (w *Wire) Reset() int {
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

// Hold stops the data of a stream and keeps it; what was kept is delivered, in
// order, after the returned function was called.
func (w *Wire) Hold(s topologies.Stream) (mend func(), err error) {
	return w.put(s, impairment{hold: true})
}

// Delay adds a latency, give or take the jitter, to the data of a stream. Both
// are rounded to whole milliseconds.
func (w *Wire) Delay(s topologies.Stream, latency, jitter time.Duration) (mend func(), err error) {
	return w.put(s, impairment{latency: latency, jitter: jitter})
}

func (w *Wire) put(s topologies.Stream, i impairment) (func(), error) {
	var streams []topologies.Stream
	switch s {
	case topologies.Both:
		streams = []topologies.Stream{topologies.Upstream, topologies.Downstream}
	case topologies.Upstream, topologies.Downstream:
		streams = []topologies.Stream{s}
	default:
		return nil, fmt.Errorf("unknown stream %q (want upstream, downstream or both)", s)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	var put []impairment
	for _, stream := range streams {
		w.made++
		i.name, i.stream = fmt.Sprintf("fault-%d", w.made), stream
		put = append(put, i)
		for p := range w.pipes {
			p.put(i)
		}
	}
	w.faults = append(w.faults, put...)
	return sync.OnceFunc(func() { w.lift(put) }), nil
}

func (w *Wire) lift(put []impairment) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, i := range put {
		w.faults = slices.DeleteFunc(w.faults, func(other impairment) bool { return other.name == i.name })
		for p := range w.pipes {
			p.lift(i)
		}
	}
}

// Probe dials as the wire's caller does, sends a PING, and returns how long
// the first byte of an answer took. Redis and Sentinel both answer.
func (w *Wire) Probe(ctx context.Context) (time.Duration, error) {
	start := time.Now()
	c, err := dialFrom(ctx, w.from, w.to.Virtual)
	if err != nil {
		return 0, fmt.Errorf("probe %s: %w", w.name, err)
	}
	defer abort(c)
	if deadline, ok := ctx.Deadline(); ok {
		if err := c.SetDeadline(deadline); err != nil {
			return 0, fmt.Errorf("probe %s: %w", w.name, err)
		}
	}
	if _, err := c.Write([]byte("PING\r\n")); err != nil {
		return 0, fmt.Errorf("probe %s: %w", w.name, err)
	}
	if _, err := c.Read(make([]byte, 1)); err != nil {
		return 0, fmt.Errorf("probe %s: %w", w.name, err)
	}
	return time.Since(start), nil
}
