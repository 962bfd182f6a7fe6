package world

import (
	"context"
	"net"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Leads reports whether the server runs and is a master.
func (n *Node) Leads() bool {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	return !n.down && n.master == nil && n != n.w.sentinel
}

// Inside is a client that looks into the server: its requests pass no link, take no time and meet
// no fault. It has no timeouts, since a timer takes an instant from all others.
func (n *Node) Inside() *redis.Client {
	return redis.NewClient(&redis.Options{
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			n.w.mu.Lock()
			defer n.w.mu.Unlock()
			c := (&Zone{w: n.w, name: "inside"}).connect(n)
			c.inside = true
			return c, nil
		},
		PoolSize: 1, MaxRetries: -1, DialerRetries: 1, ReadTimeout: -2, WriteTimeout: -2, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}
