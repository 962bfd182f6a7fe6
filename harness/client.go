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
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/driver"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/workload"
	"github.com/lockchaos/lockchaos/workload/worker"
)

// A Client is a client of a script: a [workload.Client], or a process of its own
// that has one.
type Client interface {
	Acquire(ctx context.Context, name string, lease, wait time.Duration) history.Type
	Extend(ctx context.Context, d time.Duration) history.Type
	Release(ctx context.Context) history.Type
	Read(ctx context.Context, name string, r workload.Resource) error
	Write(ctx context.Context, name string, r workload.Resource) history.Type
	Holding() bool
	Owner() string
}

// Client opens a client of a script in a zone, in a process of its own if it is to be
// apart.
func (st *Session) Client(ctx context.Context, name, zone string, apart bool) (Client, error) {
	if apart {
		return st.worker(ctx, name, zone)
	}
	locker, err := st.locker(zone)
	if err != nil {
		return nil, err
	}
	c := st.NewClient(name, locker) // what it does when is the script's business
	return &c, nil
}

// WorkerCommand is the subcommand by which the program that runs a scenario
// becomes the process of one of its clients: it calls [ServeWorker].
const WorkerCommand = "worker"

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
	w, err := worker.Start(ctx, worker.Config{
		Name: name, Path: path, Args: []string{WorkerCommand},
		Setup: workerSetup{
			Lock: st.lock.Name, ReplicaAcks: st.options.ReplicaAcks, Watchdog: st.options.Watchdog,
			Zone: zone, Addresses: options.Addrs, MasterName: options.MasterName, Cluster: options.IsClusterMode,
			Source: source, Retries: options.MaxRetries, PoolSize: options.PoolSize, Timeout: options.ReadTimeout,
		},
		Recorder: st.recorder, Processes: &st.processes, NodeName: st.deployment.NodeAt, Stderr: complaints,
	})
	if err != nil {
		return nil, err
	}
	st.closers = append(st.closers, func() {
		if err := w.Died(); err != nil {
			st.run.Unmet = cmp.Or(st.run.Unmet, err.Error())
		}
		if err := w.Close(); err != nil {
			st.Log.WarnContext(ctx, "a client did not end by itself", "client", name, "error", err)
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
	Lock        string
	ReplicaAcks int
	Watchdog    time.Duration
	Zone        string
	Addresses   []string
	MasterName  string
	Cluster     bool
	Source      net.IP // which it dials from
	Retries     int
	PoolSize    int
	Timeout     time.Duration
}

// ServeWorker is the process of a client of a scenario: it is told on in what to
// do, and answers on out, until in ends. Its lock is one of locks.
func ServeWorker(ctx context.Context, in io.Reader, out io.Writer, locks Locks) error {
	err := worker.Serve(ctx, in, out, func(setup json.RawMessage, o lock.Observer) (lock.Locker, func(), error) { //nolint:contextcheck // a driver bounds its own start
		var s workerSetup
		if err := json.Unmarshal(setup, &s); err != nil {
			return nil, nil, fmt.Errorf("read setup: %w", err)
		}
		l, err := locks.ByName(s.Lock)
		if err != nil {
			return nil, nil, err
		}
		return s.open(l, o)
	})
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func (s workerSetup) open(l LockSpec, observer lock.Observer) (lock.Locker, func(), error) {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: s.Source}, Timeout: s.Timeout}
	o := LockOptions{ReplicaAcks: s.ReplicaAcks, Watchdog: s.Watchdog, Observer: observer}
	if !l.onRedis() {
		o.At = &Place{Zone: s.Zone, Timeout: s.Timeout, Dial: dialer.DialContext}
		for _, address := range s.Addresses {
			o.At.Servers = append(o.At.Servers, driver.Server{Name: address, Kind: l.Store, Addr: address})
		}
		return l.Open(nil, o)
	}
	servers := topologies.Clients(&redis.UniversalOptions{
		Addrs: s.Addresses, MasterName: s.MasterName, IsClusterMode: s.Cluster, Dialer: dialer.DialContext,
		MaxRetries: s.Retries, DialerRetries: 1, PoolSize: s.PoolSize,
		DialTimeout: s.Timeout, ReadTimeout: s.Timeout, WriteTimeout: s.Timeout, ContextTimeoutEnabled: true,
		DisableIdentity: true, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	locker, closeLocker, err := l.Open(servers, o)
	if err != nil {
		return nil, nil, err
	}
	return locker, func() {
		closeLocker()
		for _, rdb := range servers {
			_ = rdb.Close()
		}
	}, nil
}
