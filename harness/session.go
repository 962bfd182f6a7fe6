// Package harness is one run: it starts a topology, opens a lock, drives a workload or a
// script, injects faults, records, judges and writes.
//
// A [RandomRun] drives a workload while a seeded schedule of faults passes, and
// [Replay] makes one of a record. A [Session] is what every run has: servers, a
// recorder, a lock under test and the faults that are active; packages scenarios and
// mutants drive sessions by their scripts. A run leaves a directory with run.json,
// history.jsonl and the servers' logs, for the checker and the reports.
package harness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/driver"
	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/shim"
	"github.com/lockchaos/lockchaos/workload"
)

// A Config is what every run needs to know.
type Config struct {
	// Dir is the run directory. It is made if need be.
	Dir string
	// Backend starts the topology, and BackendName is what the record calls it.
	Backend     topologies.Backend
	BackendName string
	Seed        uint64
	// Program is the version of lockchaos, and Command repeats the run; both
	// are for the record.
	Program, Command string
	// Log is told of each step. Nil: steps are not logged.
	Log *slog.Logger
	// Progress is told, now and then, how a random run goes. Nil: nothing is reported.
	Progress func(Progress)
	// Workers have the drivers of all zones; nil: they run here.
	Workers Workers
	// Notice receives what the user ought to know of the faults: which of a random run
	// are left out. Nil: it is dropped.
	Notice func(what string)
}

// Workers have drivers on other machines, one for each zone of clients.
type Workers interface {
	// Start starts the driver of a zone, whose connections to the addresses of servers are to be dialled here. Where
	// announced is set, servers tell clients of these addresses.
	Start(zone string, addresses []string, announced bool, dial func(ctx context.Context, network, addr string) (net.Conn, error)) (*driver.Remote, error)
	// RoundTrip is how long a message to the worker of a zone and its answer took so far, on average.
	RoundTrip(zone string) time.Duration
}

func (s Config) notice(what string) {
	if s.Notice != nil {
		s.Notice(what)
	}
}

// A Progress is how far a run is.
type Progress struct {
	Elapsed, Length time.Duration
	Grants          int64  // so far
	Fault           string // active now; empty for none
}

// A Session is a deployment with a recorder and the faults that lie on it.
type Session struct {
	Config
	Plan       faults.Plan // for its deployment; a script takes each step of it when it comes to that
	run        history.Run
	file       *os.File
	recorder   *history.Recorder
	processes  workload.Processes
	deployment topologies.Deployment
	resources  *resources
	retries    int               // by which a Redis client sends a request again; 0: its own
	locks      []string          // those that were declared
	keys       map[string]string // a key in the slot of each
	lock       LockSpec          // under test
	options    LockOptions
	open       Opener           // of that lock, in this run
	before     map[string]int64 // requests over the links of clients, before that lock was opened
	footprint  Footprint        // of that lock
	stopWatch  func()
	closers    []func()
	apart      map[string]faults.ClientProcess // clients that are processes of their own
	clocks     *shim.Clocks                    // of the zones' drivers; nil where no fault changes them

	looking sync.Mutex // at what a refused request left

	mu sync.Mutex
	injected
	grants grants
	// stopWork ends the work of a random run, and reports whether that went on; of a script it is nil.
	stopWork func() bool
}

// A Start is what a run begins with.
type Start struct {
	// Run is what the record says from the beginning.
	Run history.Run
	// Topology is what is started.
	Topology topologies.Topology
	// Faults are those that the run may inject.
	Faults []*faults.Spec
	// Resource says what the locks protect; without a resource, nothing.
	Resource ResourceConfig
	// Retries is how often a Redis client sends a request again by itself; 0: as often
	// as its options say.
	Retries int
	// Prepare completes the run for the deployment, and plans its faults, or refuses that. Nil: it is as it
	// should be.
	Prepare func(d topologies.Deployment, Run *history.Run) (faults.Plan, error)
}

