package harness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/driver"
	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/shim"
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
	// in a comma list; empty is [faults.Environment.DefaultMix].
	Faults string
	// Plan is a plan to follow instead of one that is drawn from Faults; nil: it
	// is drawn. An empty one has no faults.
	Plan []faults.Step
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

// A resolved run has what the names in it mean.
type resolved struct {
	topology topologies.Topology
	kinds    []workload.Kind
	// draws is what its faults are drawn for, on the topology in its usual form, and chosen those
	// that it may have there; none where the plan is given, which is given then.
	draws  faults.Environment
	chosen []faults.Candidate
	given  faults.Plan
}

// Validate joins everything that is wrong with the run.
func (r RandomRun) Validate() error {
	_, err := r.resolve()
	return err
}

// resolve looks up the names of the run, and joins everything that is wrong with it.
func (r RandomRun) resolve() (resolved, error) {
	var x resolved
	var topology, workloads error
	x.topology, topology = topologies.New(r.Topology, r.Servers)
	x.kinds, workloads = workload.Parse(r.kind())
	errs := []error{r.Workload.Validate(), topology, r.Lock.Validate(), workloads, r.Resource.Validate(r.Lock)}
	if topology == nil && workloads == nil {
		x.draws = r.environment(x)
		var err error
		if r.Plan == nil {
			x.chosen, err = x.draws.Choose(r.Faults)
		} else if x.given, err, _ = x.draws.Given(nil, r.Plan); r.foreign {
			err = nil
		}
		errs = append(errs, err)
	}
	for _, k := range x.kinds {
		errs = append(errs, r.Lock.Suits(k))
	}
	if r.Length <= 0 {
		errs = append(errs, fmt.Errorf("duration must be above 0, not %v", r.Length))
	}
	return x, errors.Join(append(errs, r.Lock.On(r.Topology, r.Servers, r.Options))...)
}

// Breaks are the faults of the run that may break a promise of a correct lock on its servers, by why they may: "kill,
// restart: a server that is killed forgets …". None: a correct lock is valid.
func (r RandomRun) Breaks() []string {
	x, err := r.resolve()
	if err != nil {
		return nil
	}
	return faults.Breaks(x.chosen)
}

// asked are the faults that the run may have. Those of the default mix need no more than servers.
func (r RandomRun) asked(x resolved) (all []*faults.Spec) {
	for _, step := range x.given {
		all = append(all, step.Spec)
	}
	if r.Faults != "" {
		for _, c := range x.chosen {
			all = append(all, c.Spec)
		}
	}
	return all
}

// planFor is the plan for a deployment, and writes into the record what it is drawn from.
func (r RandomRun) planFor(d topologies.Deployment, seed uint64, x resolved, run *history.Run) (plan faults.Plan, err error) {
	e := x.draws
	e.Topology = d.Topology()
	run.Faults = cmp.Or(r.Faults, e.DefaultMix())
	if r.Plan != nil {
		plan, wrong, cant := e.Given(d, r.Plan)
		return plan, cmp.Or(faults.Impossible(wrong), cant)
	}
	plan, run.SkippedFaults, err = e.Draw(d, r.Faults, x.chosen, seed, r.Length)
	return plan, err
}

// Lease is that of the grants of the run; 0: they have none.
func (r RandomRun) Lease() time.Duration {
	x, err := r.resolve()
	if err != nil || r.Lock.Endless {
		return 0
	}
	return r.Lock.LeaseOf(withLock(r.Workload, r.Lock, x.kinds).Lease, r.Options.Watchdog)
}

