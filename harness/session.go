package harness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/workload"
)

const (
	// injectTimeout and healTimeout bound how long a fault may take to show
	// its effect, and to end.
	injectTimeout = time.Minute
	healTimeout   = time.Minute
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
	// Notice receives what the user ought to know of the faults: which of a random run
	// are left out. Nil: it is dropped.
	Notice func(what string)
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
	run            history.Run
	file           *os.File
	recorder       *history.Recorder
	processes      workload.Processes
	deployment     topologies.Deployment
	resources      *resources
	resourceServer topologies.Deployment // of the protected resource; nil if it has none
	merges         bool                  // clients that are processes of their own record as well
	retries        int                   // by which a Redis client sends a request again; 0: its own
	locks          []string              // those that were declared
	keys           map[string]string     // a key in the slot of each
	lock           LockSpec              // under test
	options        LockOptions
	open           Opener           // of that lock, in this run
	before         map[string]int64 // requests over the links of clients, before that lock was opened
	footprint      *Footprint       // of that lock, where the run learnt it; else nil
	aimed          int              // faults, each at the server of one of them
	moved          bool             // a slot, or some
	patience       time.Duration    // of a fault that is of effect only at some moments
	stopWatch      func()
	closers        []func()
	apart          map[string]faults.ClientProcess // clients that are processes of their own

	looking sync.Mutex // at what a refused request left

	mu     sync.Mutex
	active []*activeFault            // in the order in which they were injected
	armed  map[armedKey]*activeFault // the newest fault of each name that waits for its trigger, or did
	missed []string                  // why such faults never fired

	stay    []*activeFault // those of which something stays, whose requests are counted to the end
	waiting sync.WaitGroup // for those that may still fire
	grants  grants
	// stopWork ends the work of a random run early, while that goes on; else it is nil.
	stopWork context.CancelFunc
}

// working says how the work of a run is ended early; nil: it is over.
func (st *Session) working(stop context.CancelFunc) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.stopWork = stop
}

// endWork ends the work of the run, where there is some.
func (st *Session) endWork() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.stopWork == nil {
		return false
	}
	st.stopWork()
	return true
}

// An armedKey is how a script names an armed fault; the target may be
// left out.
type armedKey struct{ fault, target string }

// An activeFault can be healed.
type activeFault struct {
	step  faults.Step
	heal  faults.Heal
	meter *meter // nil where no requests are counted
	// fired is closed once an armed fault fired, or never will; nil for any other. Then missed says why it did not.
	fired  chan struct{}
	missed error

	ending sync.Mutex
	ended  bool
}

