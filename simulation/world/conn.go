package world

import (
	"fmt"
	"hash/maphash"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/lockchaos/lockchaos/simulation/simredis"
)

// A conn is a client's connection to a server, with the server's side of it.
type conn struct {
	w        *World
	zone     *Zone
	node     *Node
	up, down *pipe
	cond     *sync.Cond // of the world's mutex: there is something to read, or never will be

	// The client's side.
	begun    []byte // a request of which more is to come
	received []byte
	failed   error // what reads end with once all was read
	closed   bool
	deadline time.Time
	alarm    *time.Timer // at the deadline

	// The server's side.
	session *simredis.Session
	gone    bool          // reset, or closed by the client and noticed
	silent  bool          // replies are lost from now on
	prompt  bool          // replies arrive at once
	inside  bool          // and so do requests: see [Node.Inside]
	late    time.Duration // by which the next reply is
}

// Write sends a request.
func (c *conn) Write(b []byte) (int, error) {
	more := c.zone.still()
	if more > 0 && !c.mayLock(b) {
		time.Sleep(more) // in virtual time: the client stands still for so long
		more = 0
	}
	w := c.w
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case c.closed:
		return 0, net.ErrClosed
	case c.gone:
		return 0, &net.OpError{Op: "write", Net: "tcp", Err: os.NewSyscallError("write", syscall.EPIPE)}
	}
	c.begun = append(c.begun, b...)
	requests, n, err := simredis.Parse(string(c.begun))
	switch {
	case err != nil:
		return 0, fmt.Errorf("a simulated server takes no such request: %w", err)
	case n < len(c.begun): // a client writes what is longer than its buffer in parts, at one instant
		return len(b), nil
	}
	link := w.link(c.up.link)
	before := len(link.sent)
	link.sent[maphash.Bytes(requestHash, c.begun)] = struct{}{}
	fresh := len(link.sent) > before
	c.begun = c.begun[:0]
	names := commands(requests)
	if c.inside || c.node == w.sentinel || onlyOf(names, greetings) || c.inquires(names) {
		w.counts.Messages++
		c.prompt = true
		c.serve(requests)
		c.prompt = false
		return len(b), nil
	}
	w.sent = append(w.sent, sent{w.now(), c.up.link, requests})
	struck := w.requested(c.up.link, names, fresh)
	var late time.Duration
	lost, mute := false, false
	var again []time.Duration
	for _, f := range struck {
		switch f.Name {
		case DelayCommand:
			more += f.By
		case DelayReply:
			late += f.By
		case DropCommand:
			lost = true
		case DropReply:
			mute = true
		case RepeatCommand:
			again = append(again, f.By)
		}
	}
	c.up.send(more, func() {
		switch {
		case c.gone || c.node.down:
			return
		case lost:
			c.reset()
			return
		}
		c.silent = c.silent || mute
		c.late += late
		c.serve(requests)
		for _, later := range again {
			// On a connection of its own, so much later than the first copy arrived, and without a reader of the
			// reply. It is closed after a time in which a server has answered.
			copied := c.zone.connect(c.node)
			copied.closed = true // by the client, as far as replies go
			copied.up.send(later, func() {
				if !copied.gone && !copied.node.down {
					copied.serve(requests)
				}
			})
			copied.up.send(later+time.Second, copied.leave)
		}
		if mute {
			c.reset()
		}
	})
	return len(b), nil
}

// mayLock reports whether go-redis may send a request with a mutex locked: one of a
// subscription, of a greeting, to a sentinel, or about a cluster. If the process stands still, such a
// request is sent later, and the goroutine goes on until it waits for the reply. If it slept here, and
// another goroutine waited for the mutex, time would stand still in the bubble.
func (c *conn) mayLock(b []byte) bool {
	requests, _, err := simredis.Parse(string(b))
	return err == nil && len(requests) > 0 && (c.node == c.w.sentinel || !slices.ContainsFunc(commands(requests), func(name string) bool {
		return !slices.Contains(greetings, name) && !slices.Contains(inquiries, name) && !strings.HasSuffix(name, "SUBSCRIBE") && name != "PING"
	}))
}

