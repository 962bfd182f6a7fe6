package world

import (
	"context"
	"io"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/lockchaos/lockchaos/simulation/simredis"
)

// Leads reports whether the server runs and is a master.
func (n *Node) Leads() bool {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	return !n.down && n.master == nil && n.kind == redisNode
}

// Inside is a client that looks into the server: its requests pass no link, take no time and meet
// no fault.
func (n *Node) Inside() *redis.Client {
	return redis.NewClient(&redis.Options{
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			c := &inside{node: n}
			n.w.mu.Lock()
			defer n.w.mu.Unlock()
			c.session = n.server.Open(func(b []byte) { c.out = append(c.out, b...) })
			return c, nil
		},
		PoolSize: 1, MaxRetries: -1, DialerRetries: 1, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// inside is a connection of [Node.Inside]: a request is carried out while it is written.
type inside struct {
	node    *Node
	session *simredis.Session
	out     []byte
}

func (c *inside) Write(b []byte) (int, error) {
	c.node.w.mu.Lock()
	defer c.node.w.mu.Unlock()
	if c.session.Closed() { // the server was killed since
		return 0, net.ErrClosed
	}
	c.session.Receive(b)
	return len(b), nil
}

func (c *inside) Read(b []byte) (int, error) {
	c.node.w.mu.Lock()
	defer c.node.w.mu.Unlock()
	if len(c.out) == 0 {
		return 0, io.EOF
	}
	n := copy(b, c.out)
	c.out = c.out[n:]
	return n, nil
}

func (c *inside) Close() error {
	c.node.w.mu.Lock()
	defer c.node.w.mu.Unlock()
	c.session.Close()
	return nil
}

func (c *inside) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (c *inside) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (c *inside) SetDeadline(time.Time) error      { return nil }
func (c *inside) SetReadDeadline(time.Time) error  { return nil }
func (c *inside) SetWriteDeadline(time.Time) error { return nil }
