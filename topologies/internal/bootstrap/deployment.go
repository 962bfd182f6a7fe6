package bootstrap

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/internal/traffic"
	"github.com/lockchaos/lockchaos/topologies"
)

// A deployment is parts put together.
type deployment struct {
	parts    Parts
	topology topologies.Topology
	elector  elector
	members  *members // of a consensus store; else nil
	name     *name    // nil where clients go by none
	servers  map[string]topologies.Server
	proofs   map[string]string // a key of each shard of a cluster
	close    func() error
	instead  func() error // of closing; nil: nothing
}

func assemble(p Parts) *deployment {
	p.MasterName = cmp.Or(p.MasterName, defaultMasterName)
	if p.Log == nil {
		p.Log = slog.New(slog.DiscardHandler)
	}
	p.Without = uninstrumented(p)
	d := &deployment{parts: p, topology: p.Topology, servers: map[string]topologies.Server{}, proofs: map[string]string{}}
	d.elector = followers{deployment: d}
	store, consensus := p.Store.(Consensus)
	switch {
	case consensus:
		d.members = &members{deployment: d, store: store}
		d.elector = d.members
	case len(d.topology.Of(topologies.Sentinel)) > 0:
		d.elector = &sentinels{deployment: d}
	case d.topology.HasSlots():
		if d.parts.Slots == nil {
			d.parts.Slots = map[string]int{}
			shards := d.topology.Shards()
			for i, shard := range shards {
				d.parts.Slots[shard], _ = traffic.SlotRange(i, len(shards))
			}
		}
		for shard, slot := range d.parts.Slots {
			d.proofs[shard] = KeyIn(proofKey, slot)
		}
		d.elector = &cluster{deployment: d, elected: map[string]time.Time{}}
	}
	if p.Name != nil {
		d.name = &name{Name: *p.Name}
	}
	for name, n := range p.Nodes {
		d.servers[name] = d.manage(name, n.Server)
	}
	d.close = sync.OnceValue(d.tearDown)
	return d
}

// bring makes the deployment ready, or closes it.
func (d *deployment) bring(ctx context.Context, first func(context.Context) error) (topologies.Deployment, error) {
	limited, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("not ready after %v", readyTimeout))
	defer cancel()
	err := first(limited)
	if err == nil {
		d.name.begin(d)
		err = d.AwaitReady(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start topology %s: %w", d.topology.Name, err), d.Close())
	}
	return d, nil
}

