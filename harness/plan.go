package harness

import (
	"cmp"
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

// A reason is why something can't be done, or would break something.
type reason struct{ what, why string }

// joined are reasons, each with all that it is the reason of, in order of name.
func joined(found []reason) (all []reason) {
	by := map[string][]string{}
	for _, r := range found {
		by[r.why] = append(by[r.why], r.what)
	}
	for why, what := range by {
		slices.Sort(what)
		all = append(all, reason{strings.Join(slices.Compact(what), ", "), why})
	}
	slices.SortFunc(all, func(a, b reason) int { return cmp.Compare(a.what+a.why, b.what+b.why) })
	return all
}

func impossible(found []reason) error {
	var errs []error
	for _, r := range joined(found) {
		errs = append(errs, fmt.Errorf("%s %w: %s", r.what, ErrImpossible, r.why))
	}
	return errors.Join(errs...)
}

// Possible refuses steps that a deployment can't have, before anything is done to it.
func Possible(d topologies.Deployment, steps ...faults.Step) error {
	return impossible(cant(d, steps...))
}

// checkPlan joins what is wrong with a plan that was given.
func checkPlan(e faults.Environment, plan faults.Schedule) error {
	var errs []error
	end := time.Duration(0)
	for i, step := range plan {
		err := e.Validate(step)
		if step.At < end || step.For < 0 {
			err = errors.Join(fmt.Errorf("%s begins at %v and lasts %v, and the one before lasts until %v", step.Fault, step.At, step.For, end), err)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("step %d of the plan: %w", i+1, err))
		}
		end = step.At + step.For
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
	run.Faults = cmp.Or(r.Faults, e.DefaultMix())
	if r.Plan != nil {
		return r.Plan, cmp.Or(Impossible(checkPlan(e, r.Plan)), impossible(cant(d, r.Plan...)))
	}
	here, err := e.Choose(run.Faults)
	if err != nil {
		return nil, Impossible(err)
	}
	var can []faults.Candidate
	var missing, narrowed []reason
	lacking := map[string][]reason{} // by the mix or the fault
	left := map[string]int{}
	for _, c := range here {
		targets, without := narrow(d, c)
		if len(targets) == 0 {
			missing = append(missing, without[0])
			lacking[c.Mix], lacking[c.Fault] = append(lacking[c.Mix], without[0]), append(lacking[c.Fault], without[0])
			continue
		}
		c.Target = strings.Join(targets, "|")
		can, narrowed = append(can, c), append(narrowed, without...)
		left[c.Mix]++
		left[c.Fault]++
	}
	if r.Faults != "" && r.Faults != faults.MixSafe {
		lacking[faults.MixAll], left[faults.MixAll] = missing, len(can)
		for name := range strings.SplitSeq(r.Faults, ",") {
			if left[name] == 0 || !slices.Contains(faults.Mixes(), name) {
				if why := impossible(lacking[name]); why != nil {
					return nil, why
				}
			}
		}
	}
	if why := impossible(missing); why != nil && len(can) == 0 {
		return nil, fmt.Errorf("no fault of this topology is possible, and --faults %s was not said: %w", faults.MixNone, why)
	}
	if why := errors.Join(unlike(e, x.chosen, here), impossible(append(missing, narrowed...))); why != nil {
		run.SkippedFaults = strings.Split(why.Error(), "\n")
	}
	return faults.Generate(seed, can, r.Length), nil
}

// narrow are the targets of a candidate that a deployment can have, and why not each other one.
func narrow(d topologies.Deployment, c faults.Candidate) (targets []string, without []reason) {
	for target := range strings.SplitSeq(c.Target, "|") {
		if why := cant(d, faults.Step{Fault: c.Fault, Target: target, Params: c.FirstParams()}); why != nil {
			without = append(without, why...)
		} else {
			targets = append(targets, target)
		}
	}
	return targets, without
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

// cant says which steps a deployment can't have, and why. The links of the protected resource are no links of it.
func cant(d topologies.Deployment, plan ...faults.Step) (found []reason) {
	for _, step := range plan {
		spec, err := faults.ByName(step.Fault)
		if err == nil {
			err = spec.Lacks(d)
		}
		if _, other := toResource(step.Target); err == nil && !other && spec.Target != faults.AtClient {
			step.Target = faults.SomeTarget(d.Topology(), step.Target)
			_, err = faults.New(site(d), step)
		}
		if err != nil {
			found = append(found, reason{step.Fault, strings.TrimPrefix(err.Error(), step.Fault+": ")})
		}
	}
	return found
}

// CheckServers refuses servers that are not as was asked for: fewer replicas than are to acknowledge a grant, or other
// options. What was not asked for may be as it is.
func CheckServers(acks int, want topologies.Options, t topologies.Topology) error {
	have := t.Options
	var errs []error
	for _, name := range t.Servers() {
		n, _ := t.Node(name)
		if replicas := len(t.Members(name)) - 1; n.Role == topologies.Master && acks > replicas {
			errs = append(errs, fmt.Errorf("%d replica acks can't come: %s has %d replicas", acks, name, replicas))
			break
		}
	}
	for _, o := range []struct {
		option           string
		none, want, have any
	}{
		{"nodes", 0, want.Nodes, len(t.Servers())},
		{"persistence", "", want.Persistence, cmp.Or(have.Persistence, "one that they do not tell (they must permit CONFIG GET)")},
		{"min-replicas", 0, want.MinReplicas, have.MinReplicas},
		{"node-timeout", time.Duration(0), want.NodeTimeout, have.NodeTimeout},
	} {
		if o.want != o.none && o.want != o.have {
			errs = append(errs, fmt.Errorf("%s %v was asked for, and the servers have %v", o.option, o.want, o.have))
		}
	}
	return errors.Join(errs...)
}
