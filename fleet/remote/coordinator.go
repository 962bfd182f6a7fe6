package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/lockchaos/lockchaos/driver"
)

// A Config says what the workers of a coordinator must be. All fields are required.
type Config struct {
	// Address is where the coordinator listens, as HOST:PORT.
	Address string
	Key     Key
	// Version is that of lockchaos, and Lock the name of the lock under test: both are those of each worker, too.
	Version, Lock string
	// Zones are those of clients, each of which gets a worker.
	Zones []string
	// Notice is told which worker joined, was refused, or was lost.
	Notice func(string)
}

// A Coordinator has the workers of runs that are made one after the other. [Listen] makes it, and its caller closes it.
type Coordinator struct {
	config  Config
	opened  time.Time
	server  *grpc.Server
	at      net.Addr
	served  sync.WaitGroup
	changed chan struct{} // told when a worker joined or left

	mu      sync.Mutex
	workers map[string]*worker // by their zones
	begun   bool
	refused int    // how many were
	over    string // why there is nothing to do any more
}

// Listen begins to take workers.
func Listen(c Config) (*Coordinator, error) {
	secret, err := c.Key.config()
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", c.Address) //nolint:noctx // it takes no time
	if err != nil {
		return nil, fmt.Errorf("listen for workers: %w", err)
	}
	o := &Coordinator{config: c, opened: time.Now(), at: listener.Addr(), changed: make(chan struct{}, 1), workers: map[string]*worker{}}
	o.server = grpc.NewServer(
		grpc.Creds(watchedTLS{credentials.NewTLS(secret), o}), grpc.ForceServerCodecV2(codec{}), grpc.ConnectionTimeout(silence),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: silence / 2, Timeout: silence / 2}),
	)
	joins, connects := *duplex(joinStream), *duplex(connectStream)
	joins.Handler = func(_ any, s grpc.ServerStream) error { return o.join(s) }
	connects.Handler = func(_ any, s grpc.ServerStream) error { return o.connect(s) }
	o.server.RegisterService(&grpc.ServiceDesc{ServiceName: service, HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{joins, connects}}, o)
	o.served.Go(func() { _ = o.server.Serve(listener) })
	return o, nil
}

// Address is where it listens.
func (o *Coordinator) Address() string { return o.at.String() }

// Await waits until each zone has its worker. From then on no other joins.
func (o *Coordinator) Await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, joinLimit)
	defer cancel()
	for {
		o.mu.Lock()
		missing := slices.DeleteFunc(slices.Clone(o.config.Zones), func(zone string) bool { return o.workers[zone] != nil })
		o.begun = len(missing) == 0
		o.mu.Unlock()
		if len(missing) == 0 {
			return nil
		}
		select {
		case <-o.changed:
		case <-ctx.Done():
			return fmt.Errorf("no worker joined for %s: %w", strings.Join(missing, " and "), ctx.Err())
		}
	}
}

// Close tells all workers why there is nothing more to do, and waits for their end a little.
func (o *Coordinator) Close(why string) {
	o.mu.Lock()
	o.over = why
	all := slices.Collect(maps.Values(o.workers))
	o.mu.Unlock()
	for _, w := range all {
		w.send(&message{Kind: bye, Text: why})
	}
	late := time.AfterFunc(silence, o.server.Stop)
	o.server.GracefulStop()
	late.Stop()
	o.served.Wait()
}

// of is the worker of a zone.
func (o *Coordinator) of(zone string) *worker {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.workers[zone]
}

// RoundTrip is how long a message to the worker of a zone and its answer took so far, on average.
func (o *Coordinator) RoundTrip(zone string) time.Duration {
	w := o.of(zone)
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.roundTrips / time.Duration(max(w.pongs, 1))
}

// Start has the worker of a zone start the driver, whose connections to addresses are dialled here. Where announced is set,
// servers tell clients of these addresses, so that the worker has to listen on them.
func (o *Coordinator) Start(zone string, addresses []string, announced bool, dial func(ctx context.Context, network, addr string) (net.Conn, error)) (*driver.Remote, error) {
	w := o.of(zone)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lost != nil {
		return nil, w.lost
	}
	w.started++
	p := &process{worker: w, number: w.started, addresses: addresses, dial: dial, ended: make(chan struct{})}
	p.next = message{Kind: start, Number: p.number, Addresses: addresses, Announced: announced}
	p.out, p.in = io.Pipe()
	w.process = p
	return &driver.Remote{In: p, Out: abandoned{p.out, p}, Wait: func() error {
		<-p.ended
		return p.why
	}}, nil
}

