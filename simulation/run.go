package simulation

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/simulation/world"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/workload"
)

// An Outcome is what came of a run.
type Outcome struct {
	// History is the record of the run, as JSON lines.
	History []byte
	events  []history.Event // the same, of a run of this process
	// Hash stands for the history: two runs with the same one are the same run.
	Hash string
	// Topology is the drawing of the deployment.
	Topology history.Topology
	// Counts are how much happened, and Links how many requests each link had.
	Counts world.Counts
	Links  map[string]int
	// Sent are the commands of clients, in order.
	Sent []world.Sent
	sent func() []world.Sent // makes them, of a run of this process
	// Virtual is how long the run took by its own clock.
	Virtual time.Duration
}

// clientTimeout is how long a client waits for a reply, as in runs on real servers.
const clientTimeout = time.Second

// bufferSize is that of a connection, in bytes. A run makes some 30 connections; buffers of go-redis
// (64 KiB each, and 256 KiB for pipelines) were most of what it allocates.
const bufferSize = 1 << 10

// poolSize is more than a run has connections: who waits for one uses timers that
// outlive the bubble.
const poolSize = 100

// usualEvents is how many events most runs have at most: a list that grows was a fiftieth of the time of a run.
const usualEvents = 256

// leftover is how long what clients left under way may take when they are closed. It
// costs nothing.
const leftover = time.Minute

// Run runs a case of a lock in a bubble of its own. The test is needed by package
// synctest alone; outside of a test, new(testing.T) serves. Runs come one after the
// other: a run gives the whole process its random numbers.
//
// An error says that the case can't be run, or that a run of this lock shows nothing: it
// did not ask the simulated servers, or goroutines of it wait for ever. A run that hangs
// ends the process, with exit code 255 and the stacks of all goroutines on the standard
// error.
func Run(t *testing.T, l harness.LockSpec, c Case) (out Outcome, err error) {
	t.Helper()
	if out, err = play(t, l, c); err == nil {
		err = out.write()
	}
	return out, err
}

// play is Run without the lines of the history, which take a sixth of the time of a run of redislock.
func play(t *testing.T, l harness.LockSpec, c Case) (out Outcome, err error) {
	t.Helper()
	if err := c.Validate(l); err != nil {
		return out, err
	}
	c = c.withDefaults()
	running.Lock()
	defer running.Unlock()
	reseed, restore := seedProcess(c.Seed)
	defer restore()
	defer guard(fmt.Sprintf("lock %s, seed %d", l.Name, c.Seed), world.Events, endProcess)()
	err = bubble(t, l, func() error {
		var err error
		out, err = run(l, c, reseed)
		return err
	})
	if err == nil {
		err = out.asked(l)
	}
	return out, err
}

// write makes what only a run that is kept needs: the lines of the history, what stands for them, and the list of commands.
func (o *Outcome) write() error {
	var b bytes.Buffer
	lines := json.NewEncoder(&b)
	lines.SetEscapeHTML(false)
	for i := range o.events {
		if err := cmp.Or(o.events[i].Validate(), lines.Encode(&o.events[i])); err != nil {
			return fmt.Errorf("write the history of a simulated run: %w", err)
		}
	}
	o.History = b.Bytes()
	sum := sha256.Sum256(o.History)
	o.Hash, o.Sent = hex.EncodeToString(sum[:8]), o.sent()
	return nil
}

// Read is the history of the run. To read the lines took a quarter of the time of a run of
// redislock, so that they are read only if another process made the run.
func (o *Outcome) Read() (*history.History, error) {
	if o.events != nil {
		return &history.History{Events: o.events}, nil
	}
	h, err := history.ReadAll(bytes.NewReader(o.History))
	if err != nil {
		return nil, fmt.Errorf("read the history of a simulated run: %w", err)
	}
	return h, nil
}

// A deployment is one of a case, with its record.
type deployment struct {
	*world.World
	Case
	lock      harness.LockSpec
	servers   []*world.Node
	sentinels []string // addresses
	zones     []*world.Zone
	recorder  *history.Recorder
	processes workload.Processes
	closers   []func()
	killed    map[string]time.Duration // zones, and when their processes were killed
	inside    []*redis.Client          // to look into each server; nil until the first look
}