// A Start is what a run begins with.
type Start struct {
	// Run is what the record says from the beginning.
	Run history.Run
	// Topology is what is started.
	Topology topologies.Topology
	// Faults are the names of those that the run may inject.
	Faults []string
	// Resource says what the locks protect; without a resource, nothing.
	Resource ResourceConfig
	// Retries is how often a Redis client sends a request again by itself; 0: as often
	// as its options say.
	Retries int
	// OwnProcesses says that clients that are processes of their own record as well.
	OwnProcesses bool
	// Prepare completes the run for the deployment, or refuses that. Nil: it is as it
	// should be.
	Prepare func(d topologies.Deployment, Run *history.Run) error
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
	st := &Session{Config: s, retries: begin.Retries, merges: begin.OwnProcesses, stopWatch: func() {}, armed: map[armedKey]*activeFault{}}
	st.Log.InfoContext(ctx, "starting topology", "topology", t.Name, "backend", s.BackendName)
	started := time.Now()
	if st.deployment, err = s.Backend.Start(ctx, t); err != nil {
		return nil, err
	}
	st.Log.InfoContext(ctx, "topology is ready", "topology", t.Name, st.deployment.Product(), st.deployment.Version(), "took", time.Since(started).Round(time.Millisecond))
	err = Impossible(begin.Resource.startable(s.BackendName))
	if err == nil && begin.Prepare != nil {
		err = begin.Prepare(st.deployment, &run)
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
	st.run = run
	if err := st.openRecord(); err != nil {
		return nil, errors.Join(err, st.deployment.Close())
	}
	st.watch(ctx)
	if begin.Resource.Kind != "" {
		if err := st.protect(ctx, begin.Resource); err != nil {
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
func (st *Session) Renewals() lock.Observer { return workload.NewRenewals(st.recorder, &st.processes) }

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

func (st *Session) openRecord() error {
	var err error
	if st.file, err = history.Dir(st.Dir).Create(); err != nil {
		return err
	}
	st.recorder = history.NewRecorder(st.file)
	if st.merges {
		st.recorder.AwaitMerges()
	}
	st.run.Started = st.recorder.Start()
	return st.writeRun()
}

// writeRun writes the record of the run: at the start, so that a run that is cut
// short can be read, and at the end.
func (st *Session) writeRun() error { return history.Dir(st.Dir).WriteRun(st.run) }

// watch records what the servers say of themselves.
func (st *Session) watch(ctx context.Context) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		st.deployment.Watch(ctx, func(o topologies.Observation) {
			st.recorder.Record(history.Event{
				Process: history.NoProcess, Op: history.Observe, Type: history.OK,
				Node: o.Node, What: o.What, Value: o.Value,
			})
		})
	}()
	st.stopWatch = sync.OnceFunc(func() {
		cancel()
		<-done
	})
}

// SetLock puts a lock with its options under test.
func (st *Session) SetLock(l LockSpec, o LockOptions) {
	st.lock, st.options, st.open = l, o, l.Begin()
	st.before, _ = Requests(st.deployment)
}

// Declare records what the lock under test promises under these names.
func (st *Session) Declare(names ...string) {
	l, capacity := st.lock, 0
	if l.Kind == history.KindSemaphore {
		capacity = st.options.Permits
	}
	st.locks = append(st.locks, names...)
	if st.keys == nil {
		st.keys = map[string]string{}
	}
	for _, name := range names {
		st.keys[name] = l.KeyOf(name)
		if st.footprint != nil {
			st.keys[name] = st.footprint.KeysOf(name)[0]
		}
		st.recorder.Record(history.Event{
			Process: history.NoProcess, Op: history.Declare, Type: history.OK,
			Lock: name, Kind: cmp.Or(l.Kind, history.KindMutex), Capacity: capacity, Reentrant: l.Reentrant, Fair: l.Fair,
		})
	}
}

// locker opens the lock under test for clients of a zone.
func (st *Session) locker(zone string) (lock.Locker, error) {
	o, options := st.options, st.deployment.ClientOptions(zone)
	if st.retries > 0 {
		options.MaxRetries = st.retries
	}
	var servers []redis.UniversalClient
	if st.lock.onRedis() {
		servers = topologies.Clients(options)
	}
	for _, rdb := range servers {
		st.closers = append(st.closers, func() { _ = rdb.Close() })
	}
	o.Observer = st.Renewals()
	o.At = st.place(zone)
	o.Unclosed = func(err error) { st.notice(fmt.Sprintf("closing the lock of %s failed: %v", zone, err)) }
	locker, closeLocker, err := st.open(servers, o)
	if err != nil {
		return nil, fmt.Errorf("open lock %s for %s: %w", st.lock.Name, zone, err)
	}
	st.closers = append(st.closers, closeLocker)
	return counted{locker, zone, &st.grants}, nil
}

// counted counts grants for the progress line.
type counted struct {
	lock.Locker

	zone   string
	grants *grants
}

// Acquire counts a grant.
func (c counted) Acquire(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
	h, err := c.Locker.Acquire(ctx, name, o)
	if err == nil {
		c.grants.add(c.zone, name)
	}
	return h, err
}

// Gone is closed once the process of the lock has ended, which crashes its clients; it is nil for a lock without one.
func (c counted) Gone() <-chan struct{} {
	if m, ok := c.Locker.(workload.Mortal); ok {
		return m.Gone()
	}
	return nil
}

// Ask counts grants as Acquire does.
func (c counted) Ask(ctx context.Context, r workload.Request, o lock.Options) (*lock.Hold, error) {
	h, err := workload.Ask(ctx, c.Locker, r, o)
	if err == nil {
		c.grants.add(c.zone, strings.Join(r.Locks, " "))
	}
	return h, err
}

// Inject makes a fault happen and records it, whether or not it took effect.
func (st *Session) Inject(ctx context.Context, s faults.Step) error {
	spec, err := faults.ByName(s.Fault)
	if err != nil {
		st.failInjection(ctx, s, err)
		return fmt.Errorf("inject %s: %w", s.Fault, err)
	}
	if s, err = st.aimAtLock(s); err != nil {
		st.failInjection(ctx, s, err)
		return fmt.Errorf("inject %s: %w", s.Fault, err)
	}
	if s.Target, err = st.resolve(ctx, s.Target); err != nil {
		st.failInjection(ctx, s, err)
		return fmt.Errorf("inject %s: %w", s.Fault, err)
	}
	f, err := st.build(s)
	if err != nil {
		st.failInjection(ctx, s, err)
		return err
	}
	if err := checkClaim(st.deployment); err != nil {
		st.failInjection(ctx, s, err)
		return fmt.Errorf("inject %s: %w", s.Fault, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, injectTimeout, fmt.Errorf("no effect after %v", injectTimeout))
	defer cancel()
	asked := s.Target
	s.Target = spec.AimOf(ctx, st.deployment, s)
	e := history.Event{
		Process: history.NoProcess, Op: history.Inject, Type: history.Invoke,
		Fault: s.Fault, Target: s.Target, Params: maps.Clone(s.Params), Life: spec.Life, Effects: spec.EffectsOf(s.Params),
	}
	st.recorder.Record(e)
	requests := st.meter(ctx, faults.Step{Fault: s.Fault, Target: asked, Params: s.Params})
	injection, err := retryUntilEffective(f, st.patience).Inject(ctx)
	if err != nil {
		st.failed(ctx, e, err)
		return fmt.Errorf("inject %s: %w", s.Fault, err)
	}
	a := &activeFault{step: s, heal: injection.Heal, meter: requests}
	if spec.Has(history.Moves) {
		st.moved = true
	}
	if injection.Heal != nil {
		st.mu.Lock()
		st.active = append(st.active, a)
		st.mu.Unlock()
	}
	if injection.AwaitFiring != nil {
		st.Log.InfoContext(ctx, "fault is armed", "fault", s.Fault, "target", s.Target, "for", injection.Effect)
		a.meter = nil // it is met by the message that it waits for
		a.fired = make(chan struct{})
		st.mu.Lock()
		st.armed[armedKey{s.Fault, ""}], st.armed[armedKey{s.Fault, asked}] = a, a
		st.mu.Unlock()
		st.waiting.Go(func() { st.awaitFiring(context.WithoutCancel(ctx), a, e, injection) })
		return nil
	}
	st.landed(ctx, e, injection.Effect)
	if injection.Heal == nil {
		st.over(e)
	}
	if a.meter != nil && (injection.Heal == nil || spec.Stays()) {
		st.mu.Lock()
		st.stay = append(st.stay, a)
		st.mu.Unlock()
	}
	return nil
}

// checkClaim fails once another run has claimed the deployment, where that can happen.
func checkClaim(d topologies.Deployment) error {
	if o, ok := d.(topologies.Claimed); ok {
		return o.CheckClaim()
	}
	return nil
}

// over records that a fault without a duration has passed: else a reader of
// the record takes it for one that is in effect to the end.
func (st *Session) over(e history.Event) {
	e.Op, e.Type, e.Value, e.Life, e.Effects = history.Heal, history.Invoke, "", "", nil
	st.recorder.Record(e)
	e.Type, e.Value = history.OK, "it has no duration"
	st.recorder.Record(e)
}

// landed records that a fault took effect.
func (st *Session) landed(ctx context.Context, e history.Event, effect string) {
	e.Type, e.Value = history.OK, effect
	st.recorder.Record(e)
	st.Log.InfoContext(ctx, "fault injected", "fault", e.Fault, "target", e.Target, "effect", effect)
}

// awaitFiring records that an armed fault fired, or, once it was healed, that it never
// did. A one-shot fault ends at once.
func (st *Session) awaitFiring(ctx context.Context, a *activeFault, e history.Event, injection faults.Injection) {
	effect, err := injection.AwaitFiring(ctx)
	if err != nil {
		st.failed(ctx, e, err)
		st.mu.Lock()
		st.missed = append(st.missed, err.Error())
		st.mu.Unlock()
		a.missed = err
		close(a.fired)
		return
	}
	st.landed(ctx, e, effect)
	st.recordRequests(a.step, 1)
	if injection.OneShot {
		_ = st.end(ctx, a) // what could not be healed is recorded, and tried again at the end
	}
	close(a.fired)
}

// AwaitFault blocks until the newest fault of that name and target fired. An empty
// target is any.
func (st *Session) AwaitFault(ctx context.Context, fault, target string) error {
	st.mu.Lock()
	a := st.armed[armedKey{fault, target}]
	st.mu.Unlock()
	if a == nil {
		return fmt.Errorf("await %s: it was not injected", fault)
	}
	select {
	case <-a.fired:
		return a.missed
	case <-ctx.Done():
		return fmt.Errorf("%s has not fired: %w", fault, context.Cause(ctx))
	}
}

// Disturb does something to a client that no fault of the catalogue does, and records
// it as one. It lasts until the end of the run.
func (st *Session) Disturb(ctx context.Context, s faults.Step, effect string, do, undo func()) {
	e := history.Event{Process: history.NoProcess, Op: history.Inject, Type: history.Invoke, Fault: s.Fault, Target: s.Target}
	st.recorder.Record(e)
	do()
	st.landed(ctx, e, effect)
	st.mu.Lock()
	defer st.mu.Unlock()
	st.active = append(st.active, &activeFault{
		step: s, heal: func(context.Context) (string, error) { undo(); return "right again", nil },
	})
}

// failInjection records a fault that could not even be tried.
func (st *Session) failInjection(ctx context.Context, s faults.Step, why error) {
	e := history.Event{
		Process: history.NoProcess, Op: history.Inject, Type: history.Invoke,
		Fault: s.Fault, Target: s.Target, Params: maps.Clone(s.Params),
	}
	st.recorder.Record(e)
	st.failed(ctx, e, why)
}

// failed records that a fault took no effect, or did not heal.
func (st *Session) failed(ctx context.Context, e history.Event, why error) {
	e.Type, e.Error = history.Fail, why.Error()
	st.recorder.Record(e)
	st.Log.WarnContext(ctx, "fault did not do as told", "op", e.Op, "fault", e.Fault, "target", e.Target, "error", why)
}

// Heal ends the newest active fault with that name. One that does not heal
// stays active.
func (st *Session) Heal(ctx context.Context, name string) error {
	a := st.newest(name)
	if a == nil {
		return fmt.Errorf("heal %s: it is not active", name)
	}
	if err := st.end(ctx, a); err != nil || a.fired == nil {
		return err
	}
	<-a.fired // it did, or now it never will
	return a.missed
}

// newest is the newest active fault with that name; nil if there is none.
func (st *Session) newest(name string) *activeFault {
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, a := range slices.Backward(st.active) {
		if a.step.Fault == name {
			return a
		}
	}
	return nil
}

// end heals an active fault, unless that was done.
func (st *Session) end(ctx context.Context, a *activeFault) error {
	a.ending.Lock()
	defer a.ending.Unlock()
	if a.ended {
		return nil
	}
	e := history.Event{
		Process: history.NoProcess, Op: history.Heal, Type: history.Invoke,
		Fault: a.step.Fault, Target: a.step.Target, Params: maps.Clone(a.step.Params),
	}
	st.recorder.Record(e)
	// A heal is not cut short: what is broken must not stay so.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), healTimeout)
	defer cancel()
	var requests int64
	if a.meter != nil {
		requests = a.meter.read() // before those by which the heal is proven
	}
	effect, err := a.heal(ctx)
	if err != nil {
		st.failed(ctx, e, err)
		return fmt.Errorf("heal %s: %w", a.step.Fault, err)
	}
	a.ended = true
	st.mu.Lock()
	st.active = slices.DeleteFunc(st.active, func(other *activeFault) bool { return other == a })
	st.mu.Unlock()
	e.Type, e.Value = history.OK, effect
	st.recorder.Record(e)
	if spec, err := faults.ByName(a.step.Fault); err == nil && a.meter != nil && !spec.Stays() {
		st.recordRequests(a.step, requests)
	}
	st.Log.InfoContext(ctx, "fault healed", "fault", a.step.Fault, "effect", effect)
	return nil
}

// HealAll ends all active faults, the newest first, but those that make a new master after
// the others: their heal awaits that all replicas follow it, over links that another fault
// may have cut. Each is tried once, which for one that did not heal before is once more.
func (st *Session) HealAll(ctx context.Context) error {
	st.mu.Lock()
	active := slices.Clone(st.active)
	st.mu.Unlock()
	slices.Reverse(active)
	promotes := func(a *activeFault) bool {
		spec, err := faults.ByName(a.step.Fault)
		return err == nil && spec.Has(history.Promotes)
	}
	first := slices.DeleteFunc(slices.Clone(active), promotes)
	last := slices.DeleteFunc(active, func(a *activeFault) bool { return !promotes(a) })
	var errs []error
	for _, a := range slices.Concat(first, last) {
		if err := st.end(ctx, a); err != nil {
			errs = append(errs, err)
		}
	}
	st.waiting.Wait()
	return errors.Join(errs...)
}

// activeFault is the name of the newest active fault.
func (st *Session) activeFault() string {
	st.mu.Lock()
	defer st.mu.Unlock()
	if len(st.active) == 0 {
		return ""
	}
	return st.active[len(st.active)-1].step.Fault
}

// Close heals what is broken, ends the recording, keeps the servers' logs and
// stops the servers. It returns what could not be done, then or before, which the
// record says as well.
func (st *Session) Close(ctx context.Context, before error) error {
	before = errors.Join(before, st.keep(ctx))
	healed := st.HealAll(ctx)
	st.recordLingering()
	if d, ok := st.deployment.(interface{ discard() }); ok && (healed != nil || st.moved) {
		d.discard()
	}
	if err := checkClaim(st.deployment); err != nil {
		st.run.ClaimLostTo = err.Error()
	}
	if st.run.Scenario != "" && len(st.missed) > 0 && st.run.Unsuited == "" && st.run.Spared == "" {
		st.run.AbortReason = cmp.Or(st.run.AbortReason, "a fault was armed and never fired: "+st.missed[0])
	}
	for _, c := range slices.Backward(st.closers) {
		c()
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
			errs = append(errs, copyFile(history.Dir(st.Dir).Path(history.LogsDir, n.Name+".log"), log))
		}
	}
	return errors.Join(errs...)
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("keep log: %w", err)
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return fmt.Errorf("keep log: %w", err)
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
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