// environment is what the run's faults are drawn for, in the topology's usual form.
func (r RandomRun) environment(x resolved) faults.Environment {
	clients := withLock(r.Workload, r.Lock, x.kinds)
	e := faults.Environment{
		Topology: x.topology, Acks: r.Options.ReplicaAcks, Locks: clients.LockNames(),
		Lock: faults.LockTraits{
			Name: r.Lock.Name, Local: r.Lock.InProcess != nil, Subscribes: r.Lock.Subscribes, Commands: r.Lock.CommandPattern(),
			Own: slices.Equal(r.Lock.Commands, OwnCommands()), Process: r.Lock.Connects,
		},
	}
	if err := shim.Usable(); err != nil {
		e.Lock.NoClocks = err.Error()
	}
	watched := slices.ContainsFunc(x.kinds, func(k workload.Kind) bool { return k.Needs.Watched })
	if x.topology.Consensus() && (watched || clients.Lease == 0) {
		e.Session, e.Outlasting = r.Lock.LeaseOf(0, r.Options.Watchdog), watched
	}
	if !e.Lock.Own {
		return e
	}
	e.Lease = r.Lock.LeaseOf(clients.Lease, r.Options.Watchdog)
	e.Lock.Requests = []string{acquireWord + "|" + acquireLastWord, releaseWord}
	if clients.Extends && clients.Lease > 0 && slices.ContainsFunc(x.kinds, func(k workload.Kind) bool { return k.Extends }) {
		e.Lock.Requests = append(e.Lock.Requests, extendWord)
	}
	if r.Lock.Watchdog && watched {
		e.Lock.Requests = append(e.Lock.Requests, renewWord)
	}
	return e
}

func (r RandomRun) kind() string { return cmp.Or(r.Kind, r.Lock.DefaultWorkload()) }

// Run runs it and leaves the record in s.Dir. When ctx ends before its time,
// the faults are healed and what was recorded is kept; that is no error.
func (r RandomRun) Run(ctx context.Context, s Config) (err error) {
	x, err := r.resolve()
	if err != nil {
		return err
	}
	r.Workload.Seed = s.Seed
	r.Workload = withLock(r.Workload, r.Lock, x.kinds)
	r.Options.Permits = r.Workload.Permits
	r.Resource.Kind = cmp.Or(r.Resource.Kind, ResourceRegister)
	// A deployment that was there before may be of another size than one of ours, so
	// the plan is for the one that is there.
	prepare := func(d topologies.Deployment, run *history.Run) (faults.Plan, error) {
		if err := faults.Impossible(CheckServers(r.Options.ReplicaAcks, r.Servers, d.Topology())); err != nil {
			return nil, err
		}
		plan, err := r.planFor(d, s.Seed, x, run)
		if err != nil {
			return nil, err
		}
		for _, why := range run.SkippedFaults {
			s.notice("left out: " + why)
		}
		for _, step := range plan {
			run.Plan = append(run.Plan, step.Step)
		}
		run.Progress = r.progress(d.Topology())
		run.Settings, err = r.settings()
		return plan, err
	}
	st, err := Open(ctx, s, Start{
		Run:      history.Run{Lock: r.Lock.Name, Unpromised: r.Lock.Unpromised(), Workload: r.kind()},
		Topology: x.topology, Faults: r.asked(x), Resource: r.Resource, Prepare: prepare,
	})
	if err != nil {
		return err
	}
	defer func() { err = st.Close(ctx, err) }()
	st.SetLock(r.Lock, r.Options)
	st.Declare(r.Workload.LockNames()...)
	working, stop := context.WithCancel(ctx)
	defer stop()
	st.stopWork = func() bool {
		early := working.Err() == nil
		stop()
		return early
	}
	zones, err := st.zones(r.Workload.LockNames())
	if errors.Is(err, driver.ErrNotStarted) {
		st.blameDriver(err.Error())
		return nil
	}
	if err != nil {
		return err
	}
	if r.Lock.Foreign && r.Lock.onRedis() && len(st.Plan) > 0 {
		if err := st.learn(ctx, zones[0].Name, zones[0].Locker); err != nil {
			st.notice(err.Error() + ": faults are aimed at what is usual")
		}
	}
	if r.Recorded {
		defer time.AfterFunc(r.Length, stop).Stop()
	}
	st.report(working, r.Length)
	st.patience = faultPatience
	var following sync.WaitGroup
	defer following.Wait()
	defer stop()
	following.Go(func() {
		defer stop()
		start := time.Now()
		healed := st.follow(working, r.Length, r.Recorded)
		if r.Recorded {
			<-working.Done()
		}
		workload.Pause(working, max(time.Until(start.Add(r.Length)), time.Until(healed.Add(faults.PaceOf(r.Length).End))))
	})
	r.Workload.Soon = true // else a short run may have met nothing
	workload.Run(working, r.Workload, zones, st.recorder, &st.processes)
	return nil
}

