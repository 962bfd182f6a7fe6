package container

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/moby/moby/client"
	"golang.org/x/sync/errgroup"

	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/internal/bootstrap"
	"github.com/lockchaos/lockchaos/topologies/internal/docker"
	"github.com/lockchaos/lockchaos/topologies/internal/proxynet"
	"github.com/lockchaos/lockchaos/topologies/internal/scratch"
)

// Backend starts topologies in containers. Its zero value uses [LocalImage]
// where it is there, else [OfficialImage].
type Backend struct {
	// Image is what nodes are made of: any with /bin/sh and the server program. One
	// that is not on this machine is pulled.
	Image string
	// Log gets what a boot waits for. Nil: it is not logged.
	Log *slog.Logger
}

// Start boots a topology and waits until it is ready. It fails with
// [topologies.ErrMissing] if there is no engine that can be used, or no image,
// with [topologies.ErrUnusable] if the image that was asked for is no good, and
// with [topologies.ErrTooOld] if the image's Redis is; when a server does
// not start, the error carries its last words.
func (b Backend) Start(ctx context.Context, t topologies.Topology) (topologies.Deployment, error) {
	if b.Log == nil {
		b.Log = slog.New(slog.DiscardHandler)
	}
	engine, err := connect(ctx)
	if err != nil {
		return nil, err
	}
	image, err := findImage(ctx, engine, b.Image, t.Store(), b.Log)
	if err != nil {
		return nil, errors.Join(err, engine.Close())
	}
	b.Log.InfoContext(ctx, "making containers", "image", image.name)
	g := &resources{program: programs()[t.Store()], engine: engine}
	if err := g.prepare(ctx, t, image); err != nil {
		return nil, errors.Join(fmt.Errorf("start topology %s: %w", t.Name, err), topologies.Left(g.clear()))
	}
	nodes := map[string]bootstrap.Node{}
	for _, n := range g.nodes {
		nodes[n.Name()] = bootstrap.Node{Server: n.Host, Announced: n.At.Announced.String(), At: n.At}
	}
	parts := bootstrap.Parts{Topology: t, Store: g.program.store, Version: g.version, Nodes: nodes, Log: b.Log, Close: g.clear}
	parts.Wire(g.network, source, g.name)
	return bootstrap.Boot(ctx, parts)
}

// resources are all that a deployment has and that must be cleared after it.
type resources struct {
	program   program
	engine    *client.Client
	dir       string
	labels    map[string]string
	folder    *scratch.Folder
	bridge    *bridge
	network   *proxynet.Network
	addresses map[string]bootstrap.Address
	name      netip.AddrPort // the address that moves, for a topology that has one
	version   string         // of the servers
	nodes     []*node
	unsure    bool // whether there is something that we don't know of
}

// makeTimeout bounds how long the engine may take to make everything. Half a
// second is usual, and a second for each network where it makes several at once, one
// after the other.
const makeTimeout = time.Minute

// prepare makes everything but starts no server. What the engine was asked to
// make is waited for even if the boot is called off: it would make it anyway,
// and no message would say so.
func (g *resources) prepare(ctx context.Context, t topologies.Topology, i image) error {
	making, cancel := context.WithTimeout(context.WithoutCancel(ctx), makeTimeout)
	defer cancel()
	err := g.make(making, t, i)
	g.unsure = making.Err() != nil
	return cmp.Or(err, context.Cause(ctx))
}

func (g *resources) make(ctx context.Context, t topologies.Topology, i image) error {
	if err := g.claim(); err != nil {
		return err
	}
	var err error
	if g.bridge, err = makeBridge(ctx, g.engine, g.labels); err != nil {
		return err
	}
	if g.version = i.version; g.version == "" {
		if g.version, err = g.askVersion(ctx, t.Store(), i); err != nil {
			return fmt.Errorf("%w: image %s does not tell its version of %s (`make %[3]s image` puts that of this machine into %s): %w",
				i.unusable(), i.name, t.Store(), LocalImage, err)
		}
	}
	if err := bootstrap.NewEnough(t.Store(), "image "+i.name, g.version); err != nil {
		return fmt.Errorf("%w: %w", i.unusable(), err)
	}
	if err := g.wire(t); err != nil {
		return err
	}
	var group errgroup.Group // in which one that fails leaves the others alone
	for _, name := range append(t.Servers(), t.Of(topologies.Sentinel)...) {
		config := g.program.store.Configure(t, name, g.addresses)
		config.Args = slices.Concat(g.program.args, config.Args)
		n, err := g.node(name, g.addresses[name])
		if err != nil {
			return errors.Join(err, group.Wait())
		}
		g.nodes = append(g.nodes, n)
		group.Go(func() error { return n.create(ctx, i, g.bridge, g.labels, config) })
	}
	return group.Wait()
}

// claim makes the folder, and sees to it that all is removed if we die.
func (g *resources) claim() error {
	boot, err := thisBoot()
	if err != nil {
		return err
	}
	parent := os.TempDir()
	if _, ok := g.program.store.(bootstrap.Consensus); ok {
		parent = scratch.Fast() // members wait for the disk at each write, and at a busy one lose their leader
	}
	parent, err = filepath.Abs(parent)
	if err != nil {
		return fmt.Errorf("make data folder: %w", err)
	}
	g.dir = filepath.Join(parent, folderPrefix+rand.Text()[:12])
	g.labels = map[string]string{
		deploymentLabel: filepath.Base(g.dir), harnessLabel: fmt.Sprintf("%s/%d", boot, os.Getpid()), folderLabel: g.dir,
	}
	command, _ := exec.LookPath("docker") // else only Clean is left
	g.folder, err = scratch.Hold(g.dir, reaperScript, command, g.engine.DaemonHost(), deploymentLabel+"="+g.labels[deploymentLabel], g.dir)
	return err
}

// node prepares a node with a folder of its own.
func (g *resources) node(name string, at bootstrap.Address) (*node, error) {
	n := &node{Container: docker.Container{Engine: g.engine}, program: g.program}
	var err error
	n.Host, err = bootstrap.NewHost(g.program.store, name, at, g.dir, &n.Container, 0)
	return n, err
}

// clearTimeout bounds how long it may take to remove everything. A second is
// usual.
const clearTimeout = time.Minute

// clear removes everything that was made.
func (g *resources) clear() error {
	ctx, cancel := context.WithTimeout(context.Background(), clearTimeout)
	defer cancel()
	var group errgroup.Group
	for _, n := range g.nodes {
		group.Go(func() error { return errors.Join(n.remove(ctx), n.Observer().Close()) })
	}
	errs := []error{group.Wait()}
	if g.network != nil {
		errs = append(errs, g.network.Close())
	}
	if g.bridge != nil {
		errs = append(errs, letGo(ctx, g.engine, g.bridge.ID, g.bridge.Remove))
	}
	if g.dir != "" {
		errs = append(errs, os.RemoveAll(g.dir))
	}
	switch tidied := !g.unsure && errors.Join(errs...) == nil; {
	case g.folder == nil:
	case tidied:
		errs = append(errs, g.folder.Tell(tidy), g.folder.Close())
	default: // the reaper tries what we could not do
		errs = append(errs, g.folder.Leave())
	}
	return errors.Join(append(errs, g.engine.Close())...)
}
