package harness

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/workload"
)

// Replay is the run that a record is of, with the plan that it followed; its
// seed is the record's, and its lock is one of locks. It fails for a record without
// settings, such as that of a script.
func Replay(run history.Run, locks Locks, allowExec bool) (RandomRun, error) {
	switch {
	case run.Scenario != "":
		return RandomRun{}, fmt.Errorf("it is the record of a scenario, which lockchaos reproduce %s plays again", run.Scenario)
	case len(run.Settings) == 0:
		return RandomRun{}, errors.New("it has no settings: an older lockchaos wrote it, or it is no record of a random run")
	}
	var s settings
	if err := json.Unmarshal(run.Settings, &s); err != nil {
		return RandomRun{}, fmt.Errorf("read its settings: %w", err)
	}
	l, unknown := locks.InFile(run.Lock, allowExec)
	r := RandomRun{
		Topology: run.Topology.Name, Lock: l, Kind: run.Workload, Faults: run.Faults,
		Servers: s.Options, Options: s.LockOptions, Workload: s.Config, Length: s.Length, Recorded: s.Recorded,
		Resource: ResourceConfig{Kind: run.Resource, Fencing: run.Fencing},
		Plan:     steps(run.Plan),
		foreign:  run.Backend == attached,
	}
	if unknown != nil {
		return r, unknown
	}
	return r, r.Validate()
}

// Control is the run again with the control lock: with the plan that was recorded, the
// same workload and the same servers. Its error says why that lock can't have it.
func (r RandomRun) Control(run history.Run, control LockSpec) (RandomRun, error) {
	control.Foreign = true // faults of commands are aimed at what it sends
	r.Kind = r.kind()
	r.Lock, r.Plan = control, steps(run.Plan)
	return r, r.Validate()
}

// steps are the schedule of a plan that was recorded.
func steps(plan []history.PlannedStep) faults.Schedule {
	s := faults.Schedule{}
	for _, p := range plan {
		s = append(s, faults.Step{At: p.At, For: p.For, Fault: p.Fault, Target: p.Target, Params: p.Params})
	}
	return s
}

// The settings of a run are what Replay needs of it beside what its record has anyway.
// A field of these types that has a name in JSON is recorded and replayed.
type settings struct {
	Length   time.Duration `json:"length"`
	Recorded bool          `json:"recorded,omitempty"`
	topologies.Options
	LockOptions
	workload.Config
}

// settings encodes them. The defaults of the workload are filled in by then: they may
// change.
func (r RandomRun) settings() (json.RawMessage, error) {
	return json.Marshal(settings{r.Length, r.Recorded, r.Servers, r.Options, r.Workload})
}

func planned(s faults.Schedule) []history.PlannedStep {
	var steps []history.PlannedStep
	for _, p := range s {
		steps = append(steps, history.PlannedStep{At: p.At, For: p.For, Fault: p.Fault, Target: p.Target, Params: p.Params})
	}
	return steps
}

// checkPlan joins what is wrong with a plan that was given.
func checkPlan(e faults.Environment, plan faults.Schedule) error {
	var errs []error
	end := time.Duration(0)
	for i, step := range plan {
		problem := func(err error) {
			if err != nil {
				errs = append(errs, fmt.Errorf("step %d of the plan: %w", i+1, err))
			}
		}
		if step.At < end || step.For < 0 {
			problem(fmt.Errorf("%s begins at %v and lasts %v, and the one before lasts until %v", step.Fault, step.At, step.For, end))
		}
		end = step.At + step.For
		problem(e.Validate(step))
	}
	return errors.Join(errs...)
}

// asked are the faults that the run may have.
func (r RandomRun) asked() ([]string, error) {
	var names []string
	for _, step := range r.Plan {
		names = append(names, step.Fault)
	}
	if r.Plan != nil || r.Faults == "" { // which has nothing that needs more than servers
		return names, nil
	}
	e, err := r.environment()
	if err != nil {
		return nil, err
	}
	chosen, err := e.Choose(r.Faults)
	for _, c := range chosen {
		names = append(names, c.Fault)
	}
	return names, err
}

