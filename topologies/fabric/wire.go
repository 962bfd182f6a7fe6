package fabric

import (
	"context"
	"encoding/json"
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
	toxics map[int]toxic
	next   int
}

// A toxic is what toxiproxy calls a fault on a stream of data.
type toxic struct {
	Name       string           `json:"name"`
	Type       string           `json:"type"`
	Stream     string           `json:"stream"`
	Toxicity   float32          `json:"toxicity"`
	Attributes map[string]int64 `json:"attributes"`
}

func (t toxic) json() string {
	b, err := json.Marshal(t)
	if err != nil {
		panic(err) // a struct of strings and numbers always encodes
	}
	return string(b)
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
	for _, id := range w.order() {
		p.add(w.toxics[id])
	}
	p.start()
	w.mu.Unlock()

	<-p.ended
	p.abort()
	w.mu.Lock()
	delete(w.pipes, p)
	w.mu.Unlock()
}

// order is the order in which the toxics were put on.
func (w *Wire) order() []int {
	ids := make([]int, 0, len(w.toxics))
	for id := range w.toxics {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
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
	return w.put(s, holdType, nil)
}

// Delay adds a latency, give or take the jitter, to the data of a stream. Both
// are rounded to whole milliseconds.
func (w *Wire) Delay(s topologies.Stream, latency, jitter time.Duration) (mend func(), err error) {
	return w.put(s, "latency", map[string]int64{
		"latency": latency.Milliseconds(),
		"jitter":  jitter.Milliseconds(),
	})
}

func (w *Wire) put(s topologies.Stream, kind string, attributes map[string]int64) (func(), error) {
	var streams []string
	switch s {
	case topologies.Both:
		streams = []string{topologies.Upstream, topologies.Downstream}
	case topologies.Upstream, topologies.Downstream:
		streams = []string{s}
	default:
		return nil, fmt.Errorf("unknown stream %q (want upstream, downstream or both)", s)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	var ids []int
	for _, stream := range streams {
		id := w.next
		w.next++
		t := toxic{
			Name: fmt.Sprintf("%s-%d", kind, id), Type: kind, Stream: stream,
			Toxicity: 1, Attributes: attributes,
		}
		w.toxics[id] = t
		for p := range w.pipes {
			p.add(t)
		}
		ids = append(ids, id)
	}
	return sync.OnceFunc(func() { w.lift(ids) }), nil
}

func (w *Wire) lift(ids []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range ids {
		for p := range w.pipes {
			p.remove(w.toxics[id].Name)
		}
		delete(w.toxics, id)
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
