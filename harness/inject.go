package harness

import (
	"cmp"
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
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/workload"
)

const (
	// injectTimeout and healTimeout bound how long a fault may take to show
	// its effect, and to end.
	injectTimeout = time.Minute
	healTimeout   = time.Minute
	// retryEvery is how long a fault of no effect waits before it is tried again.
	retryEvery = 5 * time.Millisecond
)

// The injected faults of a session, which its mutex guards but for what only the injecting
// goroutine uses.
type injected struct {
	faults   []*injectedFault // in the order in which they were injected
	waiting  sync.WaitGroup   // for those that may still fire
	aimed    int              // how many hit the server of one of the locks
	moved    bool             // a slot, or some
	patience time.Duration    // for how long one is tried that is of effect only at some moments
}

// An injectedFault took effect, or is armed. It is active until it is healed.
type injectedFault struct {
	spec   faults.Spec
	step   faults.Step // with the target as the history names it
	target string      // as it was asked for
	heal   faults.Heal // nil: it is over at once
	meter  *meter      // nil where no requests are counted
	// fired is closed once an armed fault fired, or never will; nil for any other. Then missed says why it did not.
	fired  chan struct{}
	missed error

	hits   []string // the servers to which clients meet it
	ending sync.Mutex
	ended  bool // healed
}

func (a *injectedFault) active() bool { return a.heal != nil && !a.ended }

// eventOf is the begin of an injection, or of a heal.
func eventOf(op history.Op, s faults.Step) history.Event {
	return history.Event{
		Process: history.NoProcess, Op: op, Type: history.Invoke, Fault: s.Fault, Target: s.Target, Params: maps.Clone(s.Params),
	}
}

// Inject makes a fault happen and records it, whether or not it took effect.
func (st *Session) Inject(ctx context.Context, s faults.Step) error {
	ctx, cancel := context.WithTimeoutCause(ctx, injectTimeout, fmt.Errorf("no effect after %v", injectTimeout))
	defer cancel()
	f, a, err := st.prepare(ctx, s)
	if err != nil {
		st.failInjection(ctx, a.step, err)
		return fmt.Errorf("inject %s: %w", s.Fault, err)
	}
	e := eventOf(history.Inject, a.step)
	e.Life, e.Effects = a.spec.Life, a.spec.EffectsOf(a.step.Params)
	d, links := st.concerns(ctx, a.spec, faults.Step{Fault: s.Fault, Target: a.target, Params: a.step.Params})
	if st.sparesQuorum(a, d, links) {
		e.Effects = append(slices.Clone(e.Effects), history.Minority)
	}
	st.recorder.Record(e)
	a.meter = meterOf(d, links)
	injection, err := st.try(ctx, a.spec, f)
	if err != nil {
		st.failed(ctx, e, err)
		return fmt.Errorf("inject %s: %w", s.Fault, err)
	}
	a.heal = injection.Heal
	st.moved = st.moved || a.spec.Has(history.Moves)
	st.mu.Lock()
	defer st.mu.Unlock()
	st.faults = append(st.faults, a)
	if injection.AwaitFiring != nil {
		st.Log.InfoContext(ctx, "fault is armed", "fault", s.Fault, "target", a.step.Target, "for", observed(a.target, injection.Effect))
		a.meter = nil // it is met by the message that it waits for
		a.fired = make(chan struct{})
		st.waiting.Go(func() { st.awaitFiring(context.WithoutCancel(ctx), a, e, injection) })
		return nil
	}
	st.landed(ctx, e, observed(a.target, injection.Effect))
	if a.heal == nil { // else a reader of the record takes it for one that is in effect to the end
		e = eventOf(history.Heal, a.step)
		st.recorder.Record(e)
		e.Type, e.Value = history.OK, "it has no duration"
		st.recorder.Record(e)
	}
	return nil
}

