package redistest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Link is what is between a client and its servers: it can lose or delay the reply to one
// request that the server has carried out, hold back all requests, and be cut. Requests are known by a text in them, or by
// one of several, which have "|" between them. The zero value works.
type Link struct {
	drop, hold atomic.Pointer[fault]

	mu      sync.Mutex
	held    chan struct{} // closed once requests are free again; nil if they are
	isCut   bool
	refused int // connections that could not be opened
	conns   []net.Conn
}

var errCut = errors.New("the network is cut")

// fault strikes once, at the first request with one of the texts in it, or at all.
type fault struct {
	texts  [][]byte
	struck chan struct{}
	once   sync.Once // for the request
	tell   sync.Once // that it struck
	all    bool      // it strikes at every request until it is healed
	heal   chan struct{}
}

func newFault(text string, all bool) *fault {
	texts := bytes.Split(bytes.ToLower([]byte(text)), []byte("|"))
	return &fault{texts: texts, all: all, struck: make(chan struct{}), heal: make(chan struct{})}
}

func (f *fault) strikes(request []byte) (struck bool) {
	isIn := func(text []byte) bool { return bytes.Contains(bytes.ToLower(request), text) }
	switch {
	case f == nil || !slices.ContainsFunc(f.texts, isIn):
		return false
	case f.all:
		select {
		case <-f.heal:
			return false
		default:
			return true
		}
	default:
		f.once.Do(func() { struck = true })
		return struck
	}
}

// Use makes a client use the link.
func (l *Link) Use(o *redis.Options) {
	dial, network, addr := o.Dialer, o.Network, o.Addr
	if dial == nil {
		dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		}
	}
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.isCut {
			_ = conn.Close()
			l.refused++
			return nil, &net.OpError{Op: "dial", Net: "unix", Err: errCut}
		}
		l.conns = append(l.conns, conn)
		return &linkConn{Conn: conn, link: l}, nil
	}
}

// Cut breaks all connections, and lets no new one be opened until heal is called.
func (l *Link) Cut() (heal func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isCut = true
	for _, conn := range l.conns {
		_ = conn.Close()
	}
	l.conns = nil
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.isCut = false
	}
}

// Refused is how many connections could not be opened because the link was cut.
func (l *Link) Refused() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refused
}

// DropReply breaks the connection instead of delivering the reply to the next
// request with that text in it. dropped is closed when it has happened.
func (l *Link) DropReply(text string) (dropped <-chan struct{}) {
	f := newFault(text, false)
	l.drop.Store(f)
	return f.struck
}

// HoldReply holds the reply to the next request with that text in it back until
// deliver is called. held is closed when the server has sent it.
func (l *Link) HoldReply(text string) (held <-chan struct{}, deliver func()) {
	return l.holdBack(newFault(text, false))
}

// HoldReplies is HoldReply for all such requests until deliver is called: also for
// those that are sent because no reply came.
func (l *Link) HoldReplies(text string) (held <-chan struct{}, deliver func()) {
	return l.holdBack(newFault(text, true))
}

func (l *Link) holdBack(f *fault) (held <-chan struct{}, deliver func()) {
	l.hold.Store(f)
	return f.struck, sync.OnceFunc(func() { close(f.heal) })
}

// HoldRequests holds back what a client sends until free is called. It arrives then, even if the client has closed the
// connection.
func (l *Link) HoldRequests() (free func()) {
	held := make(chan struct{})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = held
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.held = nil
		close(held)
	})
}

type linkConn struct {
	net.Conn

	link       *Link
	drop, hold atomic.Pointer[fault]
	deadline   atomic.Pointer[time.Time] // to read

	mu       sync.Mutex
	requests []byte // that are held back
	isClosed bool   // by the client
}

func (c *linkConn) SetDeadline(t time.Time) error {
	c.deadline.Store(&t)
	return c.Conn.SetDeadline(t)
}

func (c *linkConn) SetReadDeadline(t time.Time) error {
	c.deadline.Store(&t)
	return c.Conn.SetReadDeadline(t)
}

func (c *linkConn) Write(b []byte) (int, error) {
	if f := c.link.drop.Load(); f.strikes(b) {
		c.drop.Store(f)
	}
	if f := c.link.hold.Load(); f.strikes(b) {
		c.hold.Store(f)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.link.mu.Lock()
	held := c.link.held
	c.link.mu.Unlock()
	if held == nil && len(c.requests) == 0 {
		return c.Conn.Write(b)
	}
	if len(c.requests) == 0 {
		go c.deliver(held)
	}
	c.requests = append(c.requests, b...)
	return len(b), nil
}

// deliver sends what was held back.
func (c *linkConn) deliver(held <-chan struct{}) {
	<-held
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = c.Conn.Write(c.requests)
	c.requests = nil
	if c.isClosed {
		_ = c.Conn.Close()
	}
}

func (c *linkConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if f := c.drop.Swap(nil); f != nil {
		_ = c.Close()
		close(f.struck)
		return 0, io.EOF
	}
	if f := c.hold.Swap(nil); f != nil {
		f.tell.Do(func() { close(f.struck) })
		var over <-chan time.Time
		if at := c.deadline.Load(); at != nil && !at.IsZero() {
			over = time.After(time.Until(*at))
		}
		select {
		case <-f.heal:
		case <-over:
			return 0, os.ErrDeadlineExceeded
		}
	}
	return n, err
}

func (c *linkConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.requests) > 0 && !c.isClosed {
		c.isClosed = true
		return c.Conn.SetReadDeadline(time.Now())
	}
	return c.Conn.Close()
}
