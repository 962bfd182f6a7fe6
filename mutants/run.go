package mutants

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/clientclock"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/mutants/broken"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/workload"
)

// A mutantRun is a lock with a planted bug, or its twin, on its stage.
type mutantRun struct {
	*harness.Session
	mutant Mutant
	locks  func(broken.Setup) *broken.Lock
	busy   sync.WaitGroup // for what the clients do in the background
}

// The lock and the resource of a run.
const (
	theLock     = "orders"
	theResource = "stock"
)

// long is a lease that does not end during a run.
const long = 30 * time.Second

// patience is how long a client of a run waits for a reply: for longer than
// the faults last, so that it is the lock that gives up and not its client.
const patience = 10 * time.Second

const (
	// requestTimeout bounds how long a client asks for a lock that it must be granted.
	requestTimeout = 30 * time.Second
	// poll is how long a client waits before it asks again, and a run before it looks
	// again.
	poll = 5 * time.Millisecond
)

// A testClient is a client of a run, on a machine of its own.
type testClient struct {
	workload.Client
	run   *mutantRun
	rdb   redis.UniversalClient // its way to the deployment
	clock clientclock.Clock
	gate  gate
	// renewed counts the answers to its watchdogs.
	renewed atomic.Int64
	record  lock.Observer
}

// open opens a client in a zone.
func (t *mutantRun) open(name, zone string) *testClient {
	o := t.Deployment().ClientOptions(zone)
	o.ReadTimeout = patience
	servers := topologies.Clients(o)
	p := &testClient{run: t, rdb: servers[0], record: t.Renewals()}
	s := broken.Setup{
		Servers: servers, Acks: t.mutant.acks, Watchdog: t.mutant.watchdog,
		Observer: p, Clock: &p.clock, Gate: p.gate.pass,
	}
	if t.mutant.other != nil {
		t.mutant.other(o)
		s.Other = topologies.Clients(o)[0]
		servers = append(servers, s.Other)
	}
	for _, rdb := range servers {
		t.OnClose(func() { _ = rdb.Close() })
	}
	l := t.locks(s)
	t.OnClose(l.Close)
	p.Client = t.NewClient(name, l) // which trusts what the lock told it
	return p
}

// two opens the clients a and b, in different zones.
func (t *mutantRun) two() (a, b *testClient) { return t.open("a", "zone-a"), t.open("b", "zone-b") }

// three opens a client more, c, in the zone of a.
func (t *mutantRun) three() (a, b, c *testClient) {
	a, b = t.two()
	return a, b, t.open("c", "zone-a")
}

// beside opens another client in the process of a client, which has the same lock.
func (t *mutantRun) beside(p *testClient, name string) *testClient {
	return &testClient{run: t, rdb: p.rdb, record: p.record, Client: t.NewClient(name, p.Locker)}
}

// lined waits until so many clients stand in line for the lock in the process of a
// client.
func (p *testClient) lined(ctx context.Context, n int) error {
	l, ok := p.Locker.(interface{ Waiting(name string) int })
	if !ok {
		return fmt.Errorf("no client waits in the queue of a %T", p.Locker)
	}
	return p.run.await(ctx, fmt.Sprintf("%d in line", n), func() bool { return l.Waiting(theLock) == n })
}

// Observe records what a watchdog does, and counts its answers.
func (p *testClient) Observe(e lock.Event) {
	p.record.Observe(e)
	if e.Kind == lock.Renewed {
		p.renewed.Add(1)
	}
}

// ask asks once.
func (p *testClient) ask(ctx context.Context, lease time.Duration) history.Type {
	return p.Acquire(ctx, theLock, lease, 0)
}

// again asks once under the owner of the latest attempt, beside what it holds.
func (p *testClient) again(ctx context.Context, lease time.Duration) history.Type {
	return p.Ask(ctx, workload.Request{Locks: []string{theLock}, Lease: lease, Again: true})
}

// get asks until it is granted the lock; that it is not is an error.
func (p *testClient) get(ctx context.Context, lease time.Duration) error {
	if !p.tryFor(ctx, requestTimeout, lease) {
		return fmt.Errorf("%s was not granted the lock", p.Name)
	}
	return nil
}

// giveBack releases what it holds, which must be confirmed for the script to show anything.
func (p *testClient) giveBack(ctx context.Context) error {
	if p.Release(ctx) != history.OK {
		return fmt.Errorf("%s could not release what it held: %w", p.Name, errNotShown)
	}
	return nil
}

// tryFor asks until it is granted the lock, for so long, and reports whether it
// was.
func (p *testClient) tryFor(ctx context.Context, d, lease time.Duration) bool {
	for end := time.Now().Add(d); ; {
		if p.ask(ctx, lease) == history.OK {
			return true
		}
		if time.Now().After(end) || !workload.Pause(ctx, poll) {
			return false
		}
	}
}

// use reads and writes the resource.
func (p *testClient) use(ctx context.Context, r workload.Resource) error {
	if err := p.Read(ctx, theResource, r); err != nil {
		return err
	}
	p.Write(ctx, theResource, r)
	return nil
}