func run(l harness.LockSpec, c Case, reseed func(uint64)) (out Outcome, err error) {
	d := deploy(l, c)
	defer d.Close()
	out.events = make([]history.Event, 0, usualEvents)
	d.recorder = history.NewRecorder(nil)
	d.recorder.Collect(&out.events)
	d.Notice = d.notice
	config := c.config(l)
	if c.Fork != nil {
		source, end := d.forks(reseed)
		defer end()
		config.Source = source
	}
	for _, name := range config.LockNames() {
		d.recorder.Record(l.Declared(name, config.Permits))
	}
	open := l.Begin()
	zones, err := d.open(open, config)
	if err == nil {
		err = d.Start()
	}
	if err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), c.Length)
		workload.Run(ctx, config, zones, d.recorder, &d.processes)
		cancel()
		out.Virtual = time.Since(d.recorder.Start())
	}
	err = errors.Join(err, d.recorder.Close())
	if len(d.killed) > 0 {
		out.events = withoutKilled(out.events, d.killed)
	}
	for _, do := range slices.Backward(d.closers) {
		do()
	}
	time.Sleep(leftover) // in virtual time: the bubble has no condition for "all timers fired"
	out.Counts, out.Links, out.sent, out.Topology = d.Counts(), d.Requests(), d.Sent, d.drawing()
	return out, err
}

// deploy makes the servers and zones.
func deploy(l harness.LockSpec, c Case) *deployment {
	d := &deployment{World: world.New(c.Seed, c.Plan), Case: c, lock: l, killed: map[string]time.Duration{}}
	for i := range c.serverCount() {
		n := d.AddServer(serverName(i + 1))
		if i > 0 && topologies.ShapeOf(c.Topology).Sentinels > 0 {
			n.Replicates(d.servers[0])
		}
		d.servers = append(d.servers, n)
	}
	if topologies.ShapeOf(c.Topology).Sentinels > 0 {
		d.sentinels = append(d.sentinels, d.AddSentinel("sentinel-1").Address())
	}
	if topologies.ShapeOf(c.Topology).Slots {
		d.Cluster(clusterMasters, c.shardOfLocks(l))
	}
	for i := range c.Zones {
		d.zones = append(d.zones, d.AddZone(zoneName(i)))
	}
	return d
}

// zoneName is the name of a zone, counted from 0.
func zoneName(i int) string { return "zone-" + string(rune('a'+i)) }

// options are those of the clients of a zone: the ones of runs on real servers.
func (d *deployment) options(z *world.Zone) *redis.UniversalOptions {
	o := topologies.OnceOptions(clientTimeout)
	o.Dialer, o.PoolSize, o.ReadBufferSize, o.WriteBufferSize = z.Dialer(), poolSize, bufferSize, bufferSize
	o.PipelineReadBufferSize, o.PipelineWriteBufferSize = bufferSize, bufferSize
	if len(d.sentinels) > 0 {
		o.MasterName, o.Addrs = world.MasterName, d.sentinels
	} else {
		o.IsClusterMode = topologies.ShapeOf(d.Topology).Slots
		for _, n := range d.servers {
			o.Addrs = append(o.Addrs, n.Address())
		}
	}
	return o
}

// open opens the lock in each zone.
func (d *deployment) open(open harness.Opener, config workload.Config) ([]workload.Zone, error) {
	registers := map[string]*workload.Register{}
	for _, name := range config.LockNames() {
		registers[name] = &workload.Register{}
	}
	var zones []workload.Zone
	for _, z := range d.zones {
		servers := topologies.Clients(d.options(z))
		for _, rdb := range servers {
			d.closers = append(d.closers, func() { _ = rdb.Close() })
		}
		locker, closeLocker, err := open(servers, harness.LockOptions{
			ReplicaAcks: d.ReplicaAcks, Watchdog: d.Watchdog, Permits: config.Permits, Clock: &z.Clock,
			Observer: workload.NewRenewals(d.recorder, &d.processes),
		})
		if err != nil {
			return nil, fmt.Errorf("open lock %s for %s: %w", d.lock.Name, z.Name(), err)
		}
		d.closers = append(d.closers, closeLocker)
		resources := map[string]workload.Resource{}
		for name, r := range registers {
			resources[name] = reached{r, z}
		}
		zone := workload.Zone{Name: z.Name(), Locker: locker, NodeName: d.NodeName, Resources: resources}
		if d.lock.LooksLeft {
			zone.Refused = d.refused
		}
		zones = append(zones, zone)
	}
	return zones, nil
}