// sparesQuorum reports whether a fault that lasts leaves, with those in effect, a majority of independent servers to a lock that
// promises that it needs no more.
func (st *Session) sparesQuorum(a *injectedFault, d topologies.Deployment, links []topologies.Link) bool {
	t := st.deployment.Topology()
	if !st.lock.Quorum || t.Name != topologies.Independent || d != st.deployment || a.spec.Life == history.Triggered {
		return false
	}
	for _, l := range links {
		a.hits = append(a.hits, l.To)
	}
	hit := map[string]bool{}
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, other := range append(st.faults, a) {
		if other != a && !other.active() {
			continue
		}
		if len(other.hits) == 0 && other.spec.Life != history.Triggered { // nothing is known of it
			return false
		}
		for _, server := range other.hits {
			hit[server] = true
		}
	}
	return 2*len(hit) < len(t.Of(topologies.Redis))
}

// prepare makes the fault of a step, which is aimed at what it means now.
func (st *Session) prepare(ctx context.Context, s faults.Step) (faults.Fault, *injectedFault, error) {
	a := &injectedFault{step: s}
	var err error
	if a.spec, err = faults.ByName(s.Fault); err != nil {
		return faults.Fault{}, a, err
	}
	if a.step, err = st.aimAtLock(s); err != nil {
		return faults.Fault{}, a, err
	}
	if a.step.Target, err = st.resolve(ctx, s.Target); err != nil {
		return faults.Fault{}, a, err
	}
	a.target = a.step.Target
	f, err := st.build(a.step)
	if err == nil {
		err = st.deployment.CheckClaim()
	}
	if err == nil {
		a.step.Target = a.spec.AimOf(ctx, st.deployment, a.step)
	}
	return f, a, err
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
	at.Clients, at.ClientClocks = st.apart, map[string]faults.ClientClock{}
	for _, zone := range st.deployment.Topology().Of(topologies.Zone) {
		if clock := st.clocks.Of(zone); clock != nil {
			at.ClientClocks[zone] = clock
		}
	}
	if inner, server := st.ofResource(s.Target); server != nil {
		s.Target, at.Deployment = inner, server
	}
	return faults.New(at, s)
}

// observed is what was observed of a fault with that target. The only server of the protected resource has the name of
// one of the locks': what was observed there is told of the resource.
func observed(target, effect string) string {
	if inner, ok := toResource(target); ok {
		return strings.ReplaceAll(effect, inner, target)
	}
	return effect
}

// try injects a fault. In a random run, one that is of effect only at some moments, since there may be no key to lose
// and no subscriber, is tried again for a while.
func (st *Session) try(ctx context.Context, spec faults.Spec, f faults.Fault) (faults.Injection, error) {
	for end := time.Now().Add(st.patience); ; {
		injection, err := f.Inject(ctx)
		if err == nil || spec.Hits == faults.HitsAnything || spec.Life == history.Triggered || !time.Now().Before(end) || !workload.Pause(ctx, retryEvery) {
			return injection, err
		}
	}
}

// landed records that a fault took effect.
func (st *Session) landed(ctx context.Context, e history.Event, effect string) {
	e.Type, e.Value = history.OK, effect
	st.recorder.Record(e)
	st.Log.InfoContext(ctx, "fault injected", "fault", e.Fault, "target", e.Target, "effect", effect)
}

// awaitFiring records that an armed fault fired, or, once it was healed, that it never
// did. A one-shot fault ends at once.
func (st *Session) awaitFiring(ctx context.Context, a *injectedFault, e history.Event, injection faults.Injection) {
	defer close(a.fired)
	effect, err := injection.AwaitFiring(ctx)
	if err != nil {
		st.failed(ctx, e, err)
		st.mu.Lock()
		defer st.mu.Unlock()
		a.missed = err
		return
	}
	st.landed(ctx, e, observed(a.target, effect))
	st.recordRequests(a.step, 1)
	if a.spec.OneShot() {
		_ = st.end(ctx, a) // what could not be healed is recorded, and tried again at the end
	}
}

// AwaitFault blocks until the newest fault of that name and target fired. An empty
// target is any.
func (st *Session) AwaitFault(ctx context.Context, fault, target string) error {
	a := st.newest(func(a *injectedFault) bool {
		return a.fired != nil && a.step.Fault == fault && (target == "" || a.target == target)
	})
	if a == nil {
		return fmt.Errorf("await %s: it was not injected", fault)
	}
	select {
	case <-a.fired:
		return a.missed
	case <-ctx.Done():
		return fmt.Errorf("%s has not fired: %w", fault, context.Cause(ctx))
	}
}

