package causes

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/campaign"
	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports"
	"github.com/lockchaos/lockchaos/topologies"
)

// Dir is the folder of the runs of a measurement, in the directory of the run that they play again.
const Dir = "causes"

// afterwards is for how long a run goes on after the last event of the violations: what ends a hold may
// come later than it did.
const afterwards = 300 * time.Millisecond

// Playable says why a recorded run can't be played again; nil if it can.
func Playable(run history.Run) error {
	switch {
	case run.Scenario != "":
		return fmt.Errorf("it is a script: its variants leave out what causes the violation (lockchaos reproduce %s)", run.Scenario)
	case run.Backend == history.Simulated:
		return nil
	case run.Backend == history.Attached:
		return errors.New("its servers are not ours: faults were in effect at the time, and more can't be said")
	case len(run.Settings) == 0:
		return errors.New("it is no record of a run of lockchaos: faults were in effect at the time, and more can't be said")
	}
	return nil
}

// Recorded plays the run of a run directory again, up to the end of a cluster, with the faults at the times
// at which it had them. The runs lie in its folder [Dir].
func Recorded(in reports.Input, dir string, c Cluster, r harness.RandomRun, control harness.LockSpec, p campaign.Player) Experiment {
	begin := begun(in.History)
	r.Recorded, r.Length = true, c.Until-begin+afterwards
	other, unsuited := r.Control(in.Run, control)
	e := Experiment{Cluster: c, Least: 5, Most: 10, LeastControl: 5, Accidents: 1, Acks: r.Options.ReplicaAcks}
	if unsuited != nil {
		r := r
		r.Kind = control.DefaultWorkload()
		other, unsuited = r.Control(in.Run, control)
		e.ControlWorkload = r.Kind
	}
	if unsuited == nil && Shows(control, c.Kind) == nil {
		e.Control = control.Name
	}
	plan := recordedPlan(in, c, begin)
	e.Play = func(ctx context.Context, a Arm, round int) (Played, error) {
		played := r
		if a.Control {
			played = other
		}
		played.Plan = []faults.Step{}
		for _, f := range a.Faults {
			played.Plan = append(played.Plan, plan[f])
		}
		to := filepath.Join(Dir, fmt.Sprintf("%s-%d-%s-%d", c.Kind, c.From.Milliseconds(), a.Name, round+1))
		path := filepath.Join(dir, to)
		again, err := p.Play(ctx, campaign.Run{
			Config: harness.Config{Dir: path, Seed: in.Run.Seed, Command: "lockchaos run --replay " + strconv.Quote(path)},
			Make:   played.Run, Store: topologies.StoreOf(r.Topology),
		})
		if again.History == nil {
			return Played{Dir: to}, err
		}
		kinds, undecided := shown(again.Report, c, c.begin()-begin+begun(again.History))
		return Played{kinds, undecided || again.Failed != nil || landed(again.History) < len(played.Plan), to}, err
	}
	return e
}

// Cost is about how long an experiment takes with the least runs: each run as long as it is, and its servers.
func (e Experiment) Cost() time.Duration {
	const start = 3 * time.Second
	return time.Duration(e.Ways()*e.Least) * (e.Until + afterwards + start)
}

// begun is when the clients began, from which on a plan counts.
func begun(h *history.History) time.Duration {
	for i := range h.Events {
		if e := &h.Events[i]; e.Op == history.Acquire {
			return e.Time
		}
	}
	return 0
}

// recordedPlan has for each fault of a cluster the step of the plan that it was of, with the times that were
// recorded: its server, or its zone, is the one that was hit.
func recordedPlan(in reports.Input, c Cluster, begin time.Duration) []faults.Step {
	var plan []faults.Step
	for _, f := range c.Faults {
		step := faults.Step{Fault: f.Name, Target: f.Target, Params: f.Params}
		i := -1
		for j, p := range in.Run.Plan {
			if p.Fault == f.Name && p.At <= f.Start-begin+time.Millisecond {
				i = j // the last that was due: steps are late, and never early
			}
		}
		if i >= 0 {
			step.Params = in.Run.Plan[i].Params
			if in.Run.Plan[i].Target != faults.TargetOfLock {
				zone, _, _ := strings.Cut(strings.Trim(f.Target, "{}"), ">")
				step.Target, _ = faults.HolderIn(zone, in.Run.Plan[i].Target)
			}
		}
		step.At = max(0, f.Start-begin)
		step.For = max(0, min(f.HealAsked(), c.Until+afterwards)-f.InEffect)
		plan = append(plan, step)
	}
	return plan
}

// begin is when the violations of a cluster, and what is suspected of them, began: what came before is of another.
func (c Cluster) begin() time.Duration {
	const early = 100 * time.Millisecond // by which a fault may come
	first := c.From
	for _, s := range c.Suspects {
		first = min(first, c.Faults[s].Start)
	}
	return first - early
}

// shown are the kinds of violation that a report has from an instant on, and whether a property of a cluster was
// not decided.
func shown(r checker.Report, c Cluster, from time.Duration) (kinds []string, undecided bool) {
	for _, p := range r.Results {
		open := p.Verdict == checker.Unknown || p.Total > len(p.Violations) // those that are not listed may be later ones
		undecided = undecided || open && slices.Contains(c.Properties, p.Name)
		for _, v := range p.Violations {
			if p.Verdict == checker.Invalid && v.From >= from && !slices.Contains(kinds, v.Kind) {
				kinds = append(kinds, v.Kind)
			}
		}
	}
	return kinds, undecided
}

// landed is how many faults took effect.
func landed(h *history.History) int {
	n := 0
	for i := range h.Events {
		if e := &h.Events[i]; e.Op == history.Inject && e.Type == history.OK {
			n++
		}
	}
	return n
}
