package world

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
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
			n.w.mu.Lock()
			defer n.w.mu.Unlock()
			c := &conn{w: n.w, node: n, cond: sync.NewCond(&n.w.mu)}
			c.session = n.server.Open(c.arrive)
			return inside{c}, nil
		},
		PoolSize: 1, MaxRetries: -1, DialerRetries: 1, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// inside is a connection of [Node.Inside]: a request is carried out while it is written, and the reply is
// there before it is read.
type inside struct{ *conn }

func (c inside) Write(b []byte) (int, error) {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if c.session.Closed() { // the server was killed since
		return 0, net.ErrClosed
	}
	c.session.Receive(b)
	return len(b), nil
}

func (c inside) Close() error {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.closed = true
	c.session.Close()
	return nil
}

func (inside) SetDeadline(time.Time) error     { return nil }
func (inside) SetReadDeadline(time.Time) error { return nil }
