// Package workload has the clients that use a lock and record what happened:
// clients in zones that contend for locks, hold them for a while, and change a
// protected resource by a read and a write that nothing but the lock protects.
//
// What they do with the locks is one of [Kinds], or several in turn: hold and
// release, enter again, read and write, take permits or several locks, wait in
// line, give up, crash.
package workload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/lock"
)

// A Config says how a workload uses locks. Its zero fields mean the defaults of
// its kinds, and where they have none those given here. The record of a run keeps
// what has a name in JSON; the lock, the kinds and the seed give the rest.
type Config struct {
	// Kinds name what the clients do, each [Kind] as often as the others. Default:
	// [Contended].
	Kinds []string `json:"-"`
	// Clients is how many contend. Default 8.
	Clients int `json:"clients,omitempty"`
	// Locks is how many locks they contend for. Default 3.
	Locks int `json:"locks,omitempty"`
	// Hold is the mean time for which a lock is held. One hold in twenty is
	// twenty times as long. Default 20 ms.
	Hold time.Duration `json:"hold,omitempty"`
	// Think is the mean time between a release and the next attempt of a
	// closed loop. Default 20 ms.
	Think time.Duration `json:"think,omitempty"`
	// Lease is what is asked for. Zero: the lock's watchdog.
	Lease time.Duration `json:"lease,omitempty"`
	// Wait is how long a client waits for a lock. Zero: one try.
	Wait time.Duration `json:"wait,omitempty"`
	// Mode is how locks are asked for by kinds that do not say it themselves:
	// exclusive, which is the default, or permit. Who has a permit only looks at
	// the resource.
	Mode history.Mode `json:"-"`
	// Together says that several locks are asked for in one request. Else they
	// are asked for one after the other, in the order of their names.
	Together bool `json:"-"`
	// Downgrades says that some writers go on as readers, and Several that some clients ask for several permits, or for one
	// more.
	Downgrades, Several bool `json:"-"`
	// Reenters says that some clients of kind watchdog acquire their lock again, and give that back, before they work for long.
	Reenters bool `json:"-"`
	// Endless says that the lock's grants have no end, so that no lease is asked
	// for.
	Endless bool `json:"-"`
	// Extends says that some clients extend the leases that they asked for, in kinds of workload
	// that are not about that: contended and late-release.
	Extends bool `json:"-"`
	// Permits is how many permits a semaphore has. Default 3.
	Permits int `json:"permits,omitempty"`
	// Rate makes an open loop: that many attempts a second begin, over all
	// clients together, whether or not earlier ones are done; those for which
	// no client is free wait for one. Zero: a closed loop.
	Rate float64 `json:"rate,omitempty"`
	// Calm, if it is above 0, is the time after which only the first two clients begin anything new: of a run
	// that goes on to see whether the lock is of use again, the rest of the crowd shows nothing.
	Calm time.Duration `json:"-"`
	// Careless clients go on using the resource when they were told that
	// they lost the lock.
	Careless bool `json:"careless,omitempty"`
	// Seed decides all choices, though not how real processes interleave. Source makes the random numbers of each client,
	// by its number from 1; nil: of the seed.
	Seed   uint64                          `json:"-"`
	Source func(client uint64) rand.Source `json:"-"`
	// Soon has the first holder of each zone do what a kind is there for and only some holders
	// do, and holders go on for longer where that shows more, for runs that show nothing without it. A
	// search that plays many short runs has no use for it: its runs are to differ.
	Soon bool `json:"-"`
}

// WithDefaults fills in the defaults. Kinds that it does not know have none.
func (c Config) WithDefaults() Config {
	if len(c.Kinds) == 0 {
		c.Kinds = []string{Contended}
	}
	for _, name := range c.Kinds {
		if k := KindByName(name); k != nil {
			c.Locks, c.Lease, c.Wait = cmp.Or(c.Locks, k.locks), cmp.Or(c.Lease, k.lease), cmp.Or(c.Wait, k.wait)
		}
	}
	if c.Endless {
		c.Lease = 0
	}
	c.Clients = cmp.Or(c.Clients, 8)
	c.Locks = cmp.Or(c.Locks, 3)
	c.Permits = cmp.Or(c.Permits, 3)
	c.Hold = cmp.Or(c.Hold, 20*time.Millisecond)
	c.Think = cmp.Or(c.Think, 20*time.Millisecond)
	return c
}

func (c Config) source(client uint64) rand.Source {
	if c.Source != nil {
		return c.Source(client)
	}
	return rand.NewPCG(c.Seed, client)
}