// Open starts the topology, and the recording. What it started, Close ends.
func Open(ctx context.Context, s Config, begin Start) (*Session, error) {
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	t, run := begin.Topology, begin.Run
	var err error
	if s.Backend, err = instrumented(s.Backend, begin.Faults); err != nil {
		return nil, err
	}
	st := &Session{
		Config: s, retries: begin.Retries, stopWatch: func() {}, keys: map[string]string{}, apart: map[string]faults.ClientProcess{},
	}
	st.Log.InfoContext(ctx, "starting topology", "topology", t.Name, "backend", s.BackendName)
	started := time.Now()
	if st.deployment, err = s.Backend.Start(ctx, t); err != nil {
		return nil, err
	}
	st.Log.InfoContext(ctx, "topology is ready", "topology", t.Name, st.deployment.Product(), st.deployment.Version(), "took", time.Since(started).Round(time.Millisecond))
	switch {
	case begin.Resource.Kind == ResourceRedis && s.BackendName == history.Attached:
		err = faults.Impossible(errors.New("a resource on Redis needs a server of its own, which only the backends process and container can start"))
	case begin.Prepare != nil:
		st.Plan, err = begin.Prepare(st.deployment, &run)
	}
	if err != nil {
		return nil, errors.Join(err, st.deployment.Close())
	}
	run.Resource, run.Fencing = begin.Resource.Kind, begin.Resource.Fencing
	run.Version = history.RunVersion
	run.Program, run.Command, run.Seed = s.Program, s.Command, s.Seed
	run.Backend, run.Topology = s.BackendName, drawing(st.deployment.Topology())
	run.Servers = map[string]string{st.deployment.Product(): st.deployment.Version()}
	run.Machine = thisMachine()
	run.Clients = map[string]string{}
	st.run = run
	if st.file, err = history.Dir(st.Dir).Create(); err == nil {
		st.recorder = history.NewRecorder(st.file)
		st.run.Started = st.recorder.Start()
		err = st.writeRun()
	}
	if err != nil {
		return nil, errors.Join(err, st.deployment.Close())
	}
	st.watch(ctx)
	for _, step := range st.Plan {
		if err := st.clocksFor(step.Spec); err != nil { //nolint:contextcheck // what guards their folder outlives the run
			return nil, st.Close(ctx, err)
		}
	}
	if begin.Resource.Kind != "" {
		if st.resources, err = openResources(ctx, begin.Resource, s.Backend); err != nil {
			return nil, st.Close(ctx, err)
		}
	}
	return st, nil
}

// Deployment is what the run's servers are.
func (st *Session) Deployment() topologies.Deployment { return st.deployment }

// Record adds an event to the history.
func (st *Session) Record(e history.Event) { st.recorder.Record(e) }

// Renewals records what watchdogs do.
func (st *Session) Renewals() lock.Observer {
	return renewals{workload.NewRenewals(st.recorder, &st.processes)}
}

// renewals are those of a run, without those of a warm-up.
type renewals struct{ lock.Observer }

func (r renewals) Observe(e lock.Event) {
	if e.Lease.Name != warmUpName {
		r.Observer.Observe(e)
	}
}

// NewClient is a client with a lock of its own, which does as it is told also after its
// lease.
func (st *Session) NewClient(name string, l lock.Locker) workload.Client {
	return workload.Client{
		Name: name, Locker: l, Recorder: st.recorder, Processes: &st.processes,
		Careless: true, NodeName: st.deployment.NodeAt,
	}
}

// OnClose has something done when the run ends, before its servers stop.
func (st *Session) OnClose(do func()) { st.closers = append(st.closers, do) }

// Abort records why the run was not brought to its end, so that its verdict is no
// answer.
func (st *Session) Abort(why error) { st.run.AbortReason = why.Error() }

// Unsuit records why a script can't be asked of the lock.
func (st *Session) Unsuit(why error) { st.run.Unsuited = why.Error() }

// Spare records at which step the lock did not show the bug that a script is about.
func (st *Session) Spare(why error) { st.run.Spared = why.Error() }

// writeRun writes the record of the run: at the start, so that a run that is cut
// short can be read, and at the end.
func (st *Session) writeRun() error { return history.Dir(st.Dir).WriteRun(st.run) }

// watch records what the servers say of themselves.
func (st *Session) watch(ctx context.Context) {
	st.stopWatch = await.Behind(ctx, func(ctx context.Context) {
		st.deployment.Watch(ctx, func(o topologies.Observation) {
			st.recorder.Record(history.Event{
				Process: history.NoProcess, Op: history.Observe, Type: history.OK,
				Node: o.Node, What: o.What, Value: o.Value,
			})
		})
	})
}

// SetLock puts a lock with its options under test.
func (st *Session) SetLock(l LockSpec, o LockOptions) {
	st.lock, st.options, st.open = l, o, l.Begin()
	st.footprint.Commands = sent(usual, sent(l.Sends, nil))
	st.before, _ = Requests(st.deployment)
	if l.Lease > 0 || !l.Connects { // else a driver has another one than it is told of
		st.run.Watchdog = l.LeaseOf(0, o.Watchdog)
	}
	maps.Copy(st.run.Servers, l.Wraps)
}

