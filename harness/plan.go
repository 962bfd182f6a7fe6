package harness

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/topologies"
)

// ErrImpossible says that a run wants faults that its deployment can't have.
var ErrImpossible = errors.New("can't be done here")

// Impossible joins reasons; nil if there are none.
func Impossible(reasons ...error) error {
	if err := errors.Join(reasons...); err != nil {
		return fmt.Errorf("it %w: %w", ErrImpossible, err)
	}
	return nil
}

// A reason is why something can't be done.
type reason struct{ what, why string }

// impossible joins them, with all that one is the reason of, in the order in which they were found.
func impossible(found []reason) error {
	var errs []error
	for i, r := range found {
		var what []string
		for _, other := range found {
			if other.why == r.why {
				what = append(what, other.what)
			}
		}
		if slices.IndexFunc(found, func(other reason) bool { return other.why == r.why }) == i {
			errs = append(errs, fmt.Errorf("%s %w: %s", strings.Join(what, ", "), ErrImpossible, r.why))
		}
	}
	return errors.Join(errs...)
}

// Possible refuses faults that a deployment can't have, before anything is
// done to it.
func Possible(d topologies.Deployment, asked []string) error {
	var cant []reason
	for _, name := range slices.Compact(slices.Sorted(slices.Values(asked))) {
		spec, err := faults.ByName(name)
		if err != nil {
			continue // it is reported where it is asked for
		}
		if lack := spec.Lacks(d); lack != nil {
			cant = append(cant, reason{name, lack.Error()})
		}
	}
	return impossible(cant)
}

// checkPlan joins what is wrong with a plan that was given.
func checkPlan(e faults.Environment, plan faults.Schedule) error {
	var errs []error
	end := time.Duration(0)
	for i, step := range plan {
		var overlaps error
		if step.At < end || step.For < 0 {
			overlaps = fmt.Errorf("%s begins at %v and lasts %v, and the one before lasts until %v", step.Fault, step.At, step.For, end)
		}
		end = step.At + step.For
		for _, err := range []error{overlaps, e.Validate(step)} {
			if err != nil {
				errs = append(errs, fmt.Errorf("step %d of the plan: %w", i+1, err))
			}
		}
	}
	return errors.Join(errs...)
}

// asked are the faults that the run may have. Those of the default mix need no more than servers.
func (r RandomRun) asked(x resolved) (names []string) {
	for _, step := range r.Plan {
		names = append(names, step.Fault)
	}
	if r.Faults != "" {
		for _, c := range x.chosen {
			names = append(names, c.Fault)
		}
	}
	return names
}

// planFor is the plan for a deployment, which may be of another size and with
// other settings than ours would be, and writes into the record what it is drawn
// from. A fault that was asked for by name, the deployment must be able to have; of a mix
// it gets what it can have. The record says what is left out, and why; so it does of
// targets of a fault that can have others. A mix that was asked for and of which nothing is
// left is refused, and so is a run that is left with no fault: it would show nothing, and who
// wants none says so.
func (r RandomRun) planFor(d topologies.Deployment, seed uint64, x resolved, run *history.Run) (faults.Schedule, error) {
	e := x.draws
	e.Topology = d.Topology()
	run.Faults = r.mix(e)
	if r.Plan != nil {
		return r.Plan, Impossible(checkPlan(e, r.Plan), cant(d, r.Plan))
	}
	here, err := e.Choose(run.Faults)
	if err != nil {
		return nil, Impossible(err)
	}
	var can []faults.Candidate
	var missing, narrowed faults.Schedule
	lacking := map[string]faults.Schedule{} // by the mix or the fault
	left := map[string]int{}
	for _, c := range here {
		c, without := narrow(d, c)
		if c.Target == "" && len(without) > 0 {
			missing = append(missing, without[0])
			lacking[c.Mix], lacking[c.Fault] = append(lacking[c.Mix], without[0]), append(lacking[c.Fault], without[0])
			continue
		}
		can, narrowed = append(can, c), append(narrowed, without...)
		left[c.Mix]++
		left[c.Fault]++
	}
	if r.Faults != "" && r.Faults != faults.MixSafe {
		lacking[faults.MixAll], left[faults.MixAll] = missing, len(can)
		for name := range strings.SplitSeq(r.Faults, ",") {
			if why := cant(d, lacking[name]); why != nil && (left[name] == 0 || !slices.Contains(faults.Mixes(), name)) {
				return nil, why
			}
		}
	}
	if why := cant(d, missing); why != nil && len(can) == 0 {
		return nil, fmt.Errorf("no fault of this topology is possible, and --faults %s was not said: %w", faults.MixNone, why)
	}
	if why := errors.Join(unlike(e, x.chosen, here), cant(d, slices.Concat(missing, narrowed))); why != nil {
		run.SkippedFaults = strings.Split(why.Error(), "\n")
	}
	return faults.Generate(seed, can, r.Length), nil
}