// planFor is the plan for a deployment, which may be of another size and with
// other settings than ours would be, and writes into the record what it is drawn
// from. A fault that was asked for by name, the deployment must be able to have; of a mix
// it gets what it can have. The record says what is left out, and why; so it does of
// targets of a fault that can have others. A mix that was asked for and of which nothing is
// left is refused, and so is a run that is left with no fault: it would show nothing, and who
// wants none says so.
func (r RandomRun) planFor(d topologies.Deployment, seed uint64, run *history.Run) (faults.Schedule, error) {
	e, err := r.environment()
	if err != nil {
		return nil, err
	}
	usual := e
	e.Topology = d.Topology()
	run.Faults = r.mix(e)
	if r.Plan != nil {
		return r.Plan, Impossible(checkPlan(e, r.Plan), cant(d, r.Plan))
	}
	all, err := e.Choose(run.Faults)
	if err != nil {
		return nil, Impossible(err)
	}
	ours, err := usual.Choose(run.Faults)
	if err != nil {
		return nil, err
	}
	chosen, missing, narrowed := possible(d, all)
	if r.Faults != "" && r.Faults != faults.MixSafe {
		for name := range strings.SplitSeq(r.Faults, ",") {
			named, err := e.Choose(name)
			if err != nil {
				return nil, Impossible(err)
			}
			can, without, _ := possible(d, named)
			if why := cant(d, without); why != nil && (len(can) == 0 || !slices.Contains(faults.Mixes(), name)) {
				return nil, why
			}
		}
	}
	if why := cant(d, missing); why != nil && len(chosen) == 0 {
		return nil, fmt.Errorf("no fault of this topology is possible, and --faults %s was not said: %w", faults.MixNone, why)
	}
	if why := errors.Join(unlike(e, ours, all), cant(d, slices.Concat(missing, narrowed))); why != nil {
		run.SkippedFaults = strings.Split(why.Error(), "\n")
	}
	return faults.Generate(seed, chosen, r.Length), nil
}

// possible are the candidates that a deployment can have, each with the targets that it can
// have; and the steps of the others, and of the other targets.
func possible(d topologies.Deployment, all []faults.Candidate) (chosen []faults.Candidate, missing, narrowed faults.Schedule) {
	for _, c := range all {
		var targets []string
		var without faults.Schedule
		for target := range strings.SplitSeq(c.Target, "|") {
			step := faults.Step{Fault: c.Fault, Target: target, Params: c.FirstParams()}
			if cant(d, faults.Schedule{step}) == nil {
				targets = append(targets, target)
			} else {
				without = append(without, step)
			}
		}
		if len(targets) == 0 {
			missing = append(missing, without[0])
			continue
		}
		c.Target = strings.Join(targets, "|")
		chosen, narrowed = append(chosen, c), append(narrowed, without...)
	}
	return chosen, missing, narrowed
}

// unlike says which faults servers of ours could have and those of an environment can't,
// because they are wired in another way, and why.
func unlike(e faults.Environment, ours, here []faults.Candidate) error {
	same := func(c faults.Candidate) func(faults.Candidate) bool {
		return func(other faults.Candidate) bool { return other.Fault == c.Fault && other.Target == c.Target }
	}
	var reasons []string
	impossible := map[string][]string{} // by reason
	for _, c := range e.Candidates() {
		if c.Cant == "" || !slices.ContainsFunc(ours, same(c)) || slices.ContainsFunc(here, same(c)) {
			continue
		}
		if impossible[c.Cant] == nil {
			reasons = append(reasons, c.Cant)
		}
		what := c.Fault
		if slices.ContainsFunc(here, func(other faults.Candidate) bool { return other.Fault == c.Fault }) {
			what += " " + strings.ReplaceAll(c.Target, "|", " or ") // it can have others
		}
		impossible[c.Cant] = append(impossible[c.Cant], what)
	}
	var errs []error
	for _, why := range reasons {
		errs = append(errs, fmt.Errorf("%s %w: %s", strings.Join(impossible[why], ", "), ErrImpossible, why))
	}
	return errors.Join(errs...)
}

// cant says which steps a deployment can't have, and why; nil if it can have all.
func cant(d topologies.Deployment, plan faults.Schedule) error {
	var names []string
	var errs []error
	for _, step := range plan {
		names = append(names, step.Fault)
		if Possible(d, []string{step.Fault}) != nil {
			continue
		}
		if step.Target == faults.TargetOfLock {
			step.Target = d.Topology().Servers()[0]
		}
		if _, err := faults.New(site(d), step); err != nil && !slices.ContainsFunc(errs, func(other error) bool { return other.Error() == err.Error() }) {
			errs = append(errs, err)
		}
	}
	return errors.Join(Possible(d, names), Impossible(errs...))
}
