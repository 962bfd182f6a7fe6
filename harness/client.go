package harness

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/spawn"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/workload"
	"github.com/lockchaos/lockchaos/workload/worker"
)

// A Client is a client of a script: a [workload.Client], or a process of its own
// that has one.
type Client interface {
	Do(ctx context.Context, a workload.Act, r workload.Resource) (history.Type, error)
	Holding() bool
	Owner() string
}

// Client opens a client of a script in a zone, in a process of its own if it is to be
// apart.
func (st *Session) Client(ctx context.Context, name, zone string, apart bool) (Client, error) {
	if st.run.Clients == nil {
		st.run.Clients = map[string]string{}
	}
	st.run.Clients[name] = zone
	if apart {
		return st.worker(ctx, name, zone)
	}
	locker, err := st.locker(zone)
	if err != nil {
		return nil, err
	}
	c := &watched{Client: st.NewClient(name, locker), ended: make(chan struct{})} // what it does when is the script's business
	c.Granted = st.grants.in(zone)
	st.closers = append(st.closers, func() {
		close(c.ended)
		c.watching.Wait()
	})
	return c, nil
}

// A watched client records that it lost a hold which no lease ends at the moment at which
// it is told, whatever the script does then: nothing else in the history says until when
// it believed in it. Do and AwaitLost exclude each other.
type watched struct {
	workload.Client

	mu       sync.Mutex
	ended    chan struct{}
	watching sync.WaitGroup
}

// Do is that of [workload.Client].
func (c *watched) Do(ctx context.Context, a workload.Act, r workload.Resource) (history.Type, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	outcome, err := c.Client.Do(ctx, a, r)
	if lost := c.LostUnleased(); lost != nil && a.Do == workload.DoAsk {
		c.watching.Go(func() { c.watch(lost) })
	}
	return outcome, err
}

// watch notices that the hold is lost, unless it is released before.
func (c *watched) watch(lost <-chan struct{}) {
	select {
	case <-lost:
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.LostUnleased() == lost {
			c.NoticeLost()
		}
	case <-c.ended:
	}
}

// AwaitLost waits until the client is told that it lost what it was granted last.
func (c *watched) AwaitLost(ctx context.Context) error {
	c.mu.Lock()
	lost := c.Lost()
	c.mu.Unlock()
	if lost == nil {
		return errors.New("it was granted nothing that it could lose")
	}
	select {
	case <-lost:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.NoticeLost()
		return nil
	case <-ctx.Done():
		return fmt.Errorf("it was not told that it lost its hold: %w", context.Cause(ctx))
	}
}

// WorkerCommand is the subcommand by which the program that runs a scenario
// becomes the process of one of its clients: it calls [ServeWorker].
const WorkerCommand = "scenario-client"

