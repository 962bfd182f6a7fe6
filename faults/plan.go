package faults

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/internal/names"
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

// A Plan is what goes wrong in a run, in order of time; no two steps overlap. It is made once of what was asked for and
// what there is, by [Environment.Draw] or [Environment.Given]; who has it need not look up or check a step again.
type Plan []Planned

// A Planned is a step of a plan, with the fault that it names.
type Planned struct {
	Step

	Spec *Spec
}

// On makes the fault of the step at a site.
func (p Planned) On(site Site) (Fault, error) {
	f, err := p.Spec.New(site, p.Spec.withDefaults(p.Step))
	if err != nil {
		return Fault{}, fmt.Errorf("%s: %w", p.Fault, err)
	}
	return Fault{p, f}, nil
}

// OfResource is what a target means on the server that has what the locks protect, a topology of its own, and reports false
// if it means none of its links: "zone-a>resource" is one.
func OfResource(target string) (inner string, ok bool) {
	from, ok := strings.CutSuffix(target, ">resource")
	return from + ">redis-1", ok
}

// Resolve finds the fault of a step, and checks that servers of the topology can have the step.
func (e Environment) Resolve(s Step) (Planned, error) {
	spec, err := ByName(s.Fault)
	p := Planned{s, spec}
	if err == nil {
		err = e.validate(p)
	}
	return p, err
}

// validate checks that servers of the topology can have a step.
func (e Environment) validate(p Planned) error {
	s, spec, t := p.Step, p.Spec, e.Topology
	inner, ofResource := OfResource(s.Target)
	switch {
	case !e.Script && spec.Target == AtClient:
		return e.nothing(s.Fault, nil)
	case !e.Script && spec.Family == Client && !e.Lock.Process:
		return e.nothing(s.Fault, []string{e.noClientClocks()})
	case !e.Script:
		s.Target = SomeTarget(t, s.Target)
	case spec.Target == AtClient && !slices.Contains(e.Clients, s.Target):
		return names.Unknown("client", s.Target, e.Clients)
	case ofResource && !e.Resource:
		return fmt.Errorf("%s: %s is a link only with resource: redis", s.Fault, s.Target)
	case ofResource && spec.OnLinks():
		t, _ = topologies.ByName(topologies.Single) // which there is
		s.Target = inner
	}
	servers := t.Servers()
	if spec.Target == AtProcess {
		servers = append(servers, t.Of(topologies.Sentinel)...)
	}
	if err := spec.lacking(t.Unsupported()); err != nil {
		return fmt.Errorf("%s: %w", spec.Name, err)
	}
	if (spec.Target == AtProcess || spec.Target == AtServer) && !slices.Contains(servers, s.Target) {
		return names.Unknown("server", s.Target, servers) // of others, Links or Check look at the target
	}
	if err := spec.checkParams(s.Params); err != nil {
		return err
	}
	if _, err := spec.LinksOf(t, s); err != nil || spec.Check == nil {
		return err
	}
	if err := spec.Check(t, spec.withDefaults(s)); err != nil {
		return fmt.Errorf("%s: %w", spec.Name, err)
	}
	return nil
}

// Given is the plan of steps that are given: those of a record, or of a script. The error wrong joins what servers of the
// topology can't have, step by step, and cant what the deployment can't, if there is one yet, reason by reason.
func (e Environment) Given(d topologies.Deployment, steps []Step) (plan Plan, wrong, cant error) {
	if d != nil {
		e.Topology = d.Topology()
	}
	var errs []error
	var found []reason
	end := time.Duration(0)
	for i, step := range steps {
		p, err := e.Resolve(step)
		if why := p.cant(d, err); why != nil {
			found = append(found, reasonOf(step.Fault, why))
		}
		if step.At < end || step.For < 0 {
			err = errors.Join(fmt.Errorf("%s begins at %v and lasts %v, and the one before lasts until %v", step.Fault, step.At, step.For, end), err)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("step %d of the plan: %w", i+1, err))
		}
		plan, end = append(plan, p), step.At+step.For
	}
	return plan, errors.Join(errs...), impossible(found)
}