// newest is the last of those faults; nil if there is none.
func (st *Session) newest(is func(*injectedFault) bool) *injectedFault {
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, a := range slices.Backward(st.faults) {
		if is(a) {
			return a
		}
	}
	return nil
}

// Disturb does something to a client that no fault of the catalogue does, and records
// it as one. It lasts until the end of the run.
func (st *Session) Disturb(ctx context.Context, s faults.Step, effect string, do, undo func()) {
	e := eventOf(history.Inject, s)
	st.recorder.Record(e)
	do()
	st.landed(ctx, e, effect)
	st.mu.Lock()
	defer st.mu.Unlock()
	st.faults = append(st.faults, &injectedFault{
		step: s, heal: func(context.Context) (string, error) { undo(); return "right again", nil },
	})
}

// failInjection records a fault that could not even be tried.
func (st *Session) failInjection(ctx context.Context, s faults.Step, why error) {
	e := eventOf(history.Inject, s)
	st.recorder.Record(e)
	st.failed(ctx, e, why)
}

// failed records that a fault took no effect, or did not heal.
func (st *Session) failed(ctx context.Context, e history.Event, why error) {
	e.Type, e.Error = history.Fail, why.Error()
	st.recorder.Record(e)
	st.Log.WarnContext(ctx, "fault did not do as told", "op", e.Op, "fault", e.Fault, "target", e.Target, "error", why)
}

// Heal ends the newest active fault with that name. One that does not heal
// stays active.
func (st *Session) Heal(ctx context.Context, name string) error {
	a := st.activeBy(name)
	if a == nil {
		return fmt.Errorf("heal %s: it is not active", name)
	}
	if err := st.end(ctx, a); err != nil || a.fired == nil {
		return err
	}
	<-a.fired // it did, or now it never will
	return a.missed
}

// activeBy is the newest active fault of a name, or of any if that is empty; nil if there is none.
func (st *Session) activeBy(name string) *injectedFault {
	return st.newest(func(a *injectedFault) bool { return a.active() && (name == "" || a.step.Fault == name) })
}

// end heals an active fault, unless that was done.
func (st *Session) end(ctx context.Context, a *injectedFault) error {
	a.ending.Lock()
	defer a.ending.Unlock()
	if a.ended {
		return nil
	}
	e := eventOf(history.Heal, a.step)
	st.recorder.Record(e)
	// A heal is not cut short: what is broken must not stay so.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), healTimeout)
	defer cancel()
	var requests int64
	if a.meter != nil {
		requests = a.meter.read() // before those by which the heal is proven
	}
	effect, err := a.heal(ctx)
	if err != nil {
		st.failed(ctx, e, err)
		return fmt.Errorf("heal %s: %w", a.step.Fault, err)
	}
	st.mu.Lock()
	a.ended = true
	st.mu.Unlock()
	e.Type, e.Value = history.OK, effect
	st.recorder.Record(e)
	if a.meter != nil && !a.spec.Stays() {
		st.recordRequests(a.step, requests)
	}
	st.Log.InfoContext(ctx, "fault healed", "fault", a.step.Fault, "effect", effect)
	return nil
}

// HealAll ends all active faults, the newest first, but those that make a new master after
// the others: their heal awaits that all replicas follow it, over links that another fault
// may have cut. Each is tried once, which for one that did not heal before is once more.
func (st *Session) HealAll(ctx context.Context) error {
	st.mu.Lock()
	active := slices.DeleteFunc(slices.Clone(st.faults), func(a *injectedFault) bool { return !a.active() })
	st.mu.Unlock()
	slices.Reverse(active)
	order := func(a *injectedFault) int {
		if a.spec.Has(history.Promotes) {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(active, func(a, b *injectedFault) int { return cmp.Compare(order(a), order(b)) })
	var errs []error
	for _, a := range active {
		errs = append(errs, st.end(ctx, a))
	}
	st.waiting.Wait()
	return errors.Join(errs...)
}
