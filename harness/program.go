package harness

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/driver"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/workload"
)

// ProgramPrefix begins the name of a lock that is a program: what follows is its
// command, as a shell reads it.
const ProgramPrefix = "exec:"

// A Place is where the clients of a zone are, for a lock that connects to the
// servers by itself.
type Place struct {
	// Zone and Topology are their names.
	Zone, Topology string
	// Servers are the addresses that a client begins with, and Master the name of
	// the master that the sentinels among them know.
	Servers []driver.Server
	Master  string
	// Dial opens connections as clients of the zone do.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error) `json:"-"`
	// Timeout is for how long a client should wait for a server.
	Timeout time.Duration
	// Adopt has the connections of a process group pass the links of the zone.
	Adopt func(group int) (end func(), err error) `json:"-"`
	// Remote has the program started on another machine, and RoundTrip is how far away that is; nil: it is started here.
	Remote    func() (*driver.Remote, error) `json:"-"`
	RoundTrip func() time.Duration           `json:"-"`
	// Log makes the file that the program's log goes to; it is closed with the lock.
	Log func() (io.WriteCloser, error) `json:"-"`
	// Env has settings for the program as NAME=VALUE, beside those of this process.
	Env []string
	// Apart says that faults stop and kill the program, and Own that it is this one, by its subcommand [WorkerCommand].
	Apart bool `json:"-"`
	Own   bool `json:"-"`
	// MarkInconclusive notes why a run with this lock proves nothing, and Broken that it can't be used any more: the
	// run may end then.
	MarkInconclusive, Broken func(why string) `json:"-"`
}

// lagShare is the part of a lease within which a driver has to answer a ping: one
// that takes longer may not act on a lease while that lasts.
const lagShare = 10

// silence is how long a driver may owe an answer at the end of a run, beyond the time
// that its library may wait.
const silence = 10 * time.Second

// programLease is what a driver without a watchdog is asked for where a workload
// leaves the lease to the watchdog, and no other is set.
const programLease = 2 * time.Second

// programCommands are what lock libraries send to Redis again and again, as far
// as is known: faults of single commands wait for one of them.
var programCommands = []string{"SET", "SETNX", "EVALSHA", "EVAL", "HSET", "ZADD", "DEL", "UNLINK", "FCALL"} //nolint:gochecknoglobals // a constant

// Program describes the lock of a driver: a program that speaks the protocol of
// package driver. The program is started once for that, without any server, and
// again for each zone of a run. The command is what a shell would be given, and
// is the lock's name after [ProgramPrefix].
//
// Its error says what the program did instead of answering; tell is told sooner where it does nothing, nil: no one is.
func Program(command string, tell func(string)) (LockSpec, error) {
	if strings.TrimSpace(command) == "" {
		return LockSpec{}, fmt.Errorf("%s needs a command, such as %spython3 driver.py", ProgramPrefix, ProgramPrefix)
	}
	argv := ShellCommand(command)
	var logged bytes.Buffer
	d, err := driver.Start(context.Background(), driver.Config{Command: argv, Name: command, Log: &logged, Silent: tell})
	if err != nil {
		return LockSpec{}, withLog(err, logged.String())
	}
	hello := d.Hello()
	if err := errors.Join(d.Err(), d.Close()); err != nil {
		return LockSpec{}, err
	}
	if stores := topologies.Stores(); hello.Promises.Store != "" && !slices.Contains(stores, hello.Promises.Store) {
		return LockSpec{}, fmt.Errorf("the driver's promise of a store: %w", names.Unknown("store", hello.Promises.Store, stores))
	}
	wraps := map[string]string{}
	if hello.Version != "" {
		wraps[hello.Name] = hello.Version
	}
	l := LockSpec{
		Name: ProgramPrefix + command, About: strings.TrimSpace(hello.Name + " " + hello.Version + ", a driver in " + hello.Language),
		Promises: hello.Promises, Commands: OwnCommands(), Foreign: true, Connects: true,
		Wraps: wraps, Sends: hello.Commands, Lease: time.Duration(hello.WatchdogMS) * time.Millisecond,
		Open: func(_ []redis.UniversalClient, o LockOptions) (lock.Locker, func(), error) {
			if o.At == nil {
				return nil, nil, errors.New("a lock that is a program can't be used here: it connects to the servers by itself")
			}
			return openProgram(command, hello, *o.At, o)
		},
	}
	if len(hello.Keys) > 0 {
		l.Key = func(name string) string { return strings.ReplaceAll(hello.Keys[0], "{name}", name) }
	}
	return l, nil
}

