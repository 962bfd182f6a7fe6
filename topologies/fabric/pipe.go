package fabric

import (
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/Shopify/toxiproxy/v2/toxics"
)

// A pipe is one proxied connection.
//
// It has a toxiproxy Proxy of its own, which is never started, for its chain
// of toxics alone: in one chain shared by several connections, removing a
// toxic waits for ever once a peer has died (Shopify/toxiproxy issues 427, 428
// and 558). Its lock keeps changes of the chain and the end apart.
type pipe struct {
	name           string
	engine         *toxiproxy.ApiServer
	proxy          *toxiproxy.Proxy
	client, server *net.TCPConn

	mu    sync.Mutex
	dead  bool
	open  atomic.Int32
	ended chan struct{} // closed when both streams have ended
}

func newPipe(engine *toxiproxy.ApiServer, name string, client, server *net.TCPConn) *pipe {
	p := &pipe{
		name: name, engine: engine, client: client, server: server,
		proxy: toxiproxy.NewProxy(engine, name, "", ""),
		ended: make(chan struct{}),
	}
	p.open.Store(2)
	return p
}

func (p *pipe) start() {
	p.proxy.Toxics.StartLink(p.engine, p.name+"/up", p.client, &sink{pipe: p, to: p.server}, stream.Upstream)
	p.proxy.Toxics.StartLink(p.engine, p.name+"/down", p.server, &sink{pipe: p, to: p.client}, stream.Downstream)
}

func (p *pipe) add(t toxic) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		return
	}
	if _, err := p.proxy.Toxics.AddToxicJson(strings.NewReader(t.json())); err != nil {
		panic("fabric: toxiproxy refuses its own toxic: " + err.Error())
	}
}

func (p *pipe) remove(toxic string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		return
	}
	// The only error is that the toxic is not there, and then there is
	// nothing to remove.
	_ = p.proxy.Toxics.RemoveToxic(context.Background(), toxic)
}

// abort resets both ends and takes the chain apart, so that nothing waits on.
func (p *pipe) abort() {
	abort(p.client)
	abort(p.server)
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.dead {
		p.dead = true
		p.proxy.Toxics.ResetToxics(context.Background())
	}
}

// A sink writes one stream to its end. After an error it swallows what comes
// and aborts both ends: a chain whose last write fails would stop reading, and
// whoever changes the chain would wait for it for ever.
type sink struct {
	pipe   *pipe
	to     *net.TCPConn
	failed bool
}

func (s *sink) Write(b []byte) (int, error) {
	if !s.failed {
		if _, err := s.to.Write(b); err != nil {
			s.failed = true
			abort(s.pipe.client)
			abort(s.pipe.server)
		}
	}
	return len(b), nil
}

// Close passes on the end of the stream; the other stream may go on.
func (s *sink) Close() error {
	if s.pipe.open.Add(-1) == 0 {
		close(s.pipe.ended)
	}
	return s.to.CloseWrite()
}

// holdType is the name of the toxic that stops a stream and keeps its data.
// toxiproxy's own "timeout" drops the data, and closes the connection when it
// is lifted.
const holdType = "lockchaos-hold"

type hold struct{}

// Pipe takes nothing in until it is lifted, so that what is sent stays in the
// stream.
func (*hold) Pipe(stub *toxics.ToxicStub) { <-stub.Interrupt }

var registerHold = sync.OnceFunc(func() { toxics.Register(holdType, new(hold)) }) //nolint:gochecknoglobals // toxiproxy's registry is global, and an entry must be made once
