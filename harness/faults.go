package harness

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/workload"
)

// ParamKey is the parameter that names a key, or a lock, of a slot.
const ParamKey = "key"

// scriptNames are the names of our locks' scripts, by their digests, which are
// worked out once.
var scriptNames = sync.OnceValue(func() map[string]string { //nolint:gochecknoglobals // a constant
	byDigest := map[string]string{}
	for name, source := range lock.Scripts() {
		byDigest[faults.ScriptDigest(source)] = name
	}
	return byDigest
})

// site is where the faults of a deployment happen.
func site(d topologies.Deployment) faults.Site {
	return faults.Site{Deployment: d, Scripts: scriptNames()}
}

// ErrImpossible says that a run wants faults that its deployment can't have.
var ErrImpossible = errors.New("can't be done here")

// Possible refuses faults that a deployment can't have, before anything is
// done to it.
func Possible(d topologies.Deployment, asked []string) error {
	var reasons []string
	impossible := map[string][]string{} // by reason
	for _, name := range slices.Compact(slices.Sorted(slices.Values(asked))) {
		spec, err := faults.ByName(name)
		if err != nil {
			continue // it is reported where it is asked for
		}
		if lack := spec.Lacks(d); lack != nil {
			why := lack.Error()
			if impossible[why] == nil {
				reasons = append(reasons, why)
			}
			impossible[why] = append(impossible[why], name)
		}
	}
	var errs []error
	for _, why := range reasons {
		errs = append(errs, fmt.Errorf("%s %w: %s", strings.Join(impossible[why], ", "), ErrImpossible, why))
	}
	return errors.Join(errs...)
}

// instrumented is the backend for a run with these faults: where they interfere
// with clocks or disks, it starts servers that let them. All other runs are spared
// that.
func instrumented(backend topologies.Backend, asked []string) (topologies.Backend, error) {
	for _, name := range asked {
		spec, err := faults.ByName(name)
		if err != nil || !slices.Contains(spec.Needs, topologies.Clocks) && !slices.Contains(spec.Needs, topologies.Disks) {
			continue
		}
		b, ok := backend.(topologies.Instrumenter)
		if !ok {
			return nil, fmt.Errorf("%s %w: it takes servers that are local processes (--backend process)", name, ErrImpossible)
		}
		return b.Instrumented(), nil
	}
	return backend, nil
}

// toResource is what a target means in the topology of the protected resource,
// and reports false if it means none of its links: "zone-a>resource" is one.
func toResource(target string) (inner string, ok bool) {
	from, ok := strings.CutSuffix(target, ">resource")
	return from + ">redis-1", ok
}

// build makes a fault of its name, target and parameters.
func (st *Session) build(s faults.Step) (faults.Fault, error) {
	if key := s.Params[ParamKey]; key != "" {
		s.Params = maps.Clone(s.Params)
		s.Params[ParamKey] = st.keyOf(key)
	}
	at := site(st.deployment)
	if st.footprint != nil {
		at.Scripts = maps.Clone(at.Scripts)
		maps.Copy(at.Scripts, st.footprint.Scripts())
	}
	at.Clients = st.apart
	target, ok := toResource(s.Target)
	if !ok || st.resourceServer == nil {
		return faults.New(at, s)
	}
	link := s.Target
	s.Target, at.Deployment = target, st.resourceServer
	f, err := faults.New(at, s)
	if err != nil {
		return nil, err
	}
	return onResource{f, strings.NewReplacer(target, link)}, nil
}

// An onResource is a fault of the protected resource, whose only server has the name of one
// of the locks': what was observed is told of the resource.
type onResource struct {
	faults.Fault

	names *strings.Replacer
}

// Inject is that of the fault.
func (f onResource) Inject(ctx context.Context) (faults.Injection, error) {
	in, err := f.Fault.Inject(ctx)
	in.Effect = f.names.Replace(in.Effect)
	if fires := in.AwaitFiring; fires != nil {
		in.AwaitFiring = func(ctx context.Context) (string, error) {
			effect, err := fires(ctx)
			return f.names.Replace(effect), err
		}
	}
	return in, err
}

// CheckStep checks that the topology, and what the locks of the run protect, can have
// the fault where it is aimed.
func CheckStep(t topologies.Topology, p ResourceConfig, step faults.Step) error {
	spec, err := faults.ByName(step.Fault)
	if err != nil {
		return err
	}
	inner, ok := toResource(step.Target)
	if ok && p.Kind != ResourceRedis {
		return fmt.Errorf("%s: %s is a link only with resource: %s", step.Fault, step.Target, ResourceRedis)
	}
	if ok && spec.OnLinks() {
		if t, err = topologies.ByName(topologies.Single); err != nil {
			return err
		}
		step.Target = inner
	}
	return spec.Validate(t, step)
}

// concerned are the links that a step's fault is put on.
func concerned(t topologies.Topology, spec faults.Spec, s faults.Step) ([]topologies.Link, error) {
	if _, ok := toResource(s.Target); ok {
		return t.Select(string(topologies.Client)) // its own are as these
	}
	return spec.LinksOf(t, s)
}

// retried is a fault that is tried again for a while, where at one moment there may
// be nothing that it can do: no key to lose, no subscriber.
type retried struct {
	faults.Fault

	limit time.Duration
}

// retryUntilEffective makes a fault that is of effect only at some moments one that is
// tried again for that long.
func retryUntilEffective(f faults.Fault, limit time.Duration) faults.Fault {
	spec, err := faults.ByName(f.Name())
	if limit == 0 || err != nil || spec.Hits == faults.HitsAnything || spec.Life == history.Triggered {
		return f
	}
	return retried{f, limit}
}

// retryEvery is how long such a fault waits before it is tried again.
const retryEvery = 5 * time.Millisecond

// Inject tries until it is of effect or the time is over, and returns what came
// of it last.
func (r retried) Inject(ctx context.Context) (faults.Injection, error) {
	for end := time.Now().Add(r.limit); ; {
		injection, err := r.Fault.Inject(ctx)
		if err == nil || time.Now().After(end) || !workload.Pause(ctx, retryEvery) {
			return injection, err
		}
	}
}
