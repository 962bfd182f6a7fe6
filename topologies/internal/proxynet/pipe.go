package proxynet

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/Shopify/toxiproxy/v2/stream"

	"github.com/lockchaos/lockchaos/internal/traffic"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/toxics"
)

// A pipe is one proxied connection: two streams, each through a chain of
// toxics into a writer that never makes them wait.
//
// It has a toxiproxy Proxy of its own, which is never started, for its chains
// alone: in one that several connections share, removing a toxic waits for
// ever once a peer has died (Shopify/toxiproxy issues 427, 428 and 558). A
// chain whose stream has ended is left alone: toxiproxy loses count of its
// toxics when one is removed then.
type pipe struct {
	proxy          *toxiproxy.Proxy
	client, server *net.TCPConn
	sources        []*source
	writers        map[stream.Direction]*delayedWriter
	ended          chan struct{} // closed when both streams have ended

	mu    sync.Mutex
	over  map[stream.Direction]bool // whose source has ended
	holds map[string]*toxics.Hold   // by their names
}

// newPipe makes a pipe. judge decides what becomes of each message that passes
// it, behind its toxics, and count is told of each before them; nil where what passes is no talk between a client and a server.
func newPipe(
	engine *toxiproxy.ApiServer, name string, client, server *net.TCPConn, judge, count func(traffic.Message) traffic.Action,
) *pipe {
	p := &pipe{
		proxy:  toxiproxy.NewProxy(engine, name, "", ""),
		client: client, server: server,
		ended: make(chan struct{}),
		over:  map[stream.Direction]bool{}, holds: map[string]*toxics.Hold{},
	}
	heardUp, heardDown := cutters(count)
	p.sources = []*source{{p, stream.Upstream, client, heardUp}, {p, stream.Downstream, server, heardDown}}
	up, down := cutters(judge)
	p.writers = map[stream.Direction]*delayedWriter{
		stream.Upstream:   newDelayedWriter(server, p.ended, up),
		stream.Downstream: newDelayedWriter(client, p.ended, down),
	}
	return p
}

// start lets the data flow.
func (p *pipe) start(engine *toxiproxy.ApiServer) {
	var streams sync.WaitGroup
	for _, o := range p.writers {
		streams.Go(func() {
			if !o.run() {
				p.abort()
			}
		})
	}
	go func() {
		streams.Wait()
		close(p.ended)
	}()
	for _, s := range p.sources {
		p.proxy.Toxics.StartLink(engine, s.direction.String(), s, p.writers[s.direction], s.direction)
	}
}

// abort resets both ends; what was on its way is lost.
func (p *pipe) abort() {
	abort(p.client)
	abort(p.server)
	for _, o := range p.writers {
		o.change(func() { o.dead = true })
	}
}

// free lets the chains of a connection that has ended end as well.
func (p *pipe) free() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range p.holds {
		h.Open()
	}
}

// A source reads one stream, and tells its pipe of the end before any other reader
// learns of it.
type source struct {
	pipe      *pipe
	direction stream.Direction
	from      *net.TCPConn
	heard     func([]byte) []part // is told of all that comes; nil: nothing is
}

// buffers are what streams are read into. Without them, toxiproxy would make two of
// 32 KiB for each stream, and connections are many and short when faults end them: that was
// 37 % of what the tests of package harness allocate.
var buffers = sync.Pool{New: func() any { return new(buffer) }} //nolint:gochecknoglobals // streams of all links share them

type buffer [8 << 10]byte

// copyTo copies a stream until its end.
func copyTo(to io.Writer, from io.Reader) (int64, error) {
	b := buffers.Get().(*buffer)
	defer buffers.Put(b)
	// The ends have nothing but their method: one that can copy would call back.
	return io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, b[:])
}

// WriteTo has toxiproxy read the stream with one of our buffers.
func (s *source) WriteTo(to io.Writer) (int64, error) { return copyTo(to, s) }

func (s *source) Read(b []byte) (int, error) {
	n, err := s.from.Read(b)
	if s.heard != nil && n > 0 {
		s.heard(b[:n])
	}
	if err != nil {
		s.pipe.mu.Lock()
		s.pipe.over[s.direction] = true
		s.pipe.mu.Unlock()
	}
	return n, err
}

// A toxic lies on one stream of a link.
type toxic struct {
	topologies.Toxic

	name   string
	stream topologies.Stream
}

func (t toxic) direction() stream.Direction {
	d, _ := stream.ParseDirection(t.stream) // it is one of [topologies.StreamsOf]
	return d
}

// json is the toxic in toxiproxy's words.
func (t toxic) json() io.Reader {
	b, _ := json.Marshal(map[string]any{"name": t.name, "type": t.Type, "stream": t.stream, "toxicity": 1, "attributes": t.Attributes}) // strings and numbers
	return bytes.NewReader(b)
}

// put lays a toxic on the pipe.
func (p *pipe) put(t toxic) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over[t.direction()] {
		return
	}
	w, err := p.proxy.Toxics.AddToxicJson(t.json())
	if err != nil {
		panic(fmt.Sprintf("proxynet: toxiproxy refuses a toxic that the link has: %v", err))
	}
	if h, ok := w.Toxic.(*toxics.Hold); ok {
		p.holds[t.name] = h
	}
}

// lift takes it off again. A hold is opened, and stays: what it keeps of a stream that has ended could not be had otherwise.
func (p *pipe) lift(t toxic) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h := p.holds[t.name]; h != nil {
		delete(p.holds, t.name)
		h.Open()
		return
	}
	if p.over[t.direction()] {
		return
	}
	// The only error is that the toxic is not there, because the stream had
	// ended when it was put; then there is nothing to remove.
	_ = p.proxy.Toxics.RemoveToxic(context.Background(), t.name)
}
