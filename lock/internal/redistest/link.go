package redistest

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// Link is the network of a client: it can lose or delay the reply to one
// request that the server has carried out.
type Link struct {
	drop, hold atomic.Pointer[fault]
}

// fault strikes once, at the first request with that text in it.
type fault struct {
	text   []byte
	struck chan struct{}
	once   sync.Once
	heal   chan struct{}
}

func newFault(text string) *fault {
	return &fault{text: bytes.ToLower([]byte(text)), struck: make(chan struct{}), heal: make(chan struct{})}
}

func (f *fault) strikes(request []byte) (struck bool) {
	if f == nil || !bytes.Contains(bytes.ToLower(request), f.text) {
		return false
	}
	f.once.Do(func() { struck = true })
	return struck
}

// Use makes a client use the link.
func (l *Link) Use(o *redis.Options) {
	network, addr := o.Network, o.Addr
	o.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &linkConn{Conn: conn, link: l}, nil
	}
}

// DropReply breaks the connection instead of delivering the reply to the next
// request with that text in it. dropped is closed when it has happened.
func (l *Link) DropReply(text string) (dropped <-chan struct{}) {
	f := newFault(text)
	l.drop.Store(f)
	return f.struck
}

// HoldReply holds the reply to the next request with that text in it back until
// deliver is called. held is closed when the server has sent it.
func (l *Link) HoldReply(text string) (held <-chan struct{}, deliver func()) {
	f := newFault(text)
	l.hold.Store(f)
	return f.struck, sync.OnceFunc(func() { close(f.heal) })
}

type linkConn struct {
	net.Conn

	link       *Link
	drop, hold atomic.Pointer[fault]
}

func (c *linkConn) Write(b []byte) (int, error) {
	if f := c.link.drop.Load(); f.strikes(b) {
		c.drop.Store(f)
	}
	if f := c.link.hold.Load(); f.strikes(b) {
		c.hold.Store(f)
	}
	return c.Conn.Write(b)
}

func (c *linkConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if f := c.drop.Swap(nil); f != nil {
		_ = c.Close()
		close(f.struck)
		return 0, io.EOF
	}
	if f := c.hold.Swap(nil); f != nil {
		close(f.struck)
		<-f.heal
	}
	return n, err
}