// warm has a connection of the client ready, so that what is done to the link next
// meets a request and not the greeting before it.
func (p *testClient) warm(ctx context.Context) error {
	if err := p.get(ctx, long); err != nil {
		return err
	}
	if p.Release(ctx) != history.OK {
		return fmt.Errorf("%s could not release a lock without any fault", p.Name)
	}
	return nil
}

// behind does something in the background, and returns where its outcome will be.
func (t *mutantRun) behind(do func() history.Type) chan history.Type {
	done := make(chan history.Type, 1)
	t.busy.Go(func() { done <- do() })
	return done
}

// outcome waits for what is in the background.
func outcome(ctx context.Context, done <-chan history.Type) (history.Type, error) {
	select {
	case o := <-done:
		return o, nil
	case <-ctx.Done():
		return "", fmt.Errorf("no end of what was begun: %w", context.Cause(ctx))
	}
}

// must fails unless a request that is over was granted the lock, which it must be for the script to show
// anything; otherwise says what happened instead.
func must(got history.Type, err error, otherwise string) error {
	if err == nil && got != history.OK {
		err = fmt.Errorf("%s: %w", otherwise, errNotShown)
	}
	return err
}

// A gate stops a client between two steps, once it is shut. Its zero value lets everything pass.
type gate struct{ shut atomic.Pointer[stop] }

// A stop is where a client waits until it is opened.
type stop struct {
	come            sync.Once
	reached, opened chan struct{}
}

// pass stops at a gate that is shut.
func (g *gate) pass(ctx context.Context) {
	s := g.shut.Load()
	if s == nil {
		return
	}
	s.come.Do(func() { close(s.reached) })
	select {
	case <-s.opened:
	case <-ctx.Done():
	}
}

// stopped has the client do something in the background with its gate shut, and returns the outcome. Meanwhile
// begins once the client waits at the gate, or has done what it began without coming by, which done says: where a
// bug takes two steps, its twin takes one. After it the gate is open.
func (p *testClient) stopped(ctx context.Context, do func() history.Type, meanwhile func(done bool) error) (history.Type, error) {
	s := &stop{reached: make(chan struct{}), opened: make(chan struct{})}
	p.gate.shut.Store(s)
	outcomes := p.run.behind(do)
	var err error
	select {
	case <-s.reached:
		err = meanwhile(false)
	case got := <-outcomes:
		outcomes <- got
		err = meanwhile(true)
	case <-ctx.Done():
		err = fmt.Errorf("no client came to the gate: %w", context.Cause(ctx))
	}
	p.gate.shut.Store(nil)
	close(s.opened)
	if err != nil {
		return "", err
	}
	return outcome(ctx, outcomes)
}

// fault injects a fault.
func (t *mutantRun) fault(ctx context.Context, fault, target string, params map[string]string) error {
	e := faults.Environment{Topology: t.Deployment().Topology(), Script: true}
	step, err := e.Resolve(faults.Step{Fault: fault, Target: target, Params: params})
	if err != nil {
		return err
	}
	return t.Inject(ctx, step)
}

// cut cuts links, and hold stops one stream of them.
func (t *mutantRun) cut(ctx context.Context, targets ...string) error {
	for _, target := range targets {
		if err := t.fault(ctx, "cut", target, nil); err != nil {
			return err
		}
	}
	return nil
}

func (t *mutantRun) hold(ctx context.Context, stream string, targets ...string) error {
	for _, target := range targets {
		if err := t.fault(ctx, "stall", target, map[string]string{"stream": stream}); err != nil {
			return err
		}
	}
	return nil
}

// await waits for a condition.
func (t *mutantRun) await(ctx context.Context, what string, condition func() bool) error {
	for !condition() {
		if !workload.Pause(ctx, poll) {
			return fmt.Errorf("%s did not come: %w", what, context.Cause(ctx))
		}
	}
	return nil
}

// arrived waits until servers have the key of the lock, or its token if one is
// given.
func (t *mutantRun) arrived(ctx context.Context, token string, servers ...string) error {
	for _, server := range servers {
		there := t.Deployment().Server(server)
		if there == nil {
			return fmt.Errorf("there is no server %s here", server)
		}
		err := t.await(ctx, "the lock to arrive at "+server, func() bool {
			if token != "" {
				return there.Observer().Get(ctx, broken.TokenKey(theLock)).Val() == token
			}
			return there.Observer().Exists(ctx, broken.Key(theLock)).Val() == 1
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// writes waits until the client writes to the master: a connection on which
// that is refused is closed.
func (p *testClient) writes(ctx context.Context) error {
	return p.run.await(ctx, p.Name+" to write to the master", func() bool {
		return p.rdb.Set(ctx, "written:"+p.Name, 1, time.Minute).Err() == nil
	})
}

// follows waits until the client talks to the master.
func (p *testClient) follows(ctx context.Context) error {
	return p.run.await(ctx, p.Name+" to find the master", func() bool {
		role, _, err := topologies.RoleOf(ctx, p.rdb)
		return err == nil && role == topologies.Master
	})
}