// A process is a driver that a worker has.
type process struct {
	worker    *worker
	number    int
	addresses []string
	dial      func(ctx context.Context, network, addr string) (net.Conn, error)
	next      message // that has the next line for it
	out       *io.PipeReader
	in        *io.PipeWriter // what it writes
	once      sync.Once
	ended     chan struct{}
	why       error
}

// Write sends the driver a line; the first starts it. That the worker is lost, the end of the process says.
func (p *process) Write(b []byte) (int, error) {
	p.worker.mu.Lock()
	m := p.next
	m.Line, p.next = b, message{Kind: line, Number: p.number}
	p.worker.mu.Unlock()
	p.worker.send(&m)
	return len(b), nil
}

// Close ends the driver's input. What it writes after that is not read.
func (p *process) Close() error {
	p.worker.send(&message{Kind: end, Number: p.number})
	return p.out.Close()
}

// end notes why there is nothing more of the driver.
func (p *process) end(why error) {
	p.once.Do(func() {
		p.why = why
		close(p.ended)
		_ = p.in.Close()
	})
}

// abandoned is what a driver writes, which is given up by its Close.
type abandoned struct {
	*io.PipeReader
	p *process
}

// Close gives the driver up.
func (a abandoned) Close() error {
	a.p.end(errors.New("it did not end"))
	return a.PipeReader.Close()
}

// A worker is the coordinator's end of one.
type worker struct {
	zone, host, id string
	stream         grpc.ServerStream
	from           net.Addr // its connection
	sending        sync.Mutex

	mu         sync.Mutex
	started    int      // how many drivers were
	process    *process // the latest
	lost       error
	heard      time.Duration // when its latest message came, since the coordinator was opened
	pongs      int
	roundTrips time.Duration // of all pongs together
}

// send sends a message. One that can't be sent is known by the end of the stream.
func (w *worker) send(m *message) {
	w.sending.Lock()
	defer w.sending.Unlock()
	_ = w.stream.SendMsg(m)
}

func (w *worker) String() string { return fmt.Sprintf("the worker of %s on %s", w.zone, w.host) }

// join is the life of a worker.
func (o *Coordinator) join(s grpc.ServerStream) error {
	from, _ := peer.FromContext(s.Context())
	m := new(message)
	err := s.RecvMsg(m)
	if err != nil {
		return o.refuse(from.Addr, err)
	}
	w, err := o.welcome(s, from.Addr, m)
	if err != nil {
		return o.refuse(from.Addr, err)
	}
	o.config.Notice(fmt.Sprintf("%s joined from %s", w, from.Addr))
	w.send(&message{Kind: welcome, Text: w.zone})
	go func() {
		for tick := time.NewTicker(pingPause); ; {
			select {
			case <-s.Context().Done():
				tick.Stop()
				return
			case <-tick.C:
				w.send(&message{Kind: ping, Sent: time.Since(o.opened)})
			}
		}
	}()
	for err == nil {
		m := new(message)
		if err = s.RecvMsg(m); err == nil {
			err = w.take(m, time.Since(o.opened))
		} else {
			err = w.how(err, time.Since(o.opened))
		}
	}
	o.leave(w, err)
	return status.Error(codes.Aborted, err.Error())
}

// welcome gives a worker its zone, or says why it gets none.
func (o *Coordinator) welcome(s grpc.ServerStream, from net.Addr, m *message) (*worker, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	zone, there := "", []string{}
	for _, name := range o.config.Zones {
		w := o.workers[name]
		switch {
		case w == nil && zone == "":
			zone = name
		case w != nil && w.id == m.ID:
			return nil, fmt.Errorf("it has joined already, for %s", name)
		case w != nil:
			there = append(there, w.String())
		}
	}
	switch {
	case m.Kind != join:
		return nil, fmt.Errorf("its first message was %q, and not %q", m.Kind, join)
	case m.Version != o.config.Version:
		return nil, fmt.Errorf("it is lockchaos %q, and the coordinator is %q: use the same on all machines", m.Version, o.config.Version)
	case m.Lock != o.config.Lock:
		return nil, fmt.Errorf("its lock is %q, and that of the run is %q: give both the same --lock", m.Lock, o.config.Lock)
	case o.over != "":
		return nil, errors.New(o.over)
	case zone == "" || o.begun:
		return nil, fmt.Errorf("the run has its workers: %s", strings.Join(there, ", "))
	}
	w := &worker{zone: zone, host: fmt.Sprintf("%q", m.Host), id: m.ID, stream: s, from: from, heard: time.Since(o.opened)}
	o.workers[zone] = w
	o.change()
	return w, nil
}

