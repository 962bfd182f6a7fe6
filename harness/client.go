package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/driver"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/spawn"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/workload"
)

// A Client is a client of a script. It records that it lost a hold which no lease ends at the moment at which it is told,
// whatever the script does then: nothing else in the history says until when it believed in it.
type Client struct {
	workload.Client

	mu       sync.Mutex // Do and AwaitLost exclude each other
	ended    chan struct{}
	watching sync.WaitGroup
	process  *process // that it is apart; nil for a client in the harness
}

// Client opens a client of a script in a zone, as a process of its own if it is to be
// apart.
func (st *Session) Client(ctx context.Context, name, zone string, apart bool) (*Client, error) {
	st.run.Clients[name] = zone
	c := &Client{ended: make(chan struct{})}
	var locker lock.Locker
	var err error
	if apart {
		locker, err = st.start(ctx, c, name, zone)
	} else {
		locker, err = st.locker(zone)
	}
	if err != nil {
		return nil, fmt.Errorf("open client %s: %w", name, err)
	}
	c.Client = st.NewClient(name, locker) // what it does when is the script's business
	c.Granted = st.grants.in(zone)
	st.closers = append(st.closers, func() {
		close(c.ended)
		c.watching.Wait()
	})
	return c, nil
}

// Do is that of [workload.Client]. A client that stands still does nothing until it goes on.
func (c *Client) Do(ctx context.Context, a workload.Act, r workload.Resource) (history.Type, error) {
	if c.process != nil {
		if err := c.process.goesOn(ctx); err != nil {
			return history.Info, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	outcome, err := c.Client.Do(ctx, a, r)
	if lost := c.LostUnleased(); lost != nil && a.Do == workload.DoAsk {
		c.watching.Go(func() { _ = c.notice(context.Background(), lost) }) //nolint:contextcheck // it outlives the request
	}
	return outcome, err
}

// notice waits until a hold is lost, and records that the client was told, unless it has another one by then.
func (c *Client) notice(ctx context.Context, lost <-chan struct{}) error {
	select {
	case <-lost:
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.Lost() == lost {
			c.NoticeLost()
		}
	case <-c.ended:
	case <-ctx.Done():
		return fmt.Errorf("it was not told that it lost its hold: %w", context.Cause(ctx))
	}
	return nil
}

// AwaitLost waits until the client is told that it lost what it was granted last.
func (c *Client) AwaitLost(ctx context.Context) error {
	c.mu.Lock()
	lost := c.Lost()
	c.mu.Unlock()
	if lost == nil {
		return errors.New("it was granted nothing that it could lose")
	}
	return c.notice(ctx, lost)
}

// A process is that of a client: a driver, which faults stop and kill.
type process struct {
	*program

	client *Client
	killed atomic.Bool // by a fault

	mu    sync.Mutex
	still chan struct{} // closed when it goes on; nil while it does not stand still
}

// start starts the process of a client: the driver that its lock is, or this program, which serves the lock as one.
func (st *Session) start(ctx context.Context, c *Client, name, zone string) (lock.Locker, error) {
	o, open := st.lockOptions(zone), st.open
	at := o.At
	c.process = &process{client: c}
	at.Apart = true
	at.Log = func() (io.WriteCloser, error) {
		return os.Create(history.Dir(st.Dir).Path(history.LogsDir, "client-"+name+".log"))
	}
	at.Broken = func(why string) {
		if !c.process.killed.Load() {
			st.blameDriver(fmt.Sprintf("client %s: %s: logs/client-%s.log says more", name, why, name))
		}
	}
	if !st.lock.Connects {
		setup, err := st.setup(zone)
		if err != nil {
			return nil, err
		}
		at.Env, at.Own = append(at.Env, setupVariable+"="+string(setup)), true
		open = func(_ []redis.UniversalClient, o LockOptions) (lock.Locker, func(), error) {
			return openProgram("", driver.Hello{}, *o.At, o)
		}
	}
	locker, end, err := open(nil, o)
	if err != nil {
		return nil, err
	}
	st.closers = append(st.closers, end)
	c.process.program, _ = locker.(*program) // as all of them are
	if at.Own {
		_, err = c.process.Do(ctx, "open") // its lock, for which the first request need not wait then
	}
	st.apart[name] = c.process
	return locker, err
}

// errGone says that there is no process.
var errGone = errors.New("its process is gone")

// Pause stops the process with SIGSTOP, and waits until the kernel says that
// it stands still.
func (p *process) Pause(ctx context.Context) error {
	if err := p.signal(ctx, spawn.Pause); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.still == nil {
		p.still = make(chan struct{})
	}
	return nil
}

// Resume lets a stopped process go on.
func (p *process) Resume(ctx context.Context) error {
	if err := p.signal(ctx, spawn.Resume); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.still != nil {
		close(p.still)
		p.still = nil
	}
	return nil
}

// Kill ends the process with SIGKILL, waits until it is gone, and records its crash.
func (p *process) Kill(ctx context.Context) error {
	p.killed.Store(true)
	lived := time.Now()
	if err := p.signal(ctx, func(_ context.Context, group int) error { return spawn.Kill(group) }); err != nil {
		return err
	}
	select {
	case <-p.Gone():
		p.client.Die(lived)
		return nil
	case <-ctx.Done():
		return fmt.Errorf("kill client %s: %w", p.client.Name, context.Cause(ctx))
	}
}

// signal does something to the process, as long as it is there.
func (p *process) signal(ctx context.Context, send func(ctx context.Context, group int) error) error {
	err := errGone
	select {
	case <-p.Gone():
	default:
		err = send(ctx, p.Group())
	}
	if err != nil {
		return fmt.Errorf("signal client %s: %w", p.client.Name, err)
	}
	return nil
}

// goesOn waits while the process stands still.
func (p *process) goesOn(ctx context.Context) error {
	p.mu.Lock()
	still := p.still
	p.mu.Unlock()
	if still == nil {
		return nil
	}
	select {
	case <-still:
		return nil
	case <-p.Gone():
		return errGone
	case <-ctx.Done():
		return fmt.Errorf("client %s stands still: %w", p.client.Name, context.Cause(ctx))
	}
}

// WorkerCommand is the subcommand by which the program that runs a scenario
// becomes the process of one of its clients: it calls [ServeWorker].
const WorkerCommand = "scenario-client"

// setupVariable has the [workerSetup] of such a process.
const setupVariable = "LOCKCHAOS_CLIENT"

// A workerSetup is what a client's process is told of its lock beside what hello says.
type workerSetup struct {
	Lock              string
	Acks, Permits     int
	Retries, PoolSize int
}

// setup is that of the lock under test, for a client of a zone. A client can't have clients of its own: a program that does
// not know that it is to be one would never come to an end.
func (st *Session) setup(zone string) (json.RawMessage, error) {
	if os.Getenv(setupVariable) != "" {
		return nil, fmt.Errorf("this is such a client itself (%s is set)", setupVariable)
	}
	o := st.clientOptions(zone)
	return json.Marshal(workerSetup{st.lock.Name, st.options.ReplicaAcks, st.options.Permits, o.MaxRetries, o.PoolSize})
}

// ServeWorker is the process of a client of a scenario, a driver of one of the locks. It speaks over the socket of drivers.
func ServeWorker(ctx context.Context, _ io.Reader, _ io.Writer, locks Locks) error {
	var s workerSetup
	if err := json.Unmarshal([]byte(os.Getenv(setupVariable)), &s); err != nil {
		return fmt.Errorf("read setup: %w", err)
	}
	l, err := locks.ByName(s.Lock) //nolint:contextcheck // a driver bounds its own start
	if err != nil {
		return err
	}
	return serve(ctx, l, "", s)
}
