package harness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/driver"
	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/workload"
)

// A RandomRun is a run in which a workload goes on while a seeded schedule of
// faults passes.
type RandomRun struct {
	Topology string
	// Servers size and tune the topology.
	Servers topologies.Options
	// Lock is the lock under test.
	Lock    LockSpec
	Options LockOptions
	// Kind names the workload, or several in a comma list, of which each client
	// draws one a time; empty is [DefaultWorkload].
	Kind     string
	Workload workload.Config
	// Resource says what the locks protect.
	Resource ResourceConfig
	// Faults is the mix to draw from: one of [faults.Mixes], or several mixes and faults
	// in a comma list; empty is [faults.DefaultMix].
	Faults string
	// Plan is a plan to follow instead of one that is drawn from Faults; nil: it
	// is drawn. An empty one has no faults.
	Plan faults.Schedule
	// Recorded says that Plan has the times at which a run had its faults: each begins at its
	// time, however short the pause before it, and the clients stop at Length, whatever is in
	// effect then.
	Recorded bool
	// Length is how long the workload goes on.
	Length time.Duration

	// foreign says that Plan was for another deployment: whether it suits
	// one is known when that is there.
	foreign bool
}

// Schedule draws the run's schedule: the same seed gives the same one.
func (r RandomRun) Schedule(seed uint64) (faults.Schedule, error) {
	if r.Plan != nil {
		return r.Plan, nil
	}
	e, err := r.environment()
	if err != nil {
		return nil, err
	}
	chosen, err := e.Choose(r.mix(e))
	if err != nil {
		return nil, err
	}
	return faults.Generate(seed, chosen, r.Length), nil
}

func (r RandomRun) mix(e faults.Environment) string {
	return cmp.Or(r.Faults, faults.DefaultMix(e.Topology))
}

// environment is what the run's faults are drawn for, in the topology's usual form.
func (r RandomRun) environment() (faults.Environment, error) {
	t, err := topologies.New(r.Topology, r.Servers)
	if err != nil {
		return faults.Environment{}, err
	}
	kinds, err := parseWorkload(r.kind())
	clients := withLock(r.Workload, r.Lock, kinds)
	e := faults.Environment{
		Topology: t, Acks: r.Options.ReplicaAcks, Locks: clients.LockNames(),
		Lock: faults.LockTraits{
			Name: r.Lock.Name, Local: r.Lock.InProcess != nil, Subscribes: r.Lock.Subscribes, Commands: r.Lock.CommandPattern(),
			Own: slices.Equal(r.Lock.Commands, OwnCommands()),
		},
	}
	if !e.Lock.Own {
		return e, err
	}
	e.Lease = cmp.Or(clients.Lease, r.Options.Watchdog)
	e.Lock.Requests = []string{acquireWord + "|" + acquireLastWord, releaseWord}
	if clients.Extends && clients.Lease > 0 && slices.ContainsFunc(kinds, func(k workload.Kind) bool { return k.Extends }) {
		e.Lock.Requests = append(e.Lock.Requests, extendWord)
	}
	if r.Lock.Watchdog && slices.ContainsFunc(kinds, func(k workload.Kind) bool { return k.Needs.Watched }) {
		e.Lock.Requests = append(e.Lock.Requests, renewWord)
	}
	return e, err
}

// Validate joins everything that is wrong with the run.
func (r RandomRun) Validate() error {
	errs := []error{r.Workload.Validate()}
	_, err := topologies.New(r.Topology, r.Servers)
	errs = append(errs, err, r.Lock.Validate())
	if e, wrong := r.environment(); wrong == nil {
		_, wrong = r.Schedule(0)
		errs = append(errs, wrong)
		if !r.foreign {
			errs = append(errs, checkPlan(e, r.Plan))
		}
	}
	kinds, unknown := parseWorkload(r.kind())
	errs = append(errs, unknown, r.Resource.Validate(r.Lock))
	for _, k := range kinds {
		errs = append(errs, r.Lock.Suits(k))
	}
	if r.Length <= 0 {
		errs = append(errs, fmt.Errorf("duration must be above 0, not %v", r.Length))
	}
	return errors.Join(append(errs, r.Lock.On(r.Topology, r.Servers, r.Options))...)
}