// zones opens the lock for the clients of each zone.
func (st *Session) zones(locks []string) (zones []workload.Zone, err error) {
	for _, name := range st.deployment.Topology().Of(topologies.Zone) {
		zone := workload.Zone{Name: name, NodeName: st.deployment.NodeAt, Resources: map[string]workload.Resource{}}
		for _, l := range locks {
			zone.Resources[l] = st.Resource(name, l, "")
		}
		if zone.Locker, err = st.locker(name); err != nil {
			return nil, err
		}
		if st.lock.LooksLeft {
			zone.Refused = st.refused
		}
		zone.Granted = st.grants.in(name)
		zones = append(zones, zone)
	}
	return zones, nil
}

// progress is the bound of [checker.Progress] on a topology; 0 for its default. Where a failover may
// lose what ended a grant, or a request leaves votes behind, a correct lock may stay taken for a
// lease, which may be longer than that.
func (r RandomRun) progress(t topologies.Topology) time.Duration {
	lease := r.Lock.LeaseOf(r.Workload.Lease, r.Options.Watchdog)
	if t.Replicas() == 0 && !t.Apart() || lease < checker.ProgressBound {
		return 0
	}
	return checker.ProgressBound + lease
}

// follow injects and heals the faults of the plan, and returns when the last one
// was healed. One that takes no effect is recorded as such, and the plan goes on.
// Each begins with the deployment whole and quiet, so that the plan falls behind
// its times where that takes long, and its last steps may be left out; the record
// says so. The first is never left out, nor is any that was recorded at its time.
//
// A run in which no fault took effect has shown nothing: those that waited in vain are tried again until one fires, for as long again.
func (st *Session) follow(ctx context.Context, length time.Duration, recorded bool) (healed time.Time) {
	start, pace, landed := time.Now(), faults.PaceOf(length), false
	var inVain faults.Plan
	healed = start.Add(-pace.Least)
	play := func(step faults.Planned) {
		if err := st.deployment.AwaitReady(ctx); err != nil { // which has a bound of its own
			st.failInjection(ctx, step.Step, fmt.Errorf("the deployment is not whole: %w", err))
		} else if st.Inject(ctx, step) == nil {
			if st.last(ctx, step) {
				landed = true
			} else {
				inVain = append(inVain, step)
			}
		}
		healed = time.Now()
	}
	for i, step := range st.Plan {
		wait := time.Until(start.Add(step.At))
		if !recorded {
			wait = max(wait, time.Until(healed.Add(pace.Least)))
		}
		if !workload.Pause(ctx, wait) {
			return time.Now()
		}
		if !recorded && i > 0 && time.Since(start)+step.For > length-pace.End {
			st.run.LateFaults = len(st.Plan) - i
			st.notice("left out: " + st.run.Late())
			break
		}
		play(step)
	}
	for i := 0; i < len(inVain) && !landed && !recorded && time.Since(start) < 2*length && workload.Pause(ctx, pace.Least); i++ {
		play(inVain[i]) // and if it waits in vain once more, it comes again
	}
	return healed
}

// last lets a fault go on for as long as planned, heals it, and tells whether it took effect: an armed fault may never fire.
// The time of one that does begins then.
func (st *Session) last(ctx context.Context, step faults.Planned) bool {
	if step.Spec.Life == history.Triggered {
		waiting, cancel := context.WithTimeout(ctx, faultPatience)
		defer cancel()
		if err := st.AwaitFault(waiting, step.Fault, ""); err != nil {
			_ = st.Heal(ctx, step.Fault) // and with that it is recorded why it never fired
			return false
		}
	}
	if step.For > 0 {
		workload.Pause(ctx, step.For) // the heal comes in any case
	}
	if st.activeBy(step.Fault) != nil {
		_ = st.Heal(ctx, step.Fault)
	}
	return true
}

// faultPatience is how long a fault of a random run waits for what it takes: a key to
// lose, or a message that it is aimed at.
const faultPatience = 5 * time.Second

// progressEvery is how often a run's progress is told.
const progressEvery = 200 * time.Millisecond

func (st *Session) report(ctx context.Context, length time.Duration) {
	if st.Progress == nil {
		return
	}
	start := time.Now()
	st.closers = append(st.closers, await.Behind(ctx, func(stopped context.Context) {
		for ctx.Err() == nil && workload.Pause(stopped, progressEvery) {
			p := Progress{Elapsed: time.Since(start), Length: length, Grants: st.grants.all.Load()}
			if a := st.activeBy(""); a != nil {
				p.Fault = a.Step.Fault
			}
			st.Progress(p)
		}
	}))
}
