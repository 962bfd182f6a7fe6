package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/internal/bootstrap"
	"github.com/lockchaos/lockchaos/topologies/internal/proxynet"
	"github.com/lockchaos/lockchaos/topologies/internal/scratch"
	"github.com/lockchaos/lockchaos/topologies/shim"
)

// Backend starts topologies as local processes, of the programs that [Find] finds.
type Backend struct {
	// Log gets what a boot waits for. Nil: it is not logged.
	Log *slog.Logger
	// Shim preloads every server with a library, so that clocks and disks can
	// be interfered with; see [Backend.Instrumented]. It is compiled once, and
	// Start fails with [topologies.ErrMissing] where no C
	// compiler is.
	Shim bool
}

// Start boots a topology and waits until it is ready. It fails with
// [topologies.ErrMissing] or [topologies.ErrTooOld] if no server of the topology can be run;
// when a server does not start, the error carries its last words.
func (b Backend) Start(ctx context.Context, t topologies.Topology) (topologies.Deployment, error) {
	program := programs()[t.Store()]
	binary, err := Find(ctx, t.Store())
	if err != nil {
		return nil, err
	}
	if b.Shim || program.rebinds {
		if _, err := shim.FindCompiler(); err != nil {
			return nil, err
		}
	}
	g := &resources{store: program.store, servers: map[string]*server{}}
	parts := bootstrap.Parts{Topology: t, Store: g.store, Version: binary.Version, Product: binary.Product, Log: b.Log, Close: g.clear}
	if parts.Nodes, err = g.prepare(t, binary); err == nil && program.rebinds {
		err = g.rebind()
	}
	if err == nil && b.Shim {
		parts.Instruments = func(name string) topologies.Instruments {
			if s := g.servers[name]; s != nil {
				return s.shim
			}
			return nil
		}
		err = g.shims()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start topology %s: %w", t.Name, err), topologies.Left(g.clear()))
	}
	parts.Wire(g.network, g.source, g.block.name())
	return bootstrap.Boot(ctx, parts)
}

// resources are all that a deployment has and that must be cleared after it.
type resources struct {
	store   bootstrap.Store
	block   *addressBlock
	folder  *scratch.Folder
	network *proxynet.Network
	servers map[string]*server
}

// prepare gives every endpoint its addresses, and everything that it needs to
// start.
func (g *resources) prepare(t topologies.Topology, binary Binary) (map[string]bootstrap.Node, error) {
	var err error
	if g.block, err = takeBlock(firstBlock, lastBlock); err != nil {
		return nil, err
	}
	folder := scratch.Make
	if t.Consensus() {
		folder = scratch.MakeFast // members wait for the disk at each write, and at a busy one lose their leader
	}
	if g.folder, err = folder("process"); err != nil {
		return nil, err
	}
	addresses := g.block.addresses(t)
	nodes := map[string]bootstrap.Node{}
	for name, at := range addresses {
		s, err := newServer(name, binary, g.store, at, g.store.Configure(t, name, addresses), g.folder)
		if err != nil {
			return nil, err
		}
		g.servers[name] = s
		if _, ok := g.store.(bootstrap.Consensus); ok {
			// Its peers dial from whatever address the kernel chooses, so that they are told
			// apart by their processes.
			s.child.launched = func(pid int) func() { return g.network.Adopt(pid, name) }
		}
		nodes[name] = bootstrap.Node{Server: s, Announced: at.Announced.String(), At: at}
	}
	if g.network, err = proxynet.New(bootstrap.Endpoints(t, g.store, addresses, g.source, g.block.name()), t.Links); err != nil {
		return nil, err
	}
	return nodes, nil
}

// source is the address that the clients of the nth zone dial from.
func (g *resources) source(n int) netip.Addr { return g.block.zone(byte(n + 1)) }

// clearTimeout bounds how long it may take to end every process. Milliseconds are
// usual.
const clearTimeout = 30 * time.Second

// clear ends every process, waits for them and removes their files.
func (g *resources) clear() error {
	var errs []error
	ctx, cancel := context.WithTimeout(context.Background(), clearTimeout)
	defer cancel()
	for _, s := range g.servers {
		errs = append(errs, s.Kill(ctx), s.Observer().Close())
		if s.shim != nil {
			errs = append(errs, s.shim.Close())
		}
	}
	if g.network != nil {
		errs = append(errs, g.network.Close())
	}
	if g.folder != nil {
		errs = append(errs, g.folder.Close())
	}
	if g.block != nil {
		errs = append(errs, g.block.release())
	}
	return errors.Join(errs...)
}