func (r RandomRun) kind() string { return cmp.Or(r.Kind, r.Lock.DefaultWorkload()) }

// Run runs it and leaves the record in s.Dir. When ctx ends before its time,
// the faults are healed and what was recorded is kept; that is no error.
func (r RandomRun) Run(ctx context.Context, s Config) (err error) {
	if err := r.Validate(); err != nil {
		return err
	}
	t, err := topologies.New(r.Topology, r.Servers)
	if err != nil {
		return err
	}
	kinds, err := parseWorkload(r.kind())
	if err != nil {
		return err
	}
	r.Workload.Seed = s.Seed
	r.Workload = withLock(r.Workload, r.Lock, kinds)
	r.Options.Permits = r.Workload.Permits
	var plan faults.Schedule
	r.Resource.Kind = cmp.Or(r.Resource.Kind, ResourceRegister)
	asked, err := r.asked()
	if err != nil {
		return err
	}
	// A deployment that was there before may be of another size than one of ours, so
	// the plan is for the one that is there.
	prepare := func(d topologies.Deployment, run *history.Run) error {
		if err := Impossible(CheckAcks(r.Options.ReplicaAcks, d.Topology()), CheckOptions(r.Servers, d.Topology())); err != nil {
			return err
		}
		var err error
		if plan, err = r.planFor(d, s.Seed, run); err != nil {
			return err
		}
		for _, why := range run.SkippedFaults {
			s.notice("left out: " + why)
		}
		run.Plan = planned(plan)
		run.Progress = r.progress(d.Topology())
		run.Settings, err = r.settings()
		return err
	}
	st, err := Open(ctx, s, Start{
		Run:      history.Run{Lock: r.Lock.Name, Unpromised: r.Lock.Unpromised(), Workload: r.kind()},
		Topology: t, Faults: asked, Resource: r.Resource, Prepare: prepare,
	})
	if err != nil {
		return err
	}
	defer func() { err = st.Close(ctx, err) }()
	st.SetLock(r.Lock, r.Options)
	st.Declare(r.Workload.LockNames()...)
	working, stop := context.WithCancel(ctx)
	defer stop()
	st.working(stop)
	var zones []workload.Zone
	for _, name := range st.deployment.Topology().Of(topologies.Zone) {
		locker, err := st.locker(name)
		if errors.Is(err, driver.ErrNotStarted) {
			st.blameDriver(err.Error())
			return nil
		}
		if err != nil {
			return err
		}
		zone := workload.Zone{
			Name: name, Locker: locker, NodeName: st.deployment.NodeAt,
			Resources: st.resources.all(name, r.Workload.LockNames()),
		}
		if r.Lock.LooksLeft() {
			zone.Refused = st.refused
		}
		zones = append(zones, zone)
	}
	if r.Lock.Foreign && r.Lock.onRedis() && len(plan) > 0 {
		if err := st.learn(ctx, zones[0].Name, zones[0].Locker); err != nil {
			st.notice(err.Error() + ": faults are aimed at what is usual")
		}
	}
	if r.Recorded {
		defer time.AfterFunc(r.Length, stop).Stop()
	}
	st.report(working, r.Length)
	st.patience = faultPatience
	followed := make(chan struct{})
	defer func() {
		stop()
		<-followed
	}()
	go func() {
		defer close(followed)
		defer stop()
		if r.Recorded {
			st.followRecorded(working, plan)
			<-working.Done()
			return
		}
		start := time.Now()
		healed := st.follow(working, plan, r.Length)
		workload.Pause(working, time.Until(later(start.Add(r.Length), healed.Add(faults.PaceOf(r.Length).End))))
	}()
	r.Workload.Soon = true // else a short run may have met nothing
	workload.Run(working, r.Workload, zones, st.recorder, &st.processes)
	st.working(nil)
	return nil
}

