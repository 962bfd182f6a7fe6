package redistest

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Direction is that of the bytes on a network.
type Direction int

// The directions, as a client sees them.
const (
	Requests Direction = iota
	Replies
)

// Network is what is between a client and its servers. It can be cut, and it can hold
// back what goes in one direction. The zero value works.
type Network struct {
	mu      sync.Mutex
	isCut   bool
	refused int              // connections that could not be opened
	held    [2]chan struct{} // closed once the direction is free again; nil if it is
	conns   map[*networkConn]struct{}
}

var errCut = errors.New("the network is cut")

// Use makes a client use the network.
func (n *Network) Use(o *redis.Options) {
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
		c := &networkConn{Conn: conn, network: n, closed: make(chan struct{})}
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.isCut {
			_ = conn.Close()
			n.refused++
			return nil, &net.OpError{Op: "dial", Net: "unix", Err: errCut}
		}
		if n.conns == nil {
			n.conns = map[*networkConn]struct{}{}
		}
		n.conns[c] = struct{}{}
		return c, nil
	}
}

// Cut breaks all connections, with what is held back on them, and lets no new one be
// opened until heal is called.
func (n *Network) Cut() (heal func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.isCut = true
	for c := range n.conns {
		c.end()
		_ = c.Conn.Close()
	}
	clear(n.conns)
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.isCut = false
	}
}

// Refused is how many connections could not be opened because the network was cut.
func (n *Network) Refused() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.refused
}

// Hold holds back what goes in a direction until free is called. Requests that a
// client has sent by then arrive, even if it has closed their connection.
func (n *Network) Hold(d Direction) (free func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.held[d] != nil {
		return func() {} // another one frees it
	}
	held := make(chan struct{})
	n.held[d] = held
	return sync.OnceFunc(func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.held[d] = nil
		close(held)
	})
}

func (n *Network) hold(d Direction) <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.held[d]
}

func (n *Network) forget(c *networkConn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.conns, c)
}

type networkConn struct {
	net.Conn

	network *Network
	closed  chan struct{}
	close   sync.Once

	mu       sync.Mutex
	requests []byte    // that are held back
	deadline time.Time // to read
	isClosed bool      // by the client
}

func (c *networkConn) end() { c.close.Do(func() { close(c.closed) }) }

func (c *networkConn) SetDeadline(t time.Time) error {
	c.readUntil(t)
	return c.Conn.SetDeadline(t)
}

func (c *networkConn) SetReadDeadline(t time.Time) error {
	c.readUntil(t)
	return c.Conn.SetReadDeadline(t)
}

func (c *networkConn) readUntil(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = t
}

func (c *networkConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	held := c.network.hold(Requests)
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
func (c *networkConn) deliver(held <-chan struct{}) {
	for held != nil {
		<-held
		held = c.network.hold(Requests)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = c.Conn.Write(c.requests)
	c.requests = nil
	if c.isClosed {
		_ = c.Conn.Close()
	}
}

func (c *networkConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	for held := c.network.hold(Replies); err == nil && held != nil; held = c.network.hold(Replies) {
		c.mu.Lock()
		deadline := c.deadline
		c.mu.Unlock()
		var over <-chan time.Time
		if !deadline.IsZero() {
			over = time.After(time.Until(deadline))
		}
		select {
		case <-held:
		case <-c.closed:
			return 0, net.ErrClosed
		case <-over:
			return 0, os.ErrDeadlineExceeded
		}
	}
	return n, err
}

func (c *networkConn) Close() error {
	c.network.forget(c)
	c.end()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.requests) > 0 && !c.isClosed {
		c.isClosed = true
		return c.Conn.SetReadDeadline(time.Now())
	}
	return c.Conn.Close()
}
