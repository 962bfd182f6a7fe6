package bootstrap

import (
	"context"

	"github.com/lockchaos/lockchaos/topologies"
)

// A managed server is one of ours for which starting the process is not all
// that there is to a start.
type managed struct {
	topologies.Server
	before, after func(ctx context.Context) error // nil: nothing
}

// manage makes a server start as its topology wants it.
func (d *deployment) manage(name string, s topologies.Server) topologies.Server {
	m := managed{Server: s}
	n, _ := d.topology.Node(name)
	_, cantWipe := d.parts.Without[topologies.Wiping]
	if e, ok := d.elector.(*sentinels); ok && n.Kind == topologies.Sentinel {
		m.after = func(ctx context.Context) error { return e.tuneOne(ctx, name) }
	}
	if n.Kind == topologies.Redis && d.topology.Options.Persistence == topologies.PersistNone && !cantWipe {
		// Replicas sync through a file, and a server that finds it would start
		// with what it held then.
		m.before = s.Wipe
	}
	if d.parts.Foreign || m.before == nil && m.after == nil {
		return s
	}
	return m
}

// Restart starts the process again.
func (m managed) Restart(ctx context.Context) error {
	if m.before != nil {
		if err := m.before(ctx); err != nil {
			return err
		}
	}
	if err := m.Server.Restart(ctx); err != nil || m.after == nil {
		return err
	}
	return m.after(ctx)
}