// refused looks whether a refused request left the lock with its owner.
func (d *deployment) refused(ctx context.Context, lock, owner string) {
	if d.inside == nil {
		for _, n := range d.servers {
			client := n.Inside()
			d.inside = append(d.inside, client)
			d.closers = append(d.closers, func() { _ = client.Close() })
		}
	}
	for i, n := range d.servers {
		if !n.Leads() {
			continue
		}
		if e, left := d.lock.LeftOn(ctx, d.inside[i], n.Name(), lock, owner); left {
			d.recorder.Record(e)
		}
	}
}

// A reached register is one that a process uses only while it does not stand still.
type reached struct {
	*workload.Register
	zone *world.Zone
}

// Read reads the value.
func (r reached) Read(ctx context.Context) (int64, error) {
	if err := r.zone.Stand(); err != nil {
		return 0, err
	}
	return r.Register.Read(ctx)
}

// Write stores a value.
func (r reached) Write(ctx context.Context, c workload.Change) error {
	if err := r.zone.Stand(); err != nil {
		return err
	}
	return r.Register.Write(ctx, c)
}

// notice records a fault, or that a server has another role.
func (d *deployment) notice(n world.Notice) {
	if n.Server != "" {
		d.recorder.Record(history.Event{
			Process: history.NoProcess, Op: history.Observe, Type: history.OK, Node: n.Server, What: history.ObserveRole, Value: n.Role,
		})
		return
	}
	params := paramsOf(n.Fault)
	e := history.Event{
		Process: history.NoProcess, Op: history.Heal, Type: history.Invoke, Fault: n.Fault.Name, Target: n.Target, Params: params,
	}
	if n.Began {
		e.Op = history.Inject
		spec, _ := faults.ByName(n.Fault.Name) // not all that is simulated can be injected
		e.Life, e.Effects = spec.Life, spec.EffectsOf(params)
	}
	d.recorder.Record(e)
	e.Type, e.Life, e.Effects = history.OK, "", nil
	e.Value = "simulated"
	e = d.recorder.Record(e)
	if n.Began && n.Fault.Name == world.KillClient {
		d.killed[n.Target] = e.Time
	}
}

// paramsOf are the parameters of a fault as histories have them.
func paramsOf(f world.Fault) map[string]string {
	params := map[string]string{}
	set := func(name string, there bool, value any) {
		if there {
			params[name] = fmt.Sprint(value)
		}
	}
	milliseconds := func(d time.Duration) string {
		return strconv.FormatFloat(float64(d)/float64(time.Millisecond), 'f', -1, 64)
	}
	set("stream", f.Stream != "", f.Stream)
	set("by", f.By > 0, milliseconds(f.By))
	set("percent", f.Percent != 0, f.Percent)
	set("silent", f.Lag > 0, milliseconds(f.Lag))
	set("clients", f.Name == world.SplitBrain, "kept") // on real servers some clients are cut off with the master
	set("data", f.Name == world.Kill, map[bool]string{true: "kept", false: "lost"}[f.Keep])
	if len(params) == 0 {
		return nil
	}
	return params
}

// drawing is the deployment as reports draw it.
func (d *deployment) drawing() history.Topology {
	t := history.Topology{Name: d.Topology}
	link := func(from, to string, kind topologies.LinkKind) {
		t.Links = append(t.Links, history.Link{Name: from + ">" + to, Kind: string(kind), From: from, To: to})
	}
	for i, n := range d.servers {
		node := history.Node{Name: n.Name(), Kind: string(topologies.Redis), Role: "master"}
		if s := topologies.ShapeOf(d.Topology); !s.Apart() && i >= s.Masters {
			node.Role, node.Of = "replica", d.servers[i%s.Masters].Name()
			link(n.Name(), node.Of, topologies.Replication)
		}
		t.Nodes = append(t.Nodes, node)
		for _, z := range d.zones {
			link(z.Name(), n.Name(), topologies.Client)
		}
	}
	for range d.sentinels {
		t.Nodes = append(t.Nodes, history.Node{Name: "sentinel-1", Kind: string(topologies.Sentinel)})
	}
	for _, z := range d.zones {
		t.Nodes = append(t.Nodes, history.Node{Name: z.Name(), Kind: string(topologies.Zone)})
	}
	return t
}