// Validate joins everything that is wrong with the configuration.
func (c Config) Validate() error {
	var errs []error
	for name, negative := range map[string]bool{
		"clients": c.Clients < 0, "locks": c.Locks < 0, "hold": c.Hold < 0, "think": c.Think < 0,
		"lease": c.Lease < 0, "wait": c.Wait < 0, "permits": c.Permits < 0, "calm": c.Calm < 0,
	} {
		if negative {
			errs = append(errs, fmt.Errorf("%s must not be negative", name))
		}
	}
	if !(c.Rate >= 0) || math.IsInf(c.Rate, 0) { // also not a number
		errs = append(errs, fmt.Errorf("rate must be 0 or more, not %v", c.Rate))
	}
	if least := 10 * time.Millisecond; c.Lease > 0 && c.Lease < least { // within which a client can do nothing
		errs = append(errs, fmt.Errorf("lease must be at least %v", least))
	}
	for _, name := range c.Kinds {
		if KindByName(name) == nil {
			errs = append(errs, fmt.Errorf("unknown kind of workload %q", name))
		}
	}
	return errors.Join(errs...)
}

// LockNames are the names of the locks: lock-1, lock-2 and so on.
func (c Config) LockNames() []string {
	names := make([]string, c.WithDefaults().Locks)
	for i := range names {
		names[i] = fmt.Sprintf("lock-%d", i+1)
	}
	return names
}

// requestTimeout bounds one request beyond the time that it may wait for the lock.
const requestTimeout = 2 * time.Second

// A Zone is a group of clients that share a way to the servers.
type Zone struct {
	Name   string
	Locker lock.Locker
	// NodeName is how the history calls the server at an address; nil: by the
	// address.
	NodeName func(address string) string
	// Granted and Refused are told of each request that was granted or refused: see [Client].
	Granted func(Request)
	Refused func(ctx context.Context, lock, owner string)
	// Resources are what the locks protect, by the name of the lock, as the zone
	// reaches them. Nil: a [Register] for each lock, which all such zones share.
	Resources map[string]Resource
}

// Run drives the clients, spread over the zones in turn, until the context
// ends. Then each finishes what it is at, and Run returns. Each lock protects a
// resource of its name. Run panics where the configuration is not valid.
func Run(ctx context.Context, c Config, zones []Zone, r *history.Recorder, p *Processes) {
	c = c.WithDefaults()
	if err := c.Validate(); err != nil {
		panic(err)
	}
	names := c.LockNames()
	registers := map[string]Resource{}
	for _, name := range names {
		registers[name] = &Register{}
	}
	arrivals := arrive(ctx, c)
	owed := make([]sync.Map, len(zones))
	var kinds []*Kind
	for _, name := range c.Kinds {
		k := KindByName(name)
		kinds = append(kinds, k)
		for i := range owed {
			if k.seldom && c.Soon {
				owed[i].Store(name, true)
			}
		}
	}
	var all sync.WaitGroup
	for i := range c.Clients {
		zone := zones[i%len(zones)]
		rng := rand.New(c.source(uint64(i) + 1))
		w := &worker{
			Config: c, kinds: kinds, names: names, resources: zone.Resources, arrivals: arrivals, lateSoon: i < len(zones), owed: &owed[i%len(zones)],
			rng: rng, skewed: rand.NewZipf(rng, zipfSkew, 1, uint64(len(names)-1)),
			client: &Client{
				Name: fmt.Sprintf("%s.%d", zone.Name, i+1), Locker: zone.Locker, Recorder: r, Processes: p,
				Careless: c.Careless, NodeName: zone.NodeName, Granted: zone.Granted, Refused: zone.Refused,
			},
		}
		if w.resources == nil {
			w.resources = registers
		}
		ctx, end := ctx, context.CancelFunc(func() {})
		if c.Calm > 0 && i >= calmClients {
			ctx, end = context.WithTimeout(ctx, c.Calm+time.Duration(i)) // of two timers of one instant either may fire first
		}
		all.Go(func() {
			defer end()
			w.live(ctx, zone.Locker)
		})
	}
	all.Wait()
}

// live runs the worker until ctx ends, or until the process of its lock has ended, which is a crash of the client.
func (w *worker) live(ctx context.Context, l lock.Locker) {
	mortal, ok := l.(Mortal)
	if !ok {
		w.run(ctx)
		return
	}
	ctx, end := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-mortal.Gone():
		case <-ctx.Done():
		}
		select {
		case <-mortal.Gone(): // which may be why the run ends
			w.client.Die(mortal.Lived())
			end()
		default:
		}
	}()
	w.run(ctx)
	end()
	<-watched
}

// calmClients are the clients that go on after [Config.Calm]: one that holds the lock, and one that waits.
const calmClients = 2

// zipfSkew is how much more often the first locks are asked for: of a hundred,
// the first gets about a third of all requests.
const zipfSkew = 1.2

// arrive begins attempts at the configured rate, at random intervals; nil for
// a closed loop.
func arrive(ctx context.Context, c Config) <-chan struct{} {
	if c.Rate == 0 {
		return nil
	}
	rng := rand.New(c.source(0))
	arrivals := make(chan struct{}, 1<<16)
	go func() {
		next := time.Now()
		for {
			next = next.Add(time.Duration(rng.ExpFloat64() / c.Rate * float64(time.Second)))
			if !Pause(ctx, time.Until(next)) {
				return
			}
			select {
			case arrivals <- struct{}{}:
			case <-ctx.Done():
				return
			}
		}
	}()
	return arrivals
}

