package redistest

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Link is the network of a client: it can lose or delay the reply to one
// request that the server has carried out. Requests are known by a text in them, or by one of several, which have "|"
// between them.
type Link struct {
	drop, hold atomic.Pointer[fault]
}

// fault strikes once, at the first request with one of the texts in it, or at all.
type fault struct {
	texts  [][]byte
	struck chan struct{}
	once   sync.Once // for the request
	tell   sync.Once // that it struck
	all    bool      // it strikes at every request until it is healed
	heal   chan struct{}
}

func newFault(text string) *fault {
	return &fault{texts: bytes.Split(bytes.ToLower([]byte(text)), []byte("|")), struck: make(chan struct{}), heal: make(chan struct{})}
}

func (f *fault) strikes(request []byte) (struck bool) {
	if f == nil || !slices.ContainsFunc(f.texts, func(text []byte) bool { return bytes.Contains(bytes.ToLower(request), text) }) {
		return false
	}
	if f.all {
		select {
		case <-f.heal:
			return false
		default:
			return true
		}
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

// HoldReplies is HoldReply for all such requests until deliver is called: also for
// those that are sent because no reply came.
func (l *Link) HoldReplies(text string) (held <-chan struct{}, deliver func()) {
	f := newFault(text)
	f.all = true
	l.hold.Store(f)
	return f.struck, sync.OnceFunc(func() { close(f.heal) })
}

type linkConn struct {
	net.Conn

	link       *Link
	drop, hold atomic.Pointer[fault]
	deadline   atomic.Pointer[time.Time] // to read
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
