package harness

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockchaos/lockchaos/topologies"
)

// Pool returns a backend for many short runs, one at a time, and a function that stops
// all its servers. A deployment that a run has closed stays up, and is given to the next
// run that wants the same topology: without a key, whole, and with the masters that it
// booted with. A deployment that is not so again within seconds, that still has a fault, or
// whose slots were moved, is stopped; so is one that no run wanted for [idleFor].
//
// It is for servers that the harness started: it removes all their data. A server's log
// goes on as well, so that the copy in a run directory has that of the runs before.
func Pool(b topologies.Backend) (topologies.Backend, func() error) {
	r := &pool{inner: b}
	in, ok := b.(topologies.Instrumenter)
	if !ok {
		return r, r.close
	}
	i := &instrumentedPool{pool: r, with: &pool{inner: in.Instrumented()}}
	return i, func() error { return errors.Join(r.close(), i.with.close()) }
}

type pool struct {
	inner topologies.Backend

	mu   sync.Mutex
	idle []*pooled
	errs []error // of the ends of those that no run wanted
}

// A pooled deployment waits for the next run.
type pooled struct {
	topologies.Deployment

	wanted topologies.Topology
	unused *time.Timer // stops it
}

// idleFor is how long a deployment waits: as long as one of sentinels or of a cluster
// takes as much processor time for its heartbeats as to be started again.
const idleFor = 4 * time.Second

// An instrumentedPool can have servers that see other clocks and disks.
type instrumentedPool struct {
	*pool

	with *pool
}

// Instrumented is the same for servers with clocks and disks.
func (i *instrumentedPool) Instrumented() topologies.Backend { return i.with }

// Start returns an idle deployment, or a new one.
func (r *pool) Start(ctx context.Context, t topologies.Topology) (topologies.Deployment, error) {
	r.mu.Lock()
	idle := r.take(func(d *pooled) bool { return d.wanted.Name == t.Name && d.wanted.Options == t.Options })
	r.mu.Unlock()
	if idle != nil {
		return idle.Deployment, nil
	}
	d, err := r.inner.Start(ctx, t)
	if err == nil {
		d.Reuse(func() error { return r.put(&pooled{Deployment: d, wanted: t}) }) //nolint:contextcheck // a run closes its deployment after its context has ended
	}
	return d, err
}

// take takes a deployment that waits out of the pool; nil if there is none of those.
func (r *pool) take(is func(*pooled) bool) *pooled {
	at := slices.IndexFunc(r.idle, is)
	if at < 0 {
		return nil
	}
	d := r.idle[at]
	d.unused.Stop()
	r.idle = slices.Delete(r.idle, at, at+1)
	return d
}

// end stops one of those that wait, if it still does.
func (r *pool) end(is func(*pooled) bool) (there bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := r.take(is)
	if d != nil {
		r.errs = append(r.errs, d.stop())
	}
	return d != nil
}

func (r *pool) close() error {
	for there := true; there; {
		there = r.end(func(*pooled) bool { return true })
	}
	return errors.Join(r.errs...)
}

// stop closes the deployment.
func (d *pooled) stop() error {
	d.Reuse(nil)
	return d.Close()
}

// resetTimeout bounds how long it may take to make a deployment as good as new: replicas
// synchronize again, which takes seconds where the machine is busy.
const resetTimeout = 15 * time.Second

// put takes a deployment back if it is as good as new, else it stops it.
func (r *pool) put(d *pooled) error {
	ctx, cancel := context.WithTimeout(context.Background(), resetTimeout)
	defer cancel()
	if d.reset(ctx) != nil {
		return d.stop()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.idle = append(r.idle, d)
	d.unused = time.AfterFunc(idleFor, func() { r.end(func(other *pooled) bool { return other == d }) })
	return nil
}

// reset removes what a run left in the servers, and proves the deployment whole.
func (d *pooled) reset(ctx context.Context) error {
	if d.Topology().Consensus() {
		if err := d.AwaitReady(ctx); err != nil {
			return err
		}
		return d.Empty(ctx)
	}
	if why, lacks := d.Topology().Unsupported()[topologies.Settings]; lacks {
		return errors.New(why) // so that its locks stay
	}
	for _, n := range d.Topology().Nodes {
		if n.Kind != topologies.Redis {
			continue
		}
		rdb := d.Server(n.Name).Observer()
		role, _, err := topologies.RoleOf(ctx, rdb)
		switch {
		case err != nil:
			return err
		case role != n.Role:
			return fmt.Errorf("%s is no %s any more", n.Name, n.Role)
		case n.Role != topologies.Master:
			continue
		}
		if err := errors.Join(rdb.FlushAll(ctx).Err(), rdb.ScriptFlush(ctx).Err()); err != nil {
			return err
		}
	}
	return d.AwaitReady(ctx)
}
