// Package probe asks the party behind a link for a sign of life, in the
// language of the link.
package probe

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/topologies"
)

// Key begins the names of the keys that are written to find out whether a deployment is ready.
const Key = "lockchaos:ready"

// A Greet is how a server is asked for a sign of life.
type Greet struct {
	// Request is harmless, and replied to at once.
	Request []byte
	// OfClients says that it is sent to the port of clients, over whatever link: the
	// port behind that link has no request that does no harm.
	OfClients bool
	// Ends says that the server ends the connection after its reply.
	Ends bool
	// Patience is how long a connection that passes the link waits for the server to listen
	// behind it, where one is taken for an answer that is opened and reset.
	Patience time.Duration
}

// Greeting is how Redis and its sentinels are asked on a link of that kind.
func Greeting(kind topologies.LinkKind) Greet {
	if kind == topologies.Bus {
		return Greet{Request: busPing()}
	}
	return Greet{Request: []byte("PING\r\n")} // Redis and Sentinel both answer
}

// ask sends the request and waits for the first byte of its answer. What the answer says does not
// matter: a server that asks for a password lives as well.
func (g Greet) ask(c net.Conn) error {
	if _, err := c.Write(g.Request); err != nil {
		return err
	}
	_, err := c.Read(make([]byte, 1))
	return err
}

// A Prober probes a link. See [topologies.Proxy].
type Prober struct {
	Link  topologies.Link
	Greet Greet
	// Open opens a connection through the link, as its caller would.
	Open func(ctx context.Context) (net.Conn, error)
}

// Probe sends the request, and returns how long it took from before the connection until the first byte of an answer.
func (p *Prober) Probe(ctx context.Context) (time.Duration, error) {
	start := time.Now()
	err := p.visit(ctx, p.Greet.ask)
	return time.Since(start), err
}

// ProbeBandwidth sends a PING with this many bytes, and returns how long it took until they were back. A server answers,
// and a sentinel does, where it asks for no password.
func (p *Prober) ProbeBandwidth(ctx context.Context, size int) (time.Duration, error) {
	start := time.Now()
	err := p.visit(ctx, func(c net.Conn) error {
		text := fmt.Sprintf("$%d\r\n%s\r\n", size, strings.Repeat("x", size))
		if _, err := io.WriteString(c, "*2\r\n$4\r\nPING\r\n"+text); err != nil {
			return err
		}
		_, err := io.ReadFull(c, make([]byte, len(text)))
		return err
	})
	return time.Since(start), err
}

// ProbeClose ends a connection after an answer, and returns how long it took until the server had ended it, too. A
// server that ends connections by itself once it answered is asked for nothing.
func (p *Prober) ProbeClose(ctx context.Context) (time.Duration, error) {
	var began time.Time
	err := p.visit(ctx, func(c net.Conn) error {
		if !p.Greet.Ends {
			if err := p.Greet.ask(c); err != nil {
				return err
			}
		}
		began = time.Now()
		if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil { //nolint:forcetypeassert // of TCP and of TLS
			return err
		}
		_, err := io.Copy(io.Discard, c)
		return err
	})
	return time.Since(began), err
}

// visit opens a connection for one purpose, until the context's deadline.
func (p *Prober) visit(ctx context.Context, purpose func(net.Conn) error) error {
	c, err := p.Open(ctx)
	if err == nil {
		defer c.Close()
		deadline, _ := ctx.Deadline() // else there is none
		err = c.SetDeadline(deadline)
	}
	if err == nil {
		err = purpose(c)
	}
	if err != nil {
		return fmt.Errorf("probe %s: %w", p.Link.Name(), err)
	}
	return nil
}

// The layout of a message of the cluster bus, as cluster.h of Redis has it: a
// header with the sender's name, slots and address, then as many gossip
// sections as it counts.
const (
	busHeader      = 2256 // its length
	busLength      = 4    // where the length of the whole message stands
	busVersion     = 8
	busSender      = 40
	busSenderBytes = 40
)

// busPing is a PING of the cluster bus without gossip, type 0, from a sender
// that no node knows. Redis answers with a PONG and learns nothing from it: of
// strangers, it listens to a MEET only.
func busPing() []byte {
	m := make([]byte, busHeader)
	copy(m, "RCmb")
	binary.BigEndian.PutUint32(m[busLength:], busHeader)
	binary.BigEndian.PutUint16(m[busVersion:], 1)
	for i := range busSenderBytes {
		m[busSender+i] = 'f'
	}
	return m
}
