package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/topologies"
)

// A Plan is what is to be measured.
type Plan struct {
	Backend topologies.Backend
	// Topology is where the workloads take place that need no other.
	Topology  string
	Servers   topologies.Options
	Workloads []Workload
	// Systems are what is compared. [Baselines] take part in any case.
	Systems []System
	// Rounds is how often each system has its turn. 0: until the interval of each ratio is
	// narrow, or the workload's share of Budget is spent; one round in any case.
	Rounds int
	// Budget is how long the run may take where Rounds is 0, besides what the servers need to
	// start. What a workload leaves of its share goes to those after it. Default: 30s for each workload.
	Budget time.Duration
	// Length is how long a turn is, and WarmUp for how long a system works before.
	// Defaults: 300ms and 100ms. Where a hand-over takes long, both are as long as
	// eight and two of them, at least.
	Length, WarmUp time.Duration
	// Seed decides the order of turns and the workers' choices.
	Seed uint64
	// Progress is called before every slice. Nil: it is not called.
	Progress func(workload, system string, round int)
}

const (
	// between is about what a slice takes besides.
	between = 60 * time.Millisecond
	// workloadBudget is the default of a budget, for each workload.
	workloadBudget = 30 * time.Second
)

func (p Plan) withDefaults() Plan {
	if p.Rounds == 0 && p.Budget == 0 {
		p.Budget = time.Duration(len(p.Workloads)) * workloadBudget
	}
	if p.Length == 0 {
		p.Length = 300 * time.Millisecond
	}
	if p.WarmUp == 0 {
		p.WarmUp = 100 * time.Millisecond
	}
	if p.Topology == "" {
		p.Topology = topologies.Single
	}
	return p
}

// Validate joins everything that is wrong with the plan.
func (p Plan) Validate() error {
	var errs []error
	if _, err := topologies.New(p.Topology, p.Servers); err != nil {
		errs = append(errs, err)
	} else if topologies.ShapeOf(p.Topology).Apart() {
		errs = append(errs, errors.New("topology independent: the workloads redlock-... bring their servers with them; choose another topology for the others"))
	} else if topologies.StoreOf(p.Topology) != topologies.StoreRedis {
		errs = append(errs, fmt.Errorf("topology %s: the baselines are on Redis; --lock etcd measures a lock on a member beside them", p.Topology))
	}
	if p.Rounds < 0 || p.Budget < 0 || p.Length < 0 || p.WarmUp < 0 {
		errs = append(errs, errors.New("rounds, budget, duration and warm-up must be above 0"))
	}
	if p.Rounds > 0 && p.Budget > 0 {
		errs = append(errs, errors.New("a number of rounds needs no budget: name one of them"))
	}
	if len(p.Workloads) == 0 {
		errs = append(errs, errors.New("no workload was named"))
	}
	return errors.Join(errs...)
}

// Estimate is about how long it takes, at most where it has a budget.
func (p Plan) Estimate() time.Duration {
	p = p.withDefaults()
	var once time.Duration
	for _, w := range p.Workloads {
		warmUp, length := p.times(w)
		for _, s := range p.systems() {
			if s.unfit(w) == "" {
				once += warmUp + length + between
			}
		}
	}
	if p.Rounds == 0 {
		return max(p.Budget, once)
	}
	return time.Duration(p.Rounds) * once
}

// times are for how long a turn is warmed up and measured: longer than planned where
// hardly a hand-over fits in.
func (p Plan) times(w Workload) (warmUp, length time.Duration) {
	if !w.Turns {
		return p.WarmUp, p.Length
	}
	turn := w.Hold + 2*w.Delay
	return max(p.WarmUp, 2*turn), max(p.Length, 8*turn)
}

func (p Plan) systems() []System { return append(Baselines(), p.Systems...) }

// Run measures, and returns what was measured when the context ended before its
// time: whole workloads only.
func (p Plan) Run(ctx context.Context) (Results, error) {
	p = p.withDefaults()
	if err := p.Validate(); err != nil {
		return Results{}, err
	}
	r := Results{
		Version: Version, Started: time.Now(), Machine: thisMachine(),
		Settings: Settings{
			Topology: p.Topology, Rounds: p.Rounds, Budget: p.Budget, Length: p.Length, WarmUp: p.WarmUp, Seed: p.Seed, PoolSize: poolSize,
		},
	}
	left := p.Budget
	rng := rand.New(rand.NewPCG(p.Seed, 0))
	places := places{p.Backend, map[string]topologies.Deployment{}}
	var err error
	for i, w := range p.Workloads {
		topology, options := p.Topology, p.Servers
		if w.Servers > 0 {
			topology, options = topologies.Independent, topologies.Options{Nodes: w.Servers}
		}
		var d topologies.Deployment
		if d, err = places.at(ctx, topology, options); err != nil {
			break
		}
		r.Machine.Redis = d.Version()
		begun := time.Now()
		var result WorkloadResult
		if result, err = p.measure(ctx, d, w, rng, left/time.Duration(len(p.Workloads)-i)); err != nil {
			break
		}
		left = max(left-time.Since(begun), 0)
		r.Workloads = append(r.Workloads, result)
	}
	if ctx.Err() != nil {
		r.Interrupted, err = true, nil
	}
	r.Seconds = time.Since(r.Started).Seconds()
	return r, errors.Join(err, places.close())
}

