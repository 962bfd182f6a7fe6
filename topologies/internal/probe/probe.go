// Package probe asks the party behind a link for a sign of life, in the
// language of the link.
package probe

import (
	"context"
	"encoding/binary"
	"net"

	"github.com/lockchaos/lockchaos/topologies"
)

// Key begins the names of the keys that are written to find out whether a deployment is ready.
const Key = "lockchaos:ready"

// Ask sends a request over a fresh connection and waits for the first byte of
// its answer, until the context's deadline. What the answer says does not
// matter: a server that asks for a password lives as well.
func Ask(ctx context.Context, c net.Conn, kind topologies.LinkKind) error {
	return Send(ctx, c, Greeting(kind))
}

// A Greet is how a server is asked for a sign of life.
type Greet struct {
	// Request is harmless, and replied to at once.
	Request []byte
	// OfClients says that it is sent to the port of clients, over whatever link: the
	// port behind that link has no request that does no harm.
	OfClients bool
	// Ends says that the server ends the connection after its reply.
	Ends bool
}

// Greeting is the request that Redis and its sentinels answer on a link of that kind.
func Greeting(kind topologies.LinkKind) []byte {
	if kind == topologies.Bus {
		return busPing()
	}
	return []byte("PING\r\n") // Redis and Sentinel both answer
}

// Send is [Ask] with a request of the caller's.
func Send(ctx context.Context, c net.Conn, request []byte) error {
	if deadline, ok := ctx.Deadline(); ok {
		if err := c.SetDeadline(deadline); err != nil {
			return err
		}
	}
	if _, err := c.Write(request); err != nil {
		return err
	}
	_, err := c.Read(make([]byte, 1))
	return err
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
