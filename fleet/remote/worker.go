package remote

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/lockchaos/lockchaos/driver"
)

// A WorkerConfig says what a worker is. All fields are required.
type WorkerConfig struct {
	// Address is where the coordinator listens, as HOST:PORT.
	Address string
	Key     Key
	// Version is that of lockchaos, Lock the name of the lock under test, and Command starts its driver.
	Version, Lock string
	Command       []string
	// Log gets what the driver logs, and Say is told what the worker does.
	Log io.Writer
	Say func(string)
}

// ErrRefused says that the coordinator does not take this worker, or is none of this key.
var ErrRefused = errors.New("this worker was refused")

// Join is a worker until the coordinator says that there is nothing more to do. It waits for a coordinator that does not
// listen yet. What it started has ended when it returns.
func Join(ctx context.Context, c WorkerConfig) error {
	secret, err := c.Key.config()
	if err != nil {
		return err
	}
	j := &joined{WorkerConfig: c, id: rand.Text()}
	limit, told := time.Now().Add(joinLimit), false
	for {
		err := j.try(ctx, secret)
		switch why := status.Convert(err).Message(); {
		case err == nil, ctx.Err() != nil:
			return context.Cause(ctx)
		case j.zone != "":
			return fmt.Errorf("the coordinator at %s is lost: %s", c.Address, why)
		case status.Code(err) == codes.FailedPrecondition:
			return fmt.Errorf("%w: %s", ErrRefused, why)
		case strings.Contains(why, "handshake failed: tls: "):
			return fmt.Errorf("%w: what listens at %s has no certificate of this key file: use the same on all machines: %s", ErrRefused, c.Address, why)
		case time.Now().After(limit):
			return fmt.Errorf("no coordinator at %s for %v: %s", c.Address, joinLimit, why)
		case !told:
			told = true
			c.Say(fmt.Sprintf("waiting for the coordinator at %s: %s", c.Address, why))
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}

// joined is the worker's end of its stream.
type joined struct {
	WorkerConfig

	id, zone string // it has no zone before it is welcome
	conn     *grpc.ClientConn
	sending  sync.Mutex
	stream   grpc.ClientStream
	drivers  sync.WaitGroup
	latest   *started
}

// try joins, and does what it is told.
func (j *joined) try(ctx context.Context, secret *tls.Config) (err error) {
	j.conn, err = grpc.NewClient("passthrough:///"+j.Address, grpc.WithTransportCredentials(credentials.NewTLS(secret)),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec{})), grpc.WithNoProxy())
	if err != nil {
		return err
	}
	defer j.conn.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer j.drivers.Wait()
	defer cancel(nil)
	alive := time.AfterFunc(patience, func() { cancel(fmt.Errorf("it said nothing for %v", patience)) })
	defer alive.Stop()
	if j.stream, err = j.conn.NewStream(ctx, duplex(joinStream), "/"+service+"/"+joinStream); err != nil {
		return err
	}
	host, _ := os.Hostname()
	j.send(&message{Kind: join, Version: j.Version, Lock: j.Lock, Host: host, ID: j.id})
	for {
		m := new(message)
		if err := j.stream.RecvMsg(m); err != nil {
			if cause := context.Cause(ctx); cause != nil {
				return cause
			}
			return err
		}
		alive.Reset(patience)
		switch m.Kind {
		case welcome:
			j.zone = m.Text
			j.Say(fmt.Sprintf("joined %s: the clients of %s are here", j.Address, j.zone))
		case ping:
			j.send(&message{Kind: pong, Sent: m.Sent})
		case start:
			j.start(ctx, m)
		case line, end:
			j.latest.do(m)
		case bye:
			j.Say("the end: " + m.Text)
			return nil
		}
	}
}

// send sends a message. One that can't be sent is known by the end of the stream.
func (j *joined) send(m *message) {
	j.sending.Lock()
	defer j.sending.Unlock()
	_ = j.stream.SendMsg(m)
}

// A started driver is one of this worker.
type started struct {
	number int
	end    func()
	ready  chan struct{} // closed when there is a driver, or none
	driver *driver.Driver
	gone   chan struct{}
}

// do passes a line on, or ends the driver.
func (s *started) do(m *message) {
	switch {
	case s == nil || s.number != m.Number:
	case m.Kind == end:
		s.end()
	default:
		if <-s.ready; s.driver != nil {
			s.driver.Pass(m.Line)
		}
	}
}

// start starts a driver once the one before has ended.
func (j *joined) start(ctx context.Context, m *message) {
	before, s := j.latest, &started{number: m.Number, ready: make(chan struct{}), gone: make(chan struct{})}
	j.latest = s
	ctx, s.end = context.WithCancel(ctx)
	j.drivers.Go(func() {
		if before != nil {
			<-before.gone
		}
		j.Say(fmt.Sprintf("run %d: the driver starts", m.Number))
		text := "it ended"
		if err := j.drive(ctx, s, m); err != nil {
			text = strings.TrimPrefix(err.Error(), driver.ErrBroken.Error()+": ")
		}
		s.end()
		j.Say(fmt.Sprintf("run %d: the driver: %s", m.Number, text))
		j.send(&message{Kind: exit, Number: m.Number, Text: text})
	})
}

// drive runs a driver until ctx ends, and says how it broke; nil if it did not.
func (j *joined) drive(ctx context.Context, s *started, m *message) error {
	defer close(s.gone)
	ready := sync.OnceFunc(func() { close(s.ready) })
	defer ready()
	connecting, stop := context.WithCancel(context.WithoutCancel(ctx)) // also while the driver ends
	var open sync.WaitGroup
	defer open.Wait()
	defer stop()
	here := map[string]string{} // where each server is found
	for _, address := range m.Addresses {
		var config net.ListenConfig
		at, err := config.Listen(ctx, "tcp", address)
		if err != nil && !m.Announced {
			at, err = config.Listen(ctx, "tcp", "127.0.0.1:0")
		}
		if err != nil {
			return fmt.Errorf("it was not started: the servers tell clients of the address %s, and this machine can't listen there: %w: "+
				"a worker on this topology needs --backend process, and Linux on a machine, or in a network namespace, of its own", address, err)
		}
		here[address] = at.Addr().String()
		context.AfterFunc(connecting, func() { _ = at.Close() })
		open.Go(func() {
			for {
				conn, err := at.Accept()
				if errors.Is(err, net.ErrClosed) {
					return
				}
				if err == nil {
					open.Go(func() { j.connect(connecting, conn, address) })
				}
			}
		})
	}
	d, err := driver.Relay(ctx, driver.Config{Command: j.Command, Name: j.Lock, Log: j.Log}, m.Line,
		func(address string) string { return here[address] },
		func(b []byte) { j.send(&message{Kind: line, Number: m.Number, Line: b}) })
	if err != nil {
		return err
	}
	s.driver = d
	ready()
	select {
	case <-ctx.Done():
	case <-d.Done():
	}
	err = d.Close() //nolint:contextcheck // an end bounds itself
	if d.Killed() {
		err = errors.Join(errors.New("it did not exit at the end of its input, and was killed"), err)
	}
	return errors.Join(d.Err(), err)
}

// connect passes a connection of a driver on.
func (j *joined) connect(ctx context.Context, conn net.Conn, address string) {
	defer conn.Close()
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(ctx, addressKey, address))
	defer cancel()
	s, err := j.conn.NewStream(ctx, duplex(connectStream), "/"+service+"/"+connectStream)
	if err != nil {
		return
	}
	if received, err := pump(conn, s); err == nil && s.CloseSend() == nil { // else the stream is given up
		<-received
	}
}
