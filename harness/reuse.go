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

// Reuse returns a backend for many short runs, one at a time, and what closes it
// in the end. A deployment that a run has closed goes on, and the next run that
// wants one like it gets it: without a key, whole, and with the masters that it
// booted with. One that is not so again within seconds, that still has a fault, or
// whose slots were moved, is closed.
//
// It is for servers of ours alone: what is in them is removed. The log of a server
// goes on as well, so that a run's copy has that of the runs before.
func Reuse(b topologies.Backend) (topologies.Backend, func() error) {
	r := &reuse{inner: b}
	in, ok := b.(topologies.Instrumenter)
	if !ok {
		return r, r.close
	}
	i := &instrumentedReuse{reuse: r, with: &reuse{inner: in.Instrumented()}}
	return i, func() error { return errors.Join(r.close(), i.with.close()) }
}

type reuse struct {
	inner topologies.Backend

	mu   sync.Mutex
	idle []*reused
}

// An instrumentedReuse can have servers that see other clocks and disks.
type instrumentedReuse struct {
	*reuse

	with *reuse
}

// Instrumented is the same for servers with clocks and disks.
func (i *instrumentedReuse) Instrumented() topologies.Backend { return i.with }

// Start returns a deployment that is idle, or a new one.
func (r *reuse) Start(ctx context.Context, t topologies.Topology) (topologies.Deployment, error) {
	r.mu.Lock()
	at := slices.IndexFunc(r.idle, func(d *reused) bool {
		return d.wanted.Name == t.Name && d.wanted.Options == t.Options
	})
	if at >= 0 {
		d := r.idle[at]
		r.idle = slices.Delete(r.idle, at, at+1)
		r.mu.Unlock()
		return d.public(), nil
	}
	r.mu.Unlock()
	d, err := r.inner.Start(ctx, t)
	if err != nil {
		return nil, err
	}
	return (&reused{Deployment: d, wanted: t, by: r}).public(), nil
}

func (r *reuse) close() error {
	r.mu.Lock()
	idle := r.idle
	r.idle = nil
	r.mu.Unlock()
	var errs []error
	for _, d := range idle {
		errs = append(errs, d.Deployment.Close())
	}
	return errors.Join(errs...)
}

// A reused deployment outlives its run.
type reused struct {
	topologies.Deployment

	wanted topologies.Topology
	by     *reuse
	spoilt bool
}

// Ours fails once another run has claimed it.
func (d *reused) Ours() error { return lostClaim(d.Deployment) }

// spoil says that no other run may have it.
func (d *reused) spoil() { d.spoilt = true }

// public is the deployment as its user sees it.
func (d *reused) public() topologies.Deployment {
	switch inner := d.Deployment.(type) {
	case topologies.Failover:
		return &reusedFailover{Failover: inner, of: d}
	case topologies.Replicated:
		return &reusedReplicated{Replicated: inner, of: d}
	default:
		return d
	}
}

// A reusedReplicated is one whose masters can change.
type reusedReplicated struct {
	topologies.Replicated

	of *reused
}

func (d *reusedReplicated) spoil() { d.of.spoil() }

// Ours fails once it is of another run.
func (d *reusedReplicated) Ours() error { return d.of.Ours() }

// Close keeps the deployment for the next run, or ends it.
func (d *reusedReplicated) Close() error { return d.of.Close() }

// A reusedFailover is one whose servers replace their masters.
type reusedFailover struct {
	topologies.Failover

	of *reused
}

func (d *reusedFailover) spoil() { d.of.spoil() }

// Ours fails once it is of another run.
func (d *reusedFailover) Ours() error { return d.of.Ours() }

// Close keeps the deployment for the next run, or ends it.
func (d *reusedFailover) Close() error { return d.of.Close() }

// renewTimeout bounds how long it may take to make a deployment as new.
const renewTimeout = 5 * time.Second

// Close keeps the deployment for the next run, if it is as good as new.
func (d *reused) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), renewTimeout)
	defer cancel()
	if d.spoilt || d.renew(ctx) != nil {
		return d.Deployment.Close()
	}
	d.by.mu.Lock()
	defer d.by.mu.Unlock()
	d.by.idle = append(d.by.idle, d)
	return nil
}

// renew removes what a run left in the servers, and proves the deployment whole.
func (d *reused) renew(ctx context.Context) error {
	for _, n := range d.Topology().Nodes {
		if n.Kind != topologies.Redis {
			continue
		}
		rdb := d.Server(n.Name).Observer()
		role, err := rdb.Do(ctx, "ROLE").Slice()
		switch {
		case err != nil:
			return err
		case len(role) == 0 || (role[0] == "master") != (n.Role == topologies.Master):
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