// maxLogged is how many lines of its log are told of a driver that did not start.
const maxLogged = 12

// withLog is why a driver did not start, with the end of its log where that has several lines:
// which of them says why differs from language to language.
func withLog(err error, logged string) error {
	lines := strings.Split(strings.TrimSpace(logged), "\n")
	if len(lines) < 2 {
		return err
	}
	return fmt.Errorf("%w\nits log ends with:\n  %s", err, strings.Join(lines[max(0, len(lines)-maxLogged):], "\n  "))
}

// ShellCommand is the program of a command as a shell reads it, and its arguments. The program takes the place of the
// shell, so that it leads its process group.
func ShellCommand(command string) []string { return []string{"/bin/sh", "-c", "exec " + command} }

// Start starts the driver of a command for the clients of the place. What it returns ends what the driver left.
func (at Place) Start(command string, watchdog time.Duration, log io.Writer) (d *driver.Driver, end func(), err error) {
	end = func() {}
	var refused error
	var remote *driver.Remote
	if at.Remote != nil {
		if remote, err = at.Remote(); err != nil {
			return nil, nil, err
		}
	}
	argv, as := ShellCommand(command), ""
	if at.Own {
		path, err := os.Executable()
		if err != nil {
			return nil, nil, err
		}
		argv, as = []string{path, WorkerCommand}, os.Args[0]
	}
	d, err = driver.Start(context.Background(), driver.Config{
		Remote: remote, Command: argv, As: as, Name: command, Zone: at.Zone, Topology: at.Topology, Master: at.Master, Servers: at.Servers, Timeout: at.Timeout,
		Watchdog: watchdog, Log: log, Env: at.Env,
		Started: func(group int) {
			if adopted, err := at.Adopt(group); err != nil {
				refused = err
			} else {
				end = adopted
			}
		},
	})
	if err == nil && refused != nil {
		return nil, nil, errors.Join(refused, d.Close())
	}
	if err != nil {
		end()
		return nil, nil, err
	}
	return d, end, nil
}

// ServeLock makes a driver of a lock of the program, on its standard input and output, for clients on another machine.
func ServeLock(ctx context.Context, l LockSpec, version string) error {
	if l.InProcess != nil || l.Together || l.Connects || l.Kind == history.KindSemaphore {
		return fmt.Errorf("lock %s can't be a driver: it is in memory, a driver already, of several locks or of permits", l.Name)
	}
	return serve(ctx, l, version, workerSetup{Retries: -1})
}

func serve(ctx context.Context, l LockSpec, version string, w workerSetup) error {
	promised := l.Promises
	promised.Watchdog, promised.Cancel = promised.Watchdog || !l.Foreign || l.Endless, true
	hello := driver.Hello{Name: l.Name, Version: version, Language: "go", Parallel: 64, Promises: promised}
	return driver.Serve(ctx, hello, func(_ context.Context, s driver.Session) (lock.Locker, func(), error) {
		dialer := net.Dialer{Timeout: s.Timeout}
		at := Place{Zone: s.Zone, Topology: s.Topology, Servers: s.Servers, Master: s.Master, Timeout: s.Timeout, Dial: dialer.DialContext}
		options := topologies.OnceOptions(s.Timeout)
		options.MasterName, options.IsClusterMode, options.Dialer = s.Master, topologies.ShapeOf(s.Topology).Slots, at.Dial
		options.MaxRetries, options.PoolSize = w.Retries, w.PoolSize
		for _, server := range s.Servers {
			options.Addrs = append(options.Addrs, server.Addr)
		}
		locker, end, err := l.Connect(l.Begin(), options, LockOptions{ReplicaAcks: w.Acks, Permits: w.Permits, Watchdog: s.Watchdog, At: &at})
		return asked{locker}, end, err
	})
}

// asked is a lock of the program that a driver asks in several ways.
type asked struct{ lock.Locker }

// Ask implements [driver.Asker].
func (a asked) Ask(ctx context.Context, name string, w driver.Way, o lock.Options) (*lock.Hold, error) {
	return workload.Ask(ctx, a.Locker, RequestIn(name, w), o)
}

