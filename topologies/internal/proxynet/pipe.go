package proxynet

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/Shopify/toxiproxy/v2/stream"

	"github.com/lockchaos/lockchaos/internal/traffic"
	"github.com/lockchaos/lockchaos/topologies"
)

// A pipe is one proxied connection: two streams, each through a chain of
// toxiproxy's toxics into a delayed writer.
//
// It has a toxiproxy Proxy of its own, which is never started, for its chains
// alone: in one that several connections share, removing a toxic waits for
// ever once a peer has died (Shopify/toxiproxy issues 427, 428 and 558). A
// chain whose stream has ended is left alone: toxiproxy loses count of its
// toxics when one is removed then.
type pipe struct {
	proxy          *toxiproxy.Proxy
	client, server *net.TCPConn
	writers        map[stream.Direction]*delayedWriter
	ended          chan struct{} // closed when both streams have ended

	mu   sync.Mutex
	over map[stream.Direction]bool // whose source has ended
}

// newPipe makes a pipe. judge decides what becomes of each message that passes
// it; nil where what passes is no talk between a client and a server.
func newPipe(
	engine *toxiproxy.ApiServer, name string, client, server *net.TCPConn, judge func(traffic.Message) traffic.Action,
) *pipe {
	p := &pipe{
		proxy:  toxiproxy.NewProxy(engine, name, "", ""),
		client: client, server: server,
		ended: make(chan struct{}),
		over:  map[stream.Direction]bool{},
	}
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
	p.proxy.Toxics.StartLink(engine, "up", &source{p, stream.Upstream, p.client}, p.writers[stream.Upstream], stream.Upstream)
	p.proxy.Toxics.StartLink(engine, "down", &source{p, stream.Downstream, p.server}, p.writers[stream.Downstream], stream.Downstream)
}

// abort resets both ends; what was on its way is lost.
func (p *pipe) abort() {
	abort(p.client)
	abort(p.server)
	for _, o := range p.writers {
		o.kill()
	}
}

// A source reads one stream, and tells its pipe of the end before any other reader
// learns of it.
type source struct {
	pipe      *pipe
	direction stream.Direction
	from      *net.TCPConn
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
	if err != nil {
		s.pipe.mu.Lock()
		s.pipe.over[s.direction] = true
		s.pipe.mu.Unlock()
	}
	return n, err
}

// An impairment is a fault on one stream of a link: a hold, a rate, a late end,
// or else a latency.
type impairment struct {
	name            string
	stream          topologies.Stream
	hold            bool
	rate            int           // bytes a second
	linger          time.Duration // between the end of the stream and passing it on
	latency, jitter time.Duration
}

// atWriter lays an impairment on a delayed writer, or takes it off again, and reports
// false if it has its place elsewhere.
func (i impairment) atWriter(o *delayedWriter, on bool) bool {
	sign := 1
	if !on {
		sign = -1
	}
	switch {
	case i.hold:
		o.hold(sign)
	case i.rate > 0 && on:
		o.change(func() { o.rates = append(o.rates, i.rate) })
	case i.rate > 0:
		o.change(func() {
			if at := slices.Index(o.rates, i.rate); at >= 0 {
				o.rates = slices.Delete(o.rates, at, at+1)
			}
		})
	case i.linger > 0:
		o.change(func() { o.lingers += time.Duration(sign) * i.linger })
	default:
		return false
	}
	return true
}

func (i impairment) direction() stream.Direction {
	if i.stream == topologies.Upstream {
		return stream.Upstream
	}
	return stream.Downstream
}

// toxic is the impairment in toxiproxy's words.
func (i impairment) toxic() string {
	b, err := json.Marshal(map[string]any{
		"name": i.name, "type": "latency", "stream": i.stream, "toxicity": 1,
		"attributes": map[string]int64{"latency": i.latency.Milliseconds(), "jitter": i.jitter.Milliseconds()},
	})
	if err != nil {
		panic(fmt.Sprintf("proxynet: strings and numbers do not encode: %v", err))
	}
	return string(b)
}

// put lays an impairment on the pipe.
func (p *pipe) put(i impairment) {
	if i.atWriter(p.writers[i.direction()], true) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over[i.direction()] {
		return
	}
	if _, err := p.proxy.Toxics.AddToxicJson(strings.NewReader(i.toxic())); err != nil {
		panic(fmt.Sprintf("proxynet: toxiproxy refuses its own toxic: %v", err))
	}
}

// lift takes it off again.
func (p *pipe) lift(i impairment) {
	if i.atWriter(p.writers[i.direction()], false) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over[i.direction()] {
		return
	}
	// The only error is that the toxic is not there, because the stream had
	// ended when it was put; then there is nothing to remove.
	_ = p.proxy.Toxics.RemoveToxic(context.Background(), i.name)
}
