// Package remote has the clients of one run on several machines.
//
// The [Coordinator] makes the run: it has the servers, the links and the history. A worker ([Join]) starts the driver of
// the lock for the clients of one zone, and passes lines between that and the coordinator, which stamps each of them
// before it sends it and after it received it: the history has one clock, and no clock of a worker counts. The connections
// of the driver to the servers go to listeners of its worker, and from there over the links of its zone.
//
// Both speak gRPC with mutual TLS, of a [Key]. A worker is one connection, with a stream of messages, and one
// of bytes for each connection of its driver.
package remote

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
)

const (
	service       = "lockchaos"
	joinStream    = "Join"
	connectStream = "Connect"
	addressKey    = "lockchaos-address" // of the metadata of a connection
	// pingPause is the time between two pings of a worker.
	pingPause = 250 * time.Millisecond
	// silence is how long a worker may say nothing until it is lost, and patience how long the coordinator may.
	silence, patience = 5 * time.Second, 10 * time.Second
	// joinLimit is how long the coordinator waits for its workers, and they for it.
	joinLimit = 10 * time.Minute
)

// The kinds of messages: those of a worker, of both, and of the coordinator.
const (
	join    = "join"
	pong    = "pong"
	exit    = "exit" // of the driver
	line    = "line" // for the driver, or of it
	welcome = "welcome"
	ping    = "ping"
	start   = "start" // a driver
	end     = "end"   // of the driver's input
	bye     = "bye"
)

// A message is what coordinator and worker say to each other.
type message struct {
	Kind string
	// Number is that of the driver that it is about: one has ended before the next begins.
	Number int `json:",omitempty"`
	// Sent is when a ping was sent, since the coordinator was opened.
	Sent time.Duration `json:",omitempty"`
	// Line is one of the driver protocol, and Text a sentence or a name.
	Line []byte `json:",omitempty"`
	Text string `json:",omitempty"`
	// Of join. ID is a name that no other worker has.
	Version, Lock, Host, ID string `json:",omitempty"`
	// Of start: where clients know the servers. Announced says that the servers tell clients of these addresses.
	Addresses []string `json:",omitempty"`
	Announced bool     `json:",omitempty"`
}

// duplex is what both streams are.
func duplex(name string) *grpc.StreamDesc {
	return &grpc.StreamDesc{StreamName: name, ServerStreams: true, ClientStreams: true}
}

// codec has messages as JSON and bytes as they are.
type codec struct{}

// Name is that of the content type.
func (codec) Name() string { return service }

// Marshal encodes a *message or a []byte.
func (codec) Marshal(v any) (mem.BufferSlice, error) {
	b, raw := v.([]byte)
	var err error
	if !raw {
		b, err = json.Marshal(v)
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}, err
}

// Unmarshal decodes into a *message or a *[]byte.
func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	if b, raw := v.(*[]byte); raw {
		*b = data.Materialize()
		return nil
	}
	return json.Unmarshal(data.Materialize(), v)
}

// A stream is either end of one.
type stream interface {
	SendMsg(v any) error
	RecvMsg(v any) error
}

// pump passes bytes between a connection and a stream. It returns when the connection has ended; that is an error unless
// it was in order. received is closed when the stream has ended, which ends the connection in the same way.
func pump(conn net.Conn, s stream) (received <-chan struct{}, err error) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		for {
			var b []byte
			err := s.RecvMsg(&b)
			if err == nil {
				_, err = conn.Write(b)
			}
			if tcp, ok := conn.(*net.TCPConn); ok && err != nil && !errors.Is(err, io.EOF) {
				_ = tcp.SetLinger(0) // its peer sees a reset, and no end
			}
			if err != nil {
				_ = conn.Close()
				return
			}
		}
	}()
	for buffer := make([]byte, 32<<10); ; {
		n, err := conn.Read(buffer)
		if n > 0 && s.SendMsg(slices.Clone(buffer[:n])) != nil {
			err = io.EOF // the stream has ended
		}
		switch {
		case errors.Is(err, io.EOF):
			return over, nil
		case err != nil:
			return over, fmt.Errorf("a connection ended: %w", err)
		}
	}
}