// RequestIn is the request for a lock in a way.
func RequestIn(name string, w driver.Way) workload.Request {
	r := workload.Request{Locks: []string{name}, Mode: history.Mode(w.Mode), Permits: w.Permits}
	if w.Permits > 0 {
		r.Mode = history.Permit
	}
	return r
}

// openProgram starts a driver for the clients of a zone.
func openProgram(command string, hello driver.Hello, at Place, o LockOptions) (lock.Locker, func(), error) {
	log, err := at.Log()
	if err != nil {
		return nil, nil, err
	}
	d, end, err := at.Start(command, o.Watchdog, log)
	if err != nil {
		return nil, nil, errors.Join(err, log.Close())
	}
	if h := d.Hello(); at.Remote != nil && (h.Name != hello.Name || h.Version != hello.Version || h.Promises != hello.Promises) {
		at.MarkInconclusive(fmt.Sprintf("the driver of %s is of %s %s, and that of the run of %s %s, or they promise other things", at.Zone, h.Name, h.Version, hello.Name, hello.Version))
	}
	tell := sync.OnceFunc(func() {
		at.Broken(strings.Replace(d.Err().Error(), "the driver", "the driver of "+at.Zone, 1))
	})
	var watching sync.WaitGroup
	watching.Go(func() {
		if <-d.Done(); d.Err() != nil {
			tell()
		}
	})
	l := &program{Driver: d, lease: cmp.Or(o.Watchdog, programLease), remote: at.Remote != nil, permits: o.Permits}
	return l, func() {
		d.Settle(silence)
		silent := d.Silent(silence)
		if at.RoundTrip != nil {
			if trip, lease := at.RoundTrip(), cmp.Or(l.shortest(), l.lease); trip > lease/lagShare {
				at.MarkInconclusive(fmt.Sprintf("the round trip to the worker of %s took %v on average, which is more than a tenth of the shortest lease, %v: what overlaps for less can't be seen", at.Zone, trip.Round(time.Millisecond/10), lease))
			}
		}
		if lag, lease := d.Lag(), l.shortest(); lease > 0 && lag > lease/lagShare && !at.Apart {
			at.MarkInconclusive(fmt.Sprintf("the driver of %s took %v on average to answer a ping, which is more than a tenth of the shortest lease, %v", at.Zone, lag.Round(time.Millisecond), lease))
		}
		err := d.Close()
		watching.Wait()
		if d.Err() != nil { // also a connection that it closed shortly before
			tell()
		} else if silent != "" && !at.Apart {
			at.MarkInconclusive("the driver of " + at.Zone + " " + silent)
		}
		if d.Killed() {
			err = errors.Join(errors.New("the driver did not exit at the end of its input, and was killed"), err)
		}
		end()
		if err = errors.Join(err, log.Close()); err != nil && o.Unclosed != nil {
			o.Unclosed(err)
		}
	}, nil
}

// A program is a driver that remembers the shortest lease that it was asked for.
type program struct {
	*driver.Driver

	lease   time.Duration // instead of a watchdog
	remote  bool          // notices of losses come late, so that each hold needs a lease that ends it
	permits int           // that a semaphore has
	least   atomic.Int64
}

func (p *program) shortest() time.Duration { return time.Duration(p.least.Load()) }

// Acquire asks for one lock, in its usual way.
func (p *program) Acquire(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
	return p.Ask(ctx, workload.Request{Locks: []string{name}}, o)
}

// Ask implements [workload.Service]. A lock without a watchdog always has a lease.
func (p *program) Ask(ctx context.Context, r workload.Request, o lock.Options) (*lock.Hold, error) {
	if len(r.Locks) != 1 {
		return nil, fmt.Errorf("%d locks in one request: a driver is asked for one at a time", len(r.Locks))
	}
	if o.Lease == 0 && (p.remote || !p.Hello().Promises.Watchdog) {
		o.Lease = p.lease
	}
	for o.Lease > 0 {
		least := p.least.Load()
		if least > 0 && least <= int64(o.Lease) || p.least.CompareAndSwap(least, int64(o.Lease)) {
			break
		}
	}
	return p.Driver.Ask(ctx, r.Locks[0], driver.Way{Mode: string(r.Mode), Permits: r.Permits, Capacity: p.permits}, o)
}