// start starts the servers. A replica that finds no master waits a second
// before it tries again, so the masters come first.
func (d *deployment) start(ctx context.Context) error {
	for _, masters := range []bool{true, false} {
		var names []string
		for _, n := range d.topology.Nodes {
			if n.Kind != topologies.Zone && (n.Role == topologies.Master) == masters {
				names = append(names, n.Name)
			}
		}
		if len(names) == 0 {
			continue
		}
		d.parts.Log.InfoContext(ctx, "starting servers", "servers", names)
		group, ctx := errgroup.WithContext(ctx)
		for _, name := range names {
			group.Go(func() error { return d.servers[name].Restart(ctx) })
		}
		if err := group.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// Topology is what was started.
func (d *deployment) Topology() topologies.Topology { return d.topology }

// Version is the version of the servers.
func (d *deployment) Version() string { return d.parts.Version }

// Product is what the servers are.
func (d *deployment) Product() string { return cmp.Or(d.parts.Product, d.topology.Store()) }

// Server returns a server or sentinel, or nil.
func (d *deployment) Server(name string) topologies.Server {
	return d.servers[name]
}

// NodeAt is the name of the server that announces an address, or of the address
// that moves; the address itself if it is neither.
func (d *deployment) NodeAt(address string) string {
	if d.name != nil && d.name.Address == strings.TrimSpace(address) {
		return topologies.Primary
	}
	for name, n := range d.parts.Nodes {
		if n.Announced == strings.TrimSpace(address) {
			return name
		}
	}
	return address
}

// Addresses are those that servers announce, and the one that moves.
func (d *deployment) Addresses() []string {
	var all []string
	for _, n := range d.parts.Nodes {
		all = append(all, n.Announced)
	}
	if d.name != nil {
		all = append(all, d.name.Address)
	}
	slices.Sort(all)
	return all
}

// Proxy returns the proxy of a link, or nil.
func (d *deployment) Proxy(name string) topologies.Proxy { return d.parts.Proxy(name) }

// uninstrumented is what parts can't do, clocks and disks included.
func uninstrumented(p Parts) map[topologies.Capability]string {
	without := map[topologies.Capability]string{}
	maps.Copy(without, p.Without)
	maps.Copy(without, p.Topology.Unsupported())
	const why = "the servers see the clock and the disk of their machine; others are shown to local processes alone (--backend process)"
	for _, c := range []topologies.Capability{topologies.Clocks, topologies.Disks} {
		if _, said := without[c]; !said && p.Instruments == nil {
			without[c] = why
		}
	}
	if p.Foreign {
		without[topologies.Workers] = "clients that are processes of their own know the way to our own servers only"
	}
	return without
}

// Instruments returns a server's clock and disk, or nil.
func (d *deployment) Instruments(server string) topologies.Instruments {
	if d.parts.Instruments == nil {
		return nil
	}
	return d.parts.Instruments(server)
}

// Unsupported says what can't be done, and why.
func (d *deployment) Unsupported() map[topologies.Capability]string {
	return maps.Clone(d.parts.Without)
}

// ClientOptions connect a zone's clients through its links.
func (d *deployment) ClientOptions(zone string) *redis.UniversalOptions {
	o := patientFor(ClientTimeout)
	o.Dialer = d.parts.Dial(zone)
	var entry []string
	switch sentinels := d.topology.Of(topologies.Sentinel); {
	case d.name != nil:
		o.Addrs = []string{d.name.Address}
	case len(sentinels) > 0:
		entry, o.MasterName = sentinels, d.parts.MasterName
	default:
		entry = d.topology.Servers()
		o.IsClusterMode = d.topology.HasSlots()
	}
	for _, name := range entry {
		o.Addrs = append(o.Addrs, d.parts.Nodes[name].Announced)
	}
	if d.parts.Client != nil {
		d.parts.Client(o)
	}
	return o
}

// Adopt has a process group dial as a zone does.
func (d *deployment) Adopt(group int, zone string) (func(), error) {
	if d.parts.Adopt == nil {
		return nil, fmt.Errorf("clients of %s can't be told apart by their process: use backend process or container", zone)
	}
	return d.parts.Adopt(group, zone), nil
}

// observer is the connection to a server past every fault.
func (d *deployment) observer(name string) *redis.Client { return d.parts.Nodes[name].Observer() }

// masters are the boot masters, those without a replica included.
func (d *deployment) masters() []string {
	return slices.DeleteFunc(d.topology.Of(topologies.Redis), func(name string) bool {
		n, _ := d.topology.Node(name)
		return n.Role != topologies.Master
	})
}

// Close ends every fault, puts back what a failover changed on attached servers,
// and closes the parts, unless it is reused. A second call returns what the first one did.
func (d *deployment) Close() error {
	if d.instead != nil {
		return d.instead()
	}
	return d.close()
}

// Reuse has Close do something else.
func (d *deployment) Reuse(instead func() error) { d.instead = instead }

// CheckClaim fails once another run has the deployment, as one that is attached to
// can become.
func (d *deployment) CheckClaim() error {
	if d.parts.Check == nil {
		return nil
	}
	return d.parts.Check()
}

// Empty removes what clients wrote to a consensus store.
func (d *deployment) Empty(ctx context.Context) error {
	switch {
	case d.parts.Foreign:
		return errors.New("what is in servers that are not ours stays there")
	case d.members == nil:
		return errors.New("the servers are of no consensus store")
	}
	return d.members.store.Empty(ctx, d.parts.Nodes[d.topology.Servers()[0]].At)
}

// tearDown restores before it disarms: the sentinel that was armed may be among
// those that are killed or paused.
func (d *deployment) tearDown() error {
	var errs []error
	d.name.end()
	if d.parts.Restore != nil {
		errs = append(errs, d.parts.Restore())
	}
	if d.parts.Foreign {
		ctx, cancel := context.WithTimeout(context.Background(), disarmTimeout)
		defer cancel()
		errs = append(errs, d.elector.disarm(ctx))
	}
	return topologies.Left(append(errs, d.parts.Close())...)
}

// disarmTimeout bounds how long Close tries to put things back.
const disarmTimeout = 5 * time.Second

// observerTimeout bounds how long a look at a server may take; a paused one
// does not answer.
const observerTimeout = 200 * time.Millisecond

// dialsBeforePause is the size of the connection pools. It is no number of
// connections: go-redis stops dialling for a second once as many dials have
// failed, and a server that comes back must be seen at once.
const dialsBeforePause = 4096

// bufferSize is that of each buffer of a connection. Commands and replies of locks are
// short, and faults make clients dial again and again: with go-redis' 32 KiB, buffers
// were 43 % of what the tests of package harness allocate.
const bufferSize = 4 << 10

// patientFor are the options of clients that wait so long.
func patientFor(timeout time.Duration) *redis.UniversalOptions {
	o := topologies.OnceOptions(timeout)
	o.PoolSize, o.ReadBufferSize, o.WriteBufferSize = dialsBeforePause, bufferSize, bufferSize
	return o
}

// ObserverOptions are those of a connection past every fault, to the address
// where a server listens. They know of no credentials.
func ObserverOptions(address string) *redis.Options {
	o := patientFor(observerTimeout).Simple()
	o.Addr = address
	return o
}

// ClientTimeout is how long a client waits for a connection or a reply. It is
// short, so that one behind a cut link finds out within the run.
const ClientTimeout = time.Second

// watchEvery is how often a server is asked what it takes itself for. Twice as often took
// an eighth of the processor time of a run on a cluster.
const watchEvery = 50 * time.Millisecond

// Watch asks every server for its role, every sentinel and the name for the master,
// and every node of a cluster for its epoch, over and over, and reports changes. A
// server that does not answer is passed over until it does.
func (d *deployment) Watch(ctx context.Context, report func(topologies.Observation)) {
	var all sync.WaitGroup
	every := watchEvery
	if d.members != nil {
		every = watchMembersEvery
	}
	look := func(node, what string, ask func() (string, error)) {
		all.Go(func() {
			last := ""
			for ; ctx.Err() == nil; _ = await.Pause(ctx, every) {
				if value, err := ask(); err == nil && value != last {
					last = value
					report(topologies.Observation{Node: node, What: what, Value: value})
				}
			}
		})
	}
	for name := range d.parts.Nodes {
		if n, _ := d.topology.Node(name); n.Kind == topologies.Sentinel {
			look(name, "master", func() (string, error) { return d.masterOf(ctx, name) })
			continue
		}
		look(name, "role", func() (string, error) { return d.role(ctx, name) })
		if d.topology.HasSlots() {
			look(name, "epoch", func() (string, error) { // of its shard: each promotion has a higher one
				info, err := d.info(ctx, name)
				return info["cluster_my_epoch"], err
			})
		}
	}
	if d.name != nil {
		look(topologies.Primary, "master", d.name.target)
	}
	all.Wait()
}