// narrow leaves a candidate with the targets that a deployment can have, and returns a step for each other one.
func narrow(d topologies.Deployment, c faults.Candidate) (can faults.Candidate, without faults.Schedule) {
	var targets []string
	for target := range strings.SplitSeq(c.Target, "|") {
		step := faults.Step{Fault: c.Fault, Target: target, Params: c.FirstParams()}
		if cant(d, faults.Schedule{step}) == nil {
			targets = append(targets, target)
		} else {
			without = append(without, step)
		}
	}
	c.Target = strings.Join(targets, "|")
	return c, without
}

// unlike says which faults servers of ours could have and those of an environment can't,
// because they are wired in another way, and why.
func unlike(e faults.Environment, ours, here []faults.Candidate) error {
	same := func(c faults.Candidate) func(faults.Candidate) bool {
		return func(other faults.Candidate) bool { return other.Fault == c.Fault && other.Target == c.Target }
	}
	var cant []reason
	for _, c := range e.Candidates() {
		if c.Cant == "" || !slices.ContainsFunc(ours, same(c)) || slices.ContainsFunc(here, same(c)) {
			continue
		}
		what := c.Fault
		if slices.ContainsFunc(here, func(other faults.Candidate) bool { return other.Fault == c.Fault }) {
			what += " " + strings.ReplaceAll(c.Target, "|", " or ") // it can have others
		}
		cant = append(cant, reason{what, c.Cant})
	}
	return impossible(cant)
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
		step.Target = faults.SomeTarget(d.Topology(), step.Target)
		if _, err := faults.New(site(d), step); err != nil && !slices.ContainsFunc(errs, func(other error) bool { return other.Error() == err.Error() }) {
			errs = append(errs, err)
		}
	}
	return errors.Join(Possible(d, names), Impossible(errs...))
}

// startable refuses a resource on a server of its own where none can be started.
func (p ResourceConfig) startable(backend string) error {
	if p.Kind != ResourceRedis || backend != attached {
		return nil
	}
	return errors.New("a resource on Redis needs a server of its own, which only the backends process and container can start")
}

// CheckLinks refuses a fault of links of which none can be broken.
func CheckLinks(d topologies.Deployment, step faults.Step) error {
	spec, err := faults.ByName(step.Fault)
	if err != nil || !spec.OnLinks() {
		return err
	}
	links, err := concerned(d.Topology(), spec, step)
	if err == nil && !slices.ContainsFunc(links, func(l topologies.Link) bool { return d.Proxy(l.Name()) != nil }) {
		err = fmt.Errorf("%s: nothing can be done to %s here", step.Fault, step.Target)
	}
	return err
}

// CheckAcks refuses more acknowledgements than a master has replicas.
func CheckAcks(acks int, t topologies.Topology) error {
	for _, name := range t.Servers() {
		if n, _ := t.Node(name); n.Role != topologies.Master {
			continue
		}
		if replicas := len(t.Members(name)) - 1; acks > replicas {
			return fmt.Errorf("%d replica acks can't come: %s has %d replicas", acks, name, replicas)
		}
	}
	return nil
}

// CheckOptions refuses servers that are not as was asked for. What was not asked
// for may be as it is.
func CheckOptions(want topologies.Options, t topologies.Topology) error {
	have := t.Options
	var errs []error
	note := func(option string, want, have any) {
		if want != have {
			errs = append(errs, fmt.Errorf("%s %v was asked for, and the servers have %v", option, want, have))
		}
	}
	if want.Nodes != 0 {
		note("nodes", want.Nodes, len(t.Servers()))
	}
	switch {
	case want.Persistence == "":
	case have.Persistence == "":
		errs = append(errs, fmt.Errorf("persistence %s was asked for, and the servers do not tell what they have (they must permit CONFIG GET)", want.Persistence))
	default:
		note("persistence", want.Persistence, have.Persistence)
	}
	if want.MinReplicas != 0 {
		note("min-replicas", want.MinReplicas, have.MinReplicas)
	}
	if want.NodeTimeout != 0 {
		note("node-timeout", want.NodeTimeout, have.NodeTimeout)
	}
	return errors.Join(errs...)
}
