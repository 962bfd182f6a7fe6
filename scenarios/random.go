package scenarios

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/workload"
	"github.com/lockchaos/lockchaos/workload/history"
)

// A Random is a run in which a workload goes on while a seeded schedule of
// faults passes.
type Random struct {
	Topology string
	// Servers size and tune the topology.
	Servers topologies.Options
	Lock    string
	Options LockOptions
	// Kind names the workload, or several in a comma list, of which each client
	// draws one a time; empty is [DefaultWorkload].
	Kind     string
	Workload workload.Config
	// Protected says what the locks protect.
	Protected Protected
	// Faults is the mix to draw from; empty is [DefaultMix].
	Faults string
	// Length is how long the workload goes on.
	Length time.Duration
}

// Plan draws the run's schedule: the same seed gives the same one.
func (r Random) Plan(seed uint64) (faults.Schedule, error) {
	t, err := topologies.New(r.Topology, r.Servers)
	if err != nil {
		return nil, err
	}
	chosen, err := choices(t, cmp.Or(r.Faults, DefaultMix(t)))
	if err != nil {
		return nil, err
	}
	return r.draw(chosen, seed), nil
}

func (r Random) draw(chosen []faults.Choice, seed uint64) faults.Schedule {
	return faults.Draw(rand.New(rand.NewPCG(seed, planStream)), chosen, r.Length)
}

// planStream keeps the plan's choices apart from those of the workload.
const planStream = 1 << 32

// Validate joins everything that is wrong with the run.
func (r Random) Validate() error {
	errs := []error{r.Workload.Validate()}
	if _, err := r.Plan(0); err != nil {
		errs = append(errs, err)
	}
	l, err := LockByName(r.Lock)
	if err != nil {
		errs = append(errs, err)
	}
	kinds, unknown := parseWorkload(r.kind())
	errs = append(errs, unknown, r.Protected.validate(l))
	for _, k := range kinds {
		if err == nil {
			errs = append(errs, l.Suits(k))
		}
	}
	if r.Length <= 0 {
		errs = append(errs, fmt.Errorf("duration must be above 0, not %v", r.Length))
	}
	return errors.Join(append(errs, r.Options.validate(l, r.Topology, r.Servers))...)
}

func (r Random) kind() string { return cmp.Or(r.Kind, DefaultWorkload(r.Lock)) }

// Run runs it and leaves the record in s.Dir. When ctx ends before its time,
// the faults are healed and what was recorded is kept; that is no error.
func (r Random) Run(ctx context.Context, s Setup) (err error) {
	if err := r.Validate(); err != nil {
		return err
	}
	t, err := topologies.New(r.Topology, r.Servers)
	if err != nil {
		return err
	}
	l, err := LockByName(r.Lock)
	if err != nil {
		return err
	}
	kinds, err := parseWorkload(r.kind())
	if err != nil {
		return err
	}
	r.Workload.Seed = s.Seed
	r.Workload = withLock(r.Workload, l, kinds)
	r.Options.permits = r.Workload.Permits
	var plan faults.Schedule
	run := history.Run{
		Lock: r.Lock, Workload: r.kind(),
		Resource: cmp.Or(r.Protected.Resource, ResourceRegister), Fencing: r.Protected.Fencing,
	}
	if s, err = s.instrumentedFor(t, cmp.Or(r.Faults, MixNone)); err != nil {
		return err
	}
	// Somebody else's deployment may be of another size than ours would be, so
	// the plan is for the one that is there.
	st, err := open(ctx, s, run, t, func(d topologies.Deployment, run *history.Run) error {
		if err := impossible(r.Protected.startable(s.BackendName), acksFit(r.Options.ReplicaAcks, d.Topology()), optionsFit(r.Servers, d.Topology())); err != nil {
			return err
		}
		mix, chosen, left, err := r.drawable(d)
		if err != nil {
			return err
		}
		for _, why := range left {
			s.notice(why)
		}
		plan = r.draw(chosen, s.Seed)
		run.Faults, run.LeftOut, run.Plan = mix, left, planned(plan)
		return nil
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.close(ctx)) }()
	protected, err := openResources(ctx, r.Protected, s.Backend)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.keep(ctx, protected)) }()
	if l.kind == history.KindSemaphore {
		l.capacity = r.Workload.Permits
	}
	st.declare(l, r.Workload.LockNames()...)
	var zones []workload.Zone
	for _, name := range st.deployment.Topology().Of(topologies.Zone) {
		locker, err := st.locker(l, r.Options, name)
		if err != nil {
			return err
		}
		zones = append(zones, workload.Zone{
			Name: name, Locker: locker, NodeName: st.deployment.NodeAt,
			Resources: protected.all(name, r.Workload.LockNames()),
		})
	}
	working, stop := context.WithCancel(ctx)
	defer stop()
	st.report(working, r.Length)
	followed := make(chan struct{})
	defer func() { <-followed }()
	go func() {
		defer close(followed)
		defer stop()
		start := time.Now()
		st.follow(ctx, plan, r.Length)
		workload.Pause(ctx, time.Until(start.Add(r.Length)))
	}()
	workload.Run(working, r.Workload, zones, st.recorder, &st.processes)
	return nil
}

// follow injects and heals the faults of a plan. One that takes no effect is
// recorded as such, and the plan goes on. Each begins with the deployment
// whole and quiet, so that the plan falls behind its times where that takes
// long, and its last steps may be left out.
func (st *stage) follow(ctx context.Context, plan faults.Schedule, length time.Duration) {
	start := time.Now()
	quiet := start
	for _, step := range plan {
		if !workload.Pause(ctx, max(time.Until(start.Add(step.At)), time.Until(quiet))) {
			return
		}
		if time.Since(start)+step.For > length-faults.QuietEnd {
			return
		}
		if err := st.injectWhole(ctx, step); err == nil && step.For > 0 {
			workload.Pause(ctx, step.For) // the heal comes in any case
			_ = st.heal(ctx, step.Fault)
		}
		quiet = time.Now().Add(faults.QuietLeast)
	}
}

// injectWhole injects once the deployment is whole.
func (st *stage) injectWhole(ctx context.Context, step faults.Step) error {
	whole, cancel := context.WithTimeout(ctx, healTimeout)
	defer cancel()
	if err := st.deployment.AwaitReady(whole); err != nil {
		st.failInjection(ctx, step, fmt.Errorf("the deployment is not whole: %w", err))
		return err
	}
	return st.inject(ctx, step)
}

// progressEvery is how often a run's progress is told.
const progressEvery = 200 * time.Millisecond

func (st *stage) report(ctx context.Context, length time.Duration) {
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
					Grants: st.grants.Load(), Fault: st.activeFault(),
				})
			case <-ctx.Done():
				return
			}
		}
	}()
	st.closers = append(st.closers, func() { <-done })
}

func planned(s faults.Schedule) []history.PlannedStep {
	var steps []history.PlannedStep
	for _, p := range s {
		steps = append(steps, history.PlannedStep{At: p.At, For: p.For, Fault: p.Fault, Target: p.Target, Params: p.Params})
	}
	return steps
}