// progress is the bound of [checker.Progress] on a topology; 0 for its default. Where a failover may
// lose what ended a grant, or a request leaves votes behind, a correct lock may stay taken for a
// lease, which may be longer than that.
func (r RandomRun) progress(t topologies.Topology) time.Duration {
	lease := r.Lock.LeaseOf(r.Workload.Lease, r.Options.Watchdog)
	if t.Replicas() == 0 && t.Name != topologies.Independent || lease < checker.ProgressBound {
		return 0
	}
	return checker.ProgressBound + lease
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// follow injects and heals the faults of a plan, and returns when the last one
// was healed. One that takes no effect is recorded as such, and the plan goes on.
// Each begins with the deployment whole and quiet, so that the plan falls behind
// its times where that takes long, and its last steps may be left out; the record
// says so. The first is never left out.
func (st *Session) follow(ctx context.Context, plan faults.Schedule, length time.Duration) (healed time.Time) {
	start, pace := time.Now(), faults.PaceOf(length)
	quiet := start
	for i, step := range plan {
		if !workload.Pause(ctx, max(time.Until(start.Add(step.At)), time.Until(quiet))) {
			return time.Now()
		}
		if i > 0 && time.Since(start)+step.For > length-pace.End {
			st.run.LateFaults = len(plan) - i
			st.notice("left out: " + st.run.Late())
			break
		}
		if err := st.injectWhole(ctx, step); err == nil {
			st.last(ctx, step)
		}
		quiet = time.Now().Add(pace.Least)
	}
	return quiet.Add(-pace.Least)
}

// followRecorded injects and heals faults at the times of a record, until ctx ends.
func (st *Session) followRecorded(ctx context.Context, plan faults.Schedule) {
	start := time.Now()
	for _, step := range plan {
		if !workload.Pause(ctx, time.Until(start.Add(step.At))) {
			return
		}
		if err := st.injectWhole(ctx, step); err == nil {
			st.last(ctx, step)
		}
	}
}

// last lets a fault go on for as long as planned, and heals it. The time of an armed
// fault begins when it fired.
func (st *Session) last(ctx context.Context, step faults.Step) {
	if spec, err := faults.ByName(step.Fault); err == nil && spec.Life == history.Triggered {
		waiting, cancel := context.WithTimeout(ctx, faultPatience)
		defer cancel()
		if err := st.AwaitFault(waiting, step.Fault, ""); err != nil {
			_ = st.Heal(ctx, step.Fault) // and with that it is recorded why it never fired
			return
		}
	}
	if step.For > 0 {
		workload.Pause(ctx, step.For) // the heal comes in any case
	}
	if st.newest(step.Fault) != nil {
		_ = st.Heal(ctx, step.Fault)
	}
}

// faultPatience is how long a fault of a random run waits for what it takes: a key to
// lose, or a message that it is aimed at.
const faultPatience = 5 * time.Second

// injectWhole injects once the deployment is whole.
func (st *Session) injectWhole(ctx context.Context, step faults.Step) error {
	if err := st.deployment.AwaitReady(ctx); err != nil { // which has a bound of its own
		st.failInjection(ctx, step, fmt.Errorf("the deployment is not whole: %w", err))
		return err
	}
	return st.Inject(ctx, step)
}

// progressEvery is how often a run's progress is told.
const progressEvery = 200 * time.Millisecond

func (st *Session) report(ctx context.Context, length time.Duration) {
	if st.Progress == nil {
		return
	}
	start := time.Now()
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(progressEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				st.Progress(Progress{
					Elapsed: time.Since(start), Length: length,
					Grants: st.grants.all.Load(), Fault: st.activeFault(),
				})
			case <-ctx.Done():
				return
			}
		}
	}()
	st.closers = append(st.closers, func() { <-done })
}