// Commands that a client sends before the first request of its user, and those that ask what there is to
// know of a cluster.
//
//nolint:gochecknoglobals // constants
var (
	greetings = []string{"HELLO", "CLIENT", "AUTH", "SELECT", "READONLY"}
	inquiries = []string{"COMMAND", "CLUSTER"}
)

// commands are the names of those in a request, in upper case.
func commands(requests [][]string) []string {
	all := make([]string, len(requests))
	for i, args := range requests {
		all[i] = strings.ToUpper(args[0])
	}
	return all
}

// onlyOf reports whether there are names, all of which are among some.
func onlyOf(names, some []string) bool {
	return len(names) > 0 && !slices.ContainsFunc(names, func(name string) bool { return !slices.Contains(some, name) })
}

// inquires reports whether a request only asks what there is to know of a cluster, and
// nothing holds the answer up: go-redis may wait for it with a mutex locked.
func (c *conn) inquires(names []string) bool {
	return onlyOf(names, inquiries) && (!slices.Contains(names, "CLUSTER") ||
		len(c.up.queue)+len(c.down.queue) == 0 && max(c.w.heldUntil(c.up), c.w.heldUntil(c.down)) <= c.w.now())
}

// serve has the server carry out a request.
func (c *conn) serve(requests [][]string) {
	c.w.counts.Requests++
	c.session.Take(requests)
	if c.session.Closed() {
		c.reset()
	}
}

// reply sends to the client what the server has for it.
func (c *conn) reply(b []byte) {
	if c.gone || c.silent || len(b) == 0 {
		return
	}
	b = slices.Clone(b)
	if c.prompt {
		c.w.counts.Messages++
		c.arrive(b)
		return
	}
	late := c.late
	c.late = 0
	c.down.send(late, func() {
		if !c.closed && !c.gone {
			c.arrive(b)
		}
	})
}

// arrive makes data readable.
func (c *conn) arrive(b []byte) {
	c.received = append(c.received, b...)
	c.cond.Broadcast()
}

// reset ends the connection for both sides at once.
func (c *conn) reset() {
	if c.gone {
		return
	}
	c.leave()
	if c.failed == nil {
		c.failed = &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
	}
	c.cond.Broadcast()
}

// leave ends the server's side.
func (c *conn) leave() {
	c.gone = true
	c.node.conns = slices.DeleteFunc(slices.Clone(c.node.conns), func(o *conn) bool { return o == c })
	c.session.Close()
}

// Read waits for replies until the deadline.
func (c *conn) Read(b []byte) (int, error) {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	for {
		switch {
		case c.closed:
			return 0, net.ErrClosed
		case len(c.received) > 0:
			n := copy(b, c.received)
			c.received = c.received[n:]
			return n, nil
		case c.failed != nil:
			return 0, c.failed
		case !c.deadline.IsZero() && !time.Now().Before(c.deadline):
			return 0, &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}
		}
		c.cond.Wait()
	}
}

// Close ends the client's side. What was sent still arrives; then the server learns of
// the end.
func (c *conn) Close() error {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	c.close()
	return nil
}

// close ends the client's side.
func (c *conn) close() {
	c.closed = true
	if c.alarm != nil {
		c.alarm.Stop()
	}
	c.cond.Broadcast()
	if !c.gone {
		c.up.send(0, c.leave)
	}
}

// SetReadDeadline bounds reads.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.deadline = t
	if t.IsZero() {
		if c.alarm != nil {
			c.alarm.Stop()
		}
		return nil
	}
	// At an instant of its own, behind the end of the context that the client took the
	// deadline from: of two timers at one instant the runtime runs either one first.
	in := c.w.unique(t.Sub(c.w.begin)+1) - c.w.now()
	if c.alarm != nil {
		c.alarm.Reset(in)
		return nil
	}
	c.alarm = time.AfterFunc(in, func() {
		c.w.mu.Lock()
		defer c.w.mu.Unlock()
		c.cond.Broadcast()
	})
	return nil
}

// SetDeadline bounds reads: writes never wait.
func (c *conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// SetWriteDeadline does nothing: writes never wait.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

// LocalAddr is an address of the client.
func (c *conn) LocalAddr() net.Addr { return address("10.1.0.1:1") }

// RemoteAddr is the server's address.
func (c *conn) RemoteAddr() net.Addr { return address(c.node.address) }

type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }
