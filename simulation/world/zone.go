package world

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/lockchaos/lockchaos/internal/clientclock"
)

// A Zone is a process with clients: they share its connections, and stand still
// together.
type Zone struct {
	// Clock is that of the machine of the process, which locks have to be given that are to see its faults:
	// what asks Go for the time is told the right one.
	Clock clientclock.Clock

	w      *World
	name   string
	killed bool
}

// AddZone adds a process of clients. It must come before [World.Start].
func (w *World) AddZone(name string) *Zone {
	z := &Zone{w: w, name: name}
	w.zones[name] = z
	return z
}

// Name is what faults and histories call the zone.
func (z *Zone) Name() string { return z.name }

// Stand blocks while the process stands still by [PauseClient], and fails once it is gone, by [KillClient].
// What clients do without a connection has to call it: a simulation can't stop a goroutine.
func (z *Zone) Stand() error {
	if still := z.still(); still > 0 {
		time.Sleep(still) // in virtual time: how long is what the fault is about
	}
	z.w.mu.Lock()
	defer z.w.mu.Unlock()
	if z.killed {
		return errKilled
	}
	return nil
}

// still is for how long the process goes on to stand still; 0 if it doesn't.
func (z *Zone) still() time.Duration {
	z.w.mu.Lock()
	defer z.w.mu.Unlock()
	var still time.Duration
	for _, a := range z.w.active {
		if a.Name == PauseClient && a.Target == z.name {
			still = max(still, z.w.unique(a.until)-z.w.now())
		}
	}
	return still
}

// errKilled is what calls of a process return that is gone.
var errKilled = errors.New("the process of the client was killed")

// kill ends the process: its connections are closed. Its goroutines go on, and reach
// nothing any more.
func (z *Zone) kill() {
	z.killed = true
	for _, n := range z.w.nodes {
		for _, c := range slices.Clone(n.conns) {
			if c.zone == z && !c.closed {
				c.close()
			}
		}
	}
}

// Dialer opens connections from the zone. It is for the options of go-redis.
func (z *Zone) Dialer() func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, _, address string) (net.Conn, error) {
		if err := ctx.Err(); err != nil {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: err}
		}
		z.w.mu.Lock()
		defer z.w.mu.Unlock()
		n := z.w.nodeAt(address)
		if z.killed {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errKilled}
		}
		if n == nil {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("no server at " + address)}
		}
		name := z.name + ">" + n.name
		if n.down || z.w.is(Cut, name) {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
		}
		return z.connect(n), nil
	}
}

// connect opens a connection.
func (z *Zone) connect(n *Node) *conn {
	name := z.name + ">" + n.name
	c := &conn{w: z.w, zone: z, node: n, cond: sync.NewCond(&z.w.mu)}
	c.session = n.server.Open(c.reply)
	c.up = &pipe{w: z.w, link: name, stream: Upstream, from: z.name, to: n.name}
	c.down = &pipe{w: z.w, link: name, stream: Downstream, from: n.name, to: z.name}
	n.conns = append(n.conns, c)
	return c
}

// is reports whether a fault of that name lasts: whether new connections of a link are refused, by [Cut], or a server
// stands still, by [Pause].
func (w *World) is(fault, target string) bool {
	return slices.ContainsFunc(w.active, func(a *active) bool { return a.Name == fault && a.Target == target })
}