// Pause lets time pass, and reports false if the context ended before.
func Pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// A worker is one client with its habits.
type worker struct {
	Config
	kinds     []*Kind
	names     []string
	resources map[string]Resource
	arrivals  <-chan struct{}
	rng       *rand.Rand
	skewed    *rand.Zipf
	client    *Client

	downgraded bool // a lock that it held for writing, at least once
	reentered  bool // a lock that a watchdog extends, at least once
	lateSoon   bool // the first hold of it in late-release is a late one
	// owed are the kinds that are seldom, by name, of which a holder of the zone is to do what it
	// is there for: see [Config.Soon]. The clients of a zone share it.
	owed *sync.Map
}

func (w *worker) run(ctx context.Context) {
	for w.next(ctx) {
		k := w.kinds[0]
		if len(w.kinds) > 1 {
			k = w.kinds[w.rng.IntN(len(w.kinds))]
		}
		for _, other := range w.kinds {
			if _, owed := w.owed.Load(other.Name); owed {
				k = other
			}
		}
		k.session(ctx, w)
	}
}

// isFirst reports whether the holder is the first of its zone in a kind that is seldom, and
// is to do what that is there for.
func (w *worker) isFirst(kind string) bool {
	_, owed := w.owed.LoadAndDelete(kind)
	return owed
}

// next waits for the moment of the next attempt.
func (w *worker) next(ctx context.Context) bool {
	if w.arrivals == nil {
		return Pause(ctx, w.around(w.Think))
	}
	select {
	case <-w.arrivals:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// around draws a time between half of d and one and a half.
func (w *worker) around(d time.Duration) time.Duration {
	return d/2 + time.Duration(w.rng.Int64N(int64(max(d, 1))))
}

// lock draws a lock.
func (w *worker) lock() string { return w.names[w.rng.IntN(len(w.names))] }

// length draws how long a lock is held.
func (w *worker) length() time.Duration {
	d := w.around(w.Hold)
	if w.rng.IntN(20) == 0 {
		d *= 20
	}
	return d
}

// one is a request for one lock as the configuration has it.
func (w *worker) one(name string) Request {
	return Request{Locks: []string{name}, Mode: w.Mode, Lease: w.Lease, Wait: w.Wait}
}

// ask asks and reports whether it was granted. The end of the run cuts the work
// short, but no request: what was asked for is answered, and what is held is
// given back.
func (w *worker) ask(ctx context.Context, r Request) bool {
	return within(ctx, r.Wait+requestTimeout, func(ctx context.Context) history.Type { return w.client.Ask(ctx, r) }) == history.OK
}

// within makes a request, which has so long for it. The end of the run does not cut it short.
func within[T any](ctx context.Context, d time.Duration, request func(context.Context) T) T {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d)
	defer cancel()
	return request(ctx)
}

// extend extends what was granted last, unless the client knows that it is over. After an
// unknown outcome the holder goes on to shortly before the end of the lease that it has for
// certain, so that those who ask meanwhile see whether the service still knows of it.
func (w *worker) extend(ctx context.Context) {
	if w.stops() {
		return
	}
	end := w.client.newest().Lease().Expires
	extend := func(ctx context.Context) history.Type { return w.client.Extend(ctx, w.Lease) }
	if within(ctx, requestTimeout, extend) == history.Info && w.Soon {
		w.use(ctx, time.Until(end.Add(-w.Lease/10)))
	}
}

// releaseAll gives everything back, the newest first.
func (w *worker) releaseAll(ctx context.Context) {
	for w.client.Holding() {
		within(ctx, requestTimeout, w.client.Release)
	}
}

// stops reports whether the client was told that it lost what it holds, and
// cares.
func (w *worker) stops() bool { return w.client.noticed() && !w.Careless }

// access uses the resource under a lock: it reads it, works, and ends the access. It reports whether the client may go on.
func (w *worker) access(ctx context.Context, name string, work time.Duration, end func(ctx context.Context) history.Type) bool {
	if w.stops() {
		return false
	}
	err := within(ctx, requestTimeout, func(ctx context.Context) error { return w.client.Read(ctx, name, w.resources[name]) })
	if err != nil {
		return true
	}
	w.use(ctx, work)
	if w.stops() {
		w.client.Abandon(name)
		return false
	}
	within(ctx, requestTimeout, end)
	return true
}

// change changes the resource under a lock by a read and a write.
func (w *worker) change(ctx context.Context, name string, work time.Duration) bool {
	return w.access(ctx, name, work, func(ctx context.Context) history.Type { return w.client.Write(ctx, name, w.resources[name]) })
}

// look reads the resource under a lock that others may share.
func (w *worker) look(ctx context.Context, name string, work time.Duration) {
	w.access(ctx, name, work, func(context.Context) history.Type { return w.client.Seen(name) })
}

// use is the work under the lock. It stops when the lock is lost, unless the
// client does not care.
func (w *worker) use(ctx context.Context, d time.Duration) {
	lost := w.client.Lost()
	if w.Careless {
		lost = nil
	}
	select {
	case <-time.After(d):
	case <-lost:
	case <-ctx.Done():
	}
}
