package causes

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/reports"
	"github.com/lockchaos/lockchaos/simulation"
	"github.com/lockchaos/lockchaos/simulation/world"
	"github.com/lockchaos/lockchaos/topologies"
)

// The runs that each arm of a simulation has: leaving a fault out shifts what follows, so that each
// round has another seed, and a run takes some milliseconds.
const (
	leastSimulated = 10
	mostSimulated  = 160
	mostDeciding   = 2560
	leastControl   = 80
)

// longer is for how much longer than the smallest case the control lock runs, which may be slower to come into
// the same state.
const longer = 2 * time.Second

// moved is by how much the control lock meets a fault earlier or later, and amongWrites at which of so many
// events: what the lock under test was doing at the recorded instant, another lock does at another one.
const (
	moved       = 300 * time.Millisecond
	amongWrites = 8
)

// A Finder plays a case, and says which kinds of violation it shows.
type Finder func(ctx context.Context, c simulation.Case) ([]string, error)

// InPool is a finder that plays cases in a pool. It plays no case twice: several kinds of violation of one case are measured
// by the same runs. It is for one goroutine.
func InPool(pool *simulation.Pool) Finder {
	shown := map[string][]string{}
	return func(ctx context.Context, c simulation.Case) ([]string, error) {
		key, err := json.Marshal(c)
		if err != nil {
			return nil, fmt.Errorf("a case: %w", err)
		}
		if kinds, played := shown[string(key)]; played {
			return kinds, nil
		}
		r, err := pool.Do(ctx, simulation.Job{Lock: c.Lock, Case: &c, Seed: c.Seed})
		if err == nil {
			shown[string(key)] = r.Findings
		}
		return r.Findings, err
	}
}

// Simulated plays the case of a simulated run again, with other seeds from the second round on. Its
// faults keep the event at which they begin; three are suspects: first those that were in effect at the violation that the
// run has, then those that ended nearest before it. The kinds of violation that a case shows are what find says.
func Simulated(c simulation.Case, run reports.Input, kind string, control harness.LockSpec, find Finder) Experiment {
	e := Experiment{Cluster: Cluster{Kind: kind, Until: c.Length}, Least: leastSimulated, Most: mostSimulated, MostDeciding: mostDeciding, LeastControl: leastControl, Acks: c.ReplicaAcks}
	found := Cluster{Until: c.Length}
	if all := Clusters(run); slices.ContainsFunc(all, func(of Cluster) bool { return of.Kind == kind }) {
		found = all[slices.IndexFunc(all, func(of Cluster) bool { return of.Kind == kind })]
	}
	e.Until = max(c.Length, found.Until) // what the clients of a case began goes on after its length
	e.Faults = happened(c.Plan, reports.Summarize(run).Faults)
	order, _ := nearest(e.Faults, found.From, found.Until)
	e.suspect(order)
	other := c
	other.Lock, other.Length = control.Name, c.Length+longer
	if other.Validate(control) != nil {
		other.Workload = control.DefaultWorkload()
		e.ControlWorkload = other.Workload
	}
	if other.Validate(control) == nil && Shows(control, kind) == nil {
		e.Control = control.Name
	}
	e.Play = func(ctx context.Context, a Arm, round int) (Played, error) {
		played := c
		if a.Control {
			played = other
		}
		played.Seed, played.Plan = c.Seed+uint64(round), nil
		for _, f := range a.Faults {
			played.Plan = append(played.Plan, c.Plan[f])
		}
		if a.Control && round > 0 {
			elsewhere(played.Plan, played.Seed, c.Length)
			if topologies.ShapeOf(c.Topology).Slots {
				onAnyShard(played.Plan, played.Seed)
			}
		}
		kinds, err := find(ctx, played)
		return Played{Kinds: kinds}, err
	}
	return e
}

// happened are the faults of a plan as the record of its run has them, which knows when one began that waits for an event,
// and which server was the master then; as they were planned where there is no record.
func happened(plan []world.Fault, recorded []reports.Fault) []reports.Fault {
	all, none := []reports.Fault(nil), len(recorded) == 0
	recorded = slices.Clone(recorded)
	for _, f := range plan {
		had := reports.Fault{Name: f.Name, Target: f.Target, Start: f.At, End: f.At + f.For, OK: none}
		at := slices.IndexFunc(recorded, func(r reports.Fault) bool {
			return r.Name == f.Name && (r.Target == f.Target || f.Target == world.TheMaster)
		})
		if at >= 0 {
			had = recorded[at]
			recorded = slices.Delete(recorded, at, at+1)
		}
		all = append(all, had)
	}
	return all
}

// elsewhere moves the faults of a plan to other instants. One that begins at a write of its server meets
// requests, and never a hold of a lock that writes twice only: it begins at any time in half of the runs.
func elsewhere(plan []world.Fault, seed uint64, length time.Duration) {
	rng := rand.New(rand.NewPCG(seed, 0xca05e)) //nolint:gosec // it is no secret
	for i := range plan {
		f := &plan[i]
		switch {
		case f.After != nil && world.Lasts(f.Name) && seed%2 == 0:
			f.At, f.After = time.Duration(rng.Int64N(int64(length+longer/2))), nil
		case f.After != nil:
			a := *f.After
			a.Nth = 1 + rng.IntN(amongWrites)
			f.After = &a
		default:
			f.At = max(0, f.At-moved+time.Duration(rng.Int64N(int64(2*moved))))
		}
	}
}

// onAnyShard has faults of one master of a cluster strike any of them: the key of the control lock may be on another
// one than that of the lock under test.
func onAnyShard(plan []world.Fault, seed uint64) {
	masters := []string{"redis-1", "redis-2", "redis-3"}
	for i := range plan {
		if slices.Contains(masters, plan[i].Target) {
			plan[i].Target = masters[seed%uint64(len(masters))]
		}
	}
}