func (o *Coordinator) change() {
	select {
	case o.changed <- struct{}{}:
	default:
	}
}

// leave notes that a worker is gone. Before the run has begun, another may take its zone.
func (o *Coordinator) leave(w *worker, why error) {
	w.mu.Lock()
	w.lost = fmt.Errorf("%s is lost: %w", w, why)
	p := w.process
	w.mu.Unlock()
	if p != nil {
		p.end(w.lost)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.begun {
		delete(o.workers, w.zone)
		o.change()
	}
	if o.over == "" {
		o.config.Notice(w.lost.Error())
	}
}

// refuse tells both sides why a worker is refused: the coordinator of the first hundred.
func (o *Coordinator) refuse(from net.Addr, why error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.refused++; o.refused <= 100 {
		o.config.Notice(fmt.Sprintf("a worker at %s was refused: %v", from, why))
	}
	return status.Error(codes.FailedPrecondition, why.Error())
}

// how is how a worker was lost whose stream ended with an error. One that hangs, gRPC gives up.
func (w *worker) how(err error, now time.Duration) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch quiet := now - w.heard; {
	case quiet > silence/2:
		return fmt.Errorf("it said nothing for %v", quiet.Round(100*time.Millisecond))
	case errors.Is(err, io.EOF), status.Code(err) == codes.Canceled:
		return errors.New("its connection ended")
	default:
		return fmt.Errorf("its connection ended: %s", status.Convert(err).Message())
	}
}

// take takes a message, so long after the coordinator was opened. Its error says what was wrong with it.
func (w *worker) take(m *message, now time.Duration) error {
	w.mu.Lock()
	p, latest := w.process, w.started
	w.heard = now
	if m.Kind == pong {
		defer w.mu.Unlock()
		if m.Sent <= 0 || m.Sent > now {
			return errors.New("it answered a ping that was not sent")
		}
		w.pongs++
		w.roundTrips += now - m.Sent
		return nil
	}
	w.mu.Unlock()
	switch {
	case m.Number < 1 || m.Number > latest:
		return fmt.Errorf("it sent %q of a driver that it was not asked for", m.Kind)
	case m.Number < latest: // it was given up
	case m.Kind == line:
		_, _ = p.in.Write(append(m.Line, '\n')) // which fails where the driver is not used any more
	case m.Kind == exit:
		p.end(errors.New(m.Text))
	default:
		return fmt.Errorf("it sent a message of kind %q", m.Kind)
	}
	return nil
}

// connect passes a connection of a driver on to a server, over the links of its zone. It is that of the worker that has the
// same connection.
func (o *Coordinator) connect(s grpc.ServerStream) error {
	md, _ := metadata.FromIncomingContext(s.Context())
	from, _ := peer.FromContext(s.Context())
	address := strings.Join(md.Get(addressKey), "")
	for _, zone := range o.config.Zones {
		w := o.of(zone)
		if w == nil || w.from.String() != from.Addr.String() {
			continue
		}
		w.mu.Lock()
		p := w.process
		w.mu.Unlock()
		if p == nil || !slices.Contains(p.addresses, address) {
			break
		}
		conn, err := p.dial(s.Context(), "tcp", address)
		if err != nil {
			return status.Error(codes.Unavailable, err.Error())
		}
		defer conn.Close()
		if _, err = pump(conn, s); err != nil {
			return status.Error(codes.Aborted, err.Error())
		}
		return nil
	}
	return status.Error(codes.PermissionDenied, "no server of this worker's run has this address")
}

// watchedTLS tells of connections without a certificate of the key.
type watchedTLS struct {
	credentials.TransportCredentials
	o *Coordinator
}

// ServerHandshake shakes hands, or tells why not.
func (t watchedTLS) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secret, info, err := t.TransportCredentials.ServerHandshake(conn)
	if err != nil && !errors.Is(err, io.EOF) { // which is a port that was only looked at
		_ = t.o.refuse(conn.RemoteAddr(), fmt.Errorf("it showed no certificate of the coordinator's key file: %w", err))
	}
	return secret, info, err
}

// Clone copies it.
func (t watchedTLS) Clone() credentials.TransportCredentials {
	return watchedTLS{t.TransportCredentials.Clone(), t.o}
}