// places are the deployments of a run, each started when it is first needed.
type places struct {
	backend topologies.Backend
	open    map[string]topologies.Deployment
}

func (p *places) at(ctx context.Context, topology string, o topologies.Options) (topologies.Deployment, error) {
	key := fmt.Sprint(topology, o)
	if d, ok := p.open[key]; ok {
		return d, nil
	}
	t, err := topologies.New(topology, o)
	if err != nil {
		return nil, err
	}
	d, err := p.backend.Start(ctx, t)
	if err != nil {
		return nil, err
	}
	p.open[key] = d
	return d, nil
}

func (p *places) close() error {
	var errs []error
	for _, d := range p.open {
		errs = append(errs, d.Close())
	}
	return errors.Join(errs...)
}

// measure has all systems take turns at one workload. The budget counts where no number of
// rounds is given.
func (p Plan) measure(
	ctx context.Context, d topologies.Deployment, w Workload, rng *rand.Rand, budget time.Duration,
) (result WorkloadResult, err error) {
	result.Workload = w
	g, err := prepare(ctx, d, w)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, g.heal(ctx)) }()
	all := p.systems()
	for i, s := range all {
		result.Systems = append(result.Systems, SystemResult{Name: s.Name, Baseline: i < len(Baselines()), Unfit: s.unfit(w)})
	}
	more := p.untilNarrow(&result, budget)
	if p.Rounds > 0 {
		more = func() bool { return result.Rounds < p.Rounds }
	}
	for more() {
		for _, i := range rng.Perm(len(all)) {
			r := &result.Systems[i]
			if r.Unfit != "" {
				continue
			}
			if p.Progress != nil {
				p.Progress(w.Name, r.Name, result.Rounds+1)
			}
			s, err := p.slice(ctx, g, w, all[i], rng.Uint64())
			if err = cmp.Or(err, ctx.Err()); err != nil {
				return result, fmt.Errorf("measure %s at %s: %w", r.Name, w.Name, err)
			}
			r.Rounds = append(r.Rounds, s)
		}
		result.Rounds++
	}
	base := result.baselineRounds()
	for i := range result.Systems {
		r := &result.Systems[i]
		r.summarize(w.Metric, base)
		if all[i].Caveat != nil && r.Unfit == "" {
			r.Caveat = all[i].Caveat()
		}
	}
	result.Systems = slices.DeleteFunc(result.Systems, func(s SystemResult) bool { return s.Baseline && s.Unfit != "" })
	result.rank()
	return result, nil
}

// untilNarrow returns whether a workload needs another round: not when all its intervals
// are narrow, nor when another round would take longer than what is left of the budget.
func (p Plan) untilNarrow(result *WorkloadResult, budget time.Duration) func() bool {
	begun := time.Now()
	return func() bool {
		if result.Rounds == 0 {
			return true
		}
		result.Wide = result.stillWide()
		took := time.Since(begun)
		return len(result.Wide) > 0 && took+took/time.Duration(result.Rounds) <= budget
	}
}

// slice is one turn of one system.
func (p Plan) slice(ctx context.Context, g *testServers, w Workload, s System, seed uint64) (Slice, error) {
	for _, rdb := range g.live { // what the last slice left, the next one would pay for
		if err := rdb.FlushAll(ctx).Err(); err != nil {
			return Slice{}, fmt.Errorf("sweep the servers: %w", err)
		}
	}
	instances, stay := g.kept[s.Name]
	if !stay {
		var closeAll func()
		var err error
		if instances, closeAll, err = s.open(ctx, g, w); err != nil {
			return Slice{}, err
		}
		if s.OpenAt != nil {
			g.kept[s.Name] = instances
			g.heals = append(g.heals, func(context.Context) error { closeAll(); return nil })
		} else {
			defer closeAll()
		}
	}
	runtime.GC() // what the last one left is not this one's
	d := newDriver(w, instances, fmt.Sprintf("bench-%x", seed))
	stop := await.Behind(ctx, func(ctx context.Context) { d.work(ctx, seed) })
	defer stop()
	warmUp, length := p.times(w)
	err := await.Pause(ctx, warmUp)
	if s.OpenAt != nil && !stay {
		err = d.settle(ctx)
	}
	if err != nil {
		return Slice{}, err
	}
	before, err := spent(ctx, g.live)
	if err != nil {
		return Slice{}, err
	}
	due, served := d.due(time.Now()), d.served.Load()
	d.phase.Store(measuring)
	begin := time.Now()
	if err := await.Pause(ctx, length); err != nil {
		return Slice{}, err
	}
	after, err := spent(ctx, g.live)
	if err != nil {
		return Slice{}, err
	}
	d.phase.Store(over)
	seconds := time.Since(begin).Seconds()
	backlog := d.due(time.Now()) - due - (d.served.Load() - served)
	stop()
	result := d.slice(after.minus(before), seconds)
	if w.Rate > 0 {
		result.Backlog = max(backlog, 0)
	}
	return result, nil
}