// Draw is the plan of a seed for a deployment, from a list of mixes and faults: see [Environment.Choose]. The deployment may
// be of another size and with other settings than servers of ours, which can have the candidates ours. A fault that the list
// names, it must be able to have. Of a mix it gets what it can have, and of a fault the targets; skipped says what is left
// out, and why. A mix in the list of which nothing is left is refused, and so is a run that is left with no fault: it would
// show nothing, and who wants none says so.
func (e Environment) Draw(d topologies.Deployment, list string, ours []Candidate, seed uint64, length time.Duration) (plan Plan, skipped []string, err error) {
	e.Topology = d.Topology()
	here, err := e.Choose(list)
	if err != nil {
		return nil, nil, Impossible(err)
	}
	var can []Candidate
	var left []reason
	lacking := map[string][]reason{} // by what was asked for
	for _, c := range here {
		targets, without := e.narrow(d, c)
		if len(targets) > 0 {
			c.Target = strings.Join(targets, "|")
			can, left = append(can, c), append(left, without...)
			continue
		}
		left = append(left, without[0])
		for name := range strings.SplitSeq(list, ",") {
			if c.in(name) {
				lacking[name] = append(lacking[name], without[0])
			}
		}
	}
	for name := range strings.SplitSeq(list, ",") {
		some := slices.Contains(Mixes(), name) && slices.ContainsFunc(can, func(c Candidate) bool { return c.in(name) })
		if why := impossible(lacking[name]); why != nil && !some && list != MixSafe {
			return nil, nil, why
		}
	}
	why := impossible(left)
	if why != nil && len(can) == 0 {
		return nil, nil, fmt.Errorf("no fault of this topology is possible, and --faults %s was not said: %w", MixNone, why)
	}
	if why = errors.Join(e.unlike(ours, here), why); why != nil {
		skipped = strings.Split(why.Error(), "\n")
	}
	return Generate(seed, can, length), skipped, nil
}

// narrow are the targets of a candidate that servers of the topology can have, and the deployment if there is one, and why
// not each other one.
func (e Environment) narrow(d topologies.Deployment, c Candidate) (targets []string, without []reason) {
	for target := range strings.SplitSeq(c.Target, "|") {
		p := Planned{Step{Fault: c.Spec.Name, Target: target, Params: c.FirstParams()}, c.Spec}
		if why := p.cant(d, e.validate(p)); why != nil {
			without = append(without, reasonOf(p.Fault, why))
		} else {
			targets = append(targets, target)
		}
	}
	return targets, without
}

// unlike says which faults servers of ours could have and those of the environment can't, because they are wired in
// another way, and why.
func (e Environment) unlike(ours, here []Candidate) error {
	same := func(c Candidate) func(Candidate) bool {
		return func(other Candidate) bool { return other.Spec == c.Spec && other.Target == c.Target }
	}
	var cant []reason
	for _, c := range e.Candidates() {
		if c.Cant == "" || !slices.ContainsFunc(ours, same(c)) || slices.ContainsFunc(here, same(c)) {
			continue
		}
		what := c.Spec.Name
		if slices.ContainsFunc(here, func(other Candidate) bool { return other.Spec == c.Spec }) {
			what += " " + strings.ReplaceAll(c.Target, "|", " or ") // it can have others
		}
		cant = append(cant, reason{what, c.Cant})
	}
	return impossible(cant)
}

// cant says why a deployment can't have a step, of which wrong is what is wrong for its topology; nil if it can. The links of the protected resource are no links of it.
func (p Planned) cant(d topologies.Deployment, wrong error) error {
	if d == nil {
		return wrong
	}
	if err := p.Spec.lacking(d.Unsupported()); err != nil {
		return err
	}
	if _, other := OfResource(p.Target); wrong != nil || other || p.Spec.Target == AtClient {
		return wrong
	}
	p.Target = SomeTarget(d.Topology(), p.Target)
	_, err := p.On(Site{Deployment: d})
	return err
}

// A reason is why something can't be done, or would break something.
type reason struct{ what, why string }

// reasonOf is the reason of a fault, whose name its error may begin with.
func reasonOf(fault string, err error) reason {
	return reason{fault, strings.TrimPrefix(err.Error(), fault+": ")}
}

// Breaks are the faults among candidates that may break a promise of a correct lock, by why they may: "kill, restart: a
// server that is killed forgets …".
func Breaks(candidates []Candidate) []string {
	var found []reason
	for _, c := range candidates {
		if c.Breaks != "" {
			found = append(found, reason{c.Spec.Name, c.Breaks})
		}
	}
	return names.Of(joined(found), func(r reason) string { return r.what + ": " + r.why })
}

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