// Declare records what the lock under test promises under these names.
func (st *Session) Declare(names ...string) {
	st.locks = append(st.locks, names...)
	for _, name := range names {
		st.keys[name] = st.lock.KeyOf(name)
		if keys := st.footprint.KeysOf(name); len(keys) > 0 {
			st.keys[name] = keys[0]
		}
		st.recorder.Record(st.lock.Declared(name, st.options.Permits))
	}
}

// clientOptions are those of clients of a zone, and lockOptions those of their lock.
func (st *Session) clientOptions(zone string) *redis.UniversalOptions {
	options := st.deployment.ClientOptions(zone)
	if st.retries > 0 {
		options.MaxRetries = st.retries
	}
	return options
}

func (st *Session) lockOptions(zone string) LockOptions {
	o := st.options
	o.Observer = st.Renewals()
	o.At = st.place(zone)
	o.Unclosed = func(err error) { st.notice(fmt.Sprintf("closing the lock of %s failed: %v", zone, err)) }
	return o
}

// locker opens the lock under test for clients of a zone.
func (st *Session) locker(zone string) (lock.Locker, error) {
	locker, closeLocker, err := st.lock.Connect(st.open, st.clientOptions(zone), st.lockOptions(zone))
	if err != nil {
		return nil, fmt.Errorf("for clients of %s: %w", zone, err)
	}
	st.closers = append(st.closers, closeLocker)
	return locker, nil
}

// Close heals what is broken, ends the recording, keeps the servers' logs and
// stops the servers. It returns what could not be done, then or before, which the
// record says as well.
func (st *Session) Close(ctx context.Context, before error) error {
	before = errors.Join(before, st.keep(ctx))
	healed := st.HealAll(ctx)
	st.recordLingering()
	if healed != nil || st.moved {
		st.deployment.Reuse(nil)
	}
	if err := st.deployment.CheckClaim(); err != nil {
		st.run.ClaimLostTo = err.Error()
	}
	missed := slices.IndexFunc(st.faults, func(a *injectedFault) bool { return a.missed != nil })
	if st.run.Scenario != "" && missed >= 0 && st.run.Unsuited == "" && st.run.Spared == "" {
		st.run.AbortReason = cmp.Or(st.run.AbortReason, fmt.Sprintf("a fault was armed and never fired: %v", st.faults[missed].missed))
	}
	for _, c := range slices.Backward(st.closers) {
		c()
	}
	if st.clocks != nil {
		before = errors.Join(before, st.clocks.Close())
	}
	st.run.DriverFault = cmp.Or(st.run.DriverFault, st.unreached())
	st.stopWatch()
	err := errors.Join(before, healed, st.recorder.Close(), st.file.Close())
	took := time.Since(st.run.Started).Round(time.Millisecond)
	st.run.Interrupted = ctx.Err() != nil
	err = errors.Join(err, st.writeRun(), st.keepLogs(), st.deployment.Close())
	st.run.Duration, st.run.Events = took, st.recorder.Events() // not before: without them, the run did not end in order
	if err != nil {
		st.run.Failed = strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	return errors.Join(err, st.writeRun())
}

func (st *Session) keepLogs() error {
	var errs []error
	for _, n := range st.deployment.Topology().Nodes {
		s := st.deployment.Server(n.Name)
		if s == nil {
			continue
		}
		if log := s.Log(); log != "" { // which may be fetched for us
			text, err := os.ReadFile(log)
			if err == nil {
				err = os.WriteFile(history.Dir(st.Dir).Path(history.LogsDir, n.Name+".log"), text, 0o644)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("keep log: %w", err))
			}
		}
	}
	return errors.Join(errs...)
}

// drawing is a topology as the record keeps it.
func drawing(t topologies.Topology) history.Topology {
	d := history.Topology{Name: t.Name, Options: t.Options.Changed(t.Name)}
	for _, n := range t.Nodes {
		d.Nodes = append(d.Nodes, history.Node{Name: n.Name, Kind: string(n.Kind), Role: n.Role, Of: n.Of})
	}
	for _, l := range t.Links {
		d.Links = append(d.Links, history.Link{Name: l.Name(), Kind: string(l.Kind), From: l.From, To: l.To})
	}
	return d
}

// thisMachine describes the machine that the harness runs on.
func thisMachine() *history.Machine {
	m := &history.Machine{OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), Go: runtime.Version()}
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil { // only Linux has it
		m.Kernel = strings.TrimSpace(string(release))
	}
	return m
}
