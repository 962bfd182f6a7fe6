package workload

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/workload/history"
)

// A Config says how a workload uses locks. Its zero fields mean the defaults.
type Config struct {
	// Clients is how many contend. Default 8.
	Clients int
	// Locks is how many locks they contend for. Default 3.
	Locks int
	// Hold is the mean time for which a lock is held. One hold in twenty is
	// twenty times as long. Default 20 ms.
	Hold time.Duration
	// Think is the mean time between a release and the next attempt of a
	// closed loop. Default 20 ms.
	Think time.Duration
	// Lease is what is asked for. Zero: the lock's watchdog.
	Lease time.Duration
	// Wait is how long a client waits for a lock. Zero: one try.
	Wait time.Duration
	// Rate makes an open loop: that many attempts a second begin, over all
	// clients together, whether or not earlier ones are done; those for which
	// no client is free wait for one. Zero: a closed loop.
	Rate float64
	// Careless clients go on using the resource when they were told that
	// they lost the lock.
	Careless bool
	// Seed decides all choices, though not how real processes interleave.
	Seed uint64
}

// WithDefaults fills in the defaults.
func (c Config) WithDefaults() Config {
	c.Clients = orDefault(c.Clients, 8)
	c.Locks = orDefault(c.Locks, 3)
	c.Hold = orDefault(c.Hold, 20*time.Millisecond)
	c.Think = orDefault(c.Think, 20*time.Millisecond)
	return c
}

func orDefault[T int | time.Duration](v, otherwise T) T {
	if v == 0 {
		return otherwise
	}
	return v
}

// Validate joins everything that is wrong with the configuration.
func (c Config) Validate() error {
	var errs []error
	positive := func(name string, v int64) {
		if v < 0 {
			errs = append(errs, fmt.Errorf("%s must not be negative", name))
		}
	}
	positive("clients", int64(c.Clients))
	positive("locks", int64(c.Locks))
	positive("hold", int64(c.Hold))
	positive("think", int64(c.Think))
	positive("lease", int64(c.Lease))
	positive("wait", int64(c.Wait))
	if !(c.Rate >= 0) || math.IsInf(c.Rate, 0) { // also not a number
		errs = append(errs, fmt.Errorf("rate must be 0 or more, not %v", c.Rate))
	}
	if c.Lease > 0 && c.Lease < leastLease {
		errs = append(errs, fmt.Errorf("lease must be at least %v", leastLease))
	}
	return errors.Join(errs...)
}

// leastLease is a lease within which a client can do anything.
const leastLease = 10 * time.Millisecond

// LockNames are the names of the locks: lock-1, lock-2 and so on.
func (c Config) LockNames() []string {
	names := make([]string, c.WithDefaults().Locks)
	for i := range names {
		names[i] = fmt.Sprintf("lock-%d", i+1)
	}
	return names
}

// requestTimeout bounds one request beyond the time that it may wait for the
// lock.
const requestTimeout = 2 * time.Second

// accesses is how many times the resource is used in one hold.
const accesses = 2

// A Zone is a group of clients that share a way to the servers.
type Zone struct {
	Name   string
	Locker lock.Locker
	// NodeName is how the history calls the server at an address; nil: by the
	// address.
	NodeName func(address string) string
}

// Run drives the clients, spread over the zones in turn, until the context
// ends. Then each finishes what it is at, and Run returns. Each lock has a
// [Register] of its own as its resource.
func Run(ctx context.Context, c Config, zones []Zone, r *history.Recorder, p *Processes) {
	c = c.WithDefaults()
	names := c.LockNames()
	resources := make([]Register, c.Locks)
	arrivals := arrive(ctx, c)
	var all sync.WaitGroup
	for i := range c.Clients {
		zone := zones[i%len(zones)]
		w := &worker{
			Config: c, names: names, resources: resources, arrivals: arrivals,
			rng: rand.New(rand.NewPCG(c.Seed, uint64(i)+1)),
			client: &Client{
				Name: fmt.Sprintf("%s.%d", zone.Name, i+1), Locker: zone.Locker, Recorder: r, Processes: p,
				Careless: c.Careless, NodeName: zone.NodeName,
			},
		}
		all.Go(func() { w.run(ctx) })
	}
	all.Wait()
}

// arrive begins attempts at the configured rate, at random intervals; nil for
// a closed loop.
func arrive(ctx context.Context, c Config) <-chan struct{} {
	if c.Rate == 0 {
		return nil
	}
	rng := rand.New(rand.NewPCG(c.Seed, 0))
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
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// A worker is one client with its habits.
type worker struct {
	Config
	names     []string
	resources []Register
	arrivals  <-chan struct{}
	rng       *rand.Rand
	client    *Client
}

func (w *worker) run(ctx context.Context) {
	for w.next(ctx) {
		which := w.rng.IntN(len(w.names))
		hold := w.around(w.Hold)
		if w.rng.IntN(20) == 0 {
			hold *= 20
		}
		w.once(ctx, w.names[which], &w.resources[which], hold)
	}
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

// once acquires, uses and releases one lock. The end of the run cuts the work
// short, but no request: what was asked for is answered, and what is held is
// given back.
func (w *worker) once(ctx context.Context, name string, r Resource, hold time.Duration) {
	requests := context.WithoutCancel(ctx)
	request, cancel := context.WithTimeout(requests, w.Wait+requestTimeout)
	outcome := w.client.Acquire(request, name, w.Lease, w.Wait)
	cancel()
	if outcome != history.OK {
		return
	}
	for range accesses {
		if w.noticed() && !w.Careless {
			break
		}
		if w.client.Read(ctx, name, r) != nil {
			continue
		}
		w.use(ctx, hold/accesses)
		if w.noticed() && !w.Careless {
			w.client.Abandon(name)
			break
		}
		w.client.Write(ctx, name, r)
	}
	request, cancel = context.WithTimeout(requests, requestTimeout)
	defer cancel()
	w.client.Release(request)
}

// noticed reports whether the client was told that it lost the lock.
func (w *worker) noticed() bool {
	select {
	case <-w.client.Lost():
		w.client.NoticeLost()
		return true
	default:
		return false
	}
}

// use is the work under the lock. It stops when the lock is lost, unless the
// client does not care.
func (w *worker) use(ctx context.Context, d time.Duration) {
	lost := w.client.Lost()
	if w.Careless {
		lost = nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-lost:
	case <-ctx.Done():
	}
}