// worker starts a client as a process of its own.
func (st *Session) worker(ctx context.Context, name, zone string) (Client, error) {
	options := st.deployment.ClientOptions(zone)
	if st.retries > 0 {
		options.MaxRetries = st.retries
	}
	source, err := sourceOf(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("start client %s: %w", name, err)
	}
	path, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start client %s: %w", name, err)
	}
	complaints, err := os.Create(history.Dir(st.Dir).Path(history.LogsDir, "client-"+name+".log"))
	if err != nil {
		return nil, fmt.Errorf("start client %s: %w", name, err)
	}
	st.closers = append(st.closers, func() { _ = complaints.Close() })
	at := PlaceIn(st.deployment, zone)
	setup := workerSetup{
		Lock: st.lock.Name, LockOptions: st.options, Permits: st.options.Permits, Place: at, Addresses: options.Addrs,
		Cluster: options.IsClusterMode, Source: source, Retries: options.MaxRetries, PoolSize: options.PoolSize,
	}
	var adopt func(group int) error
	if st.lock.Connects {
		if setup.Temp, err = os.MkdirTemp("", "lockchaos-client-"); err != nil { // it outlives a client that is killed
			return nil, fmt.Errorf("start client %s: %w", name, err)
		}
		st.closers = append(st.closers, func() { _ = os.RemoveAll(setup.Temp) })
		adopt = func(group int) error {
			end, err := at.Adopt(group)
			if err == nil {
				st.closers = append(st.closers, func() {
					end()
					_ = spawn.Kill(group) // what the driver started, and has left
				})
			}
			return err
		}
	}
	w, err := worker.Start(ctx, worker.Config{
		Name: name, Path: path, Args: []string{WorkerCommand}, Setup: setup, Started: adopt,
		Recorder: st.recorder, Processes: &st.processes, NodeName: st.deployment.NodeAt, Stderr: complaints,
	})
	if err != nil {
		return nil, err
	}
	st.closers = append(st.closers, func() {
		if err := w.Died(); err != nil {
			st.run.AbortReason = cmp.Or(st.run.AbortReason, err.Error())
		}
		if err := w.Close(); err != nil {
			st.Log.WarnContext(ctx, "a client did not end by itself", "client", name, "error", err)
		}
		if err := w.Exit(); err != nil && st.lock.Connects {
			st.run.DriverFault = cmp.Or(st.run.DriverFault, fmt.Sprintf("the driver of client %s broke the protocol, or left requests without an answer: logs/client-%s.log says more", name, name))
		}
	})
	if st.apart == nil {
		st.apart = map[string]faults.ClientProcess{}
	}
	st.apart[name] = w
	return w, nil
}

// sourceOf is the address that clients with these options dial from.
func sourceOf(ctx context.Context, o *redis.UniversalOptions) (net.IP, error) {
	conn, err := o.Dialer(ctx, "tcp", o.Addrs[0])
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	at, ok := conn.LocalAddr().(*net.TCPAddr)
	if !ok {
		return nil, fmt.Errorf("it dials from %v, which is no address of TCP", conn.LocalAddr())
	}
	return at.IP, nil
}

// A workerSetup is what a client's process makes its lock of: the client
// options of its zone, as far as our own servers have them.
type workerSetup struct {
	LockOptions
	Place

	Lock      string
	Permits   int
	Addresses []string
	Cluster   bool
	Source    net.IP // which it dials from
	Retries   int
	PoolSize  int
}

// ServeWorker is the process of a client of a scenario: it is told on in what to
// do, and answers on out, until in ends. Its lock is one of locks.
func ServeWorker(ctx context.Context, in io.Reader, out io.Writer, locks Locks) error {
	var doubt error                                                                                               // noted before the lock is closed
	err := worker.Serve(ctx, in, out, func(setup json.RawMessage, o lock.Observer) (lock.Locker, func(), error) { //nolint:contextcheck // a driver bounds its own start
		var s workerSetup
		if err := json.Unmarshal(setup, &s); err != nil {
			return nil, nil, fmt.Errorf("read setup: %w", err)
		}
		l, err := locks.ByName(s.Lock)
		if err != nil {
			return nil, nil, err
		}
		return s.open(l, o, func(why string) { doubt = errors.New(why) })
	})
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return errors.Join(err, doubt)
}

func (s workerSetup) open(l LockSpec, observer lock.Observer, doubt func(why string)) (lock.Locker, func(), error) {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: s.Source}, Timeout: s.Timeout}
	o, at := s.LockOptions, s.Place
	at.Dial, at.Joins, at.MarkInconclusive, at.Broken = dialer.DialContext, true, doubt, doubt
	at.Adopt = func(int) (func(), error) { return func() {}, nil } // it is of our group, which was adopted
	at.Log = func() (io.WriteCloser, error) { return discard{os.Stderr}, nil }
	o.Permits, o.Observer, o.At = s.Permits, observer, &at
	options := topologies.OnceOptions(s.Timeout)
	options.Addrs, options.MasterName, options.IsClusterMode, options.Dialer = s.Addresses, s.Master, s.Cluster, dialer.DialContext
	options.MaxRetries, options.PoolSize = s.Retries, s.PoolSize
	return l.Connect(l.Begin(), options, o)
}
