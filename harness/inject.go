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
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/workload"
)

const (
	// faultTimeout bounds how long a fault may take to show its effect, and to end.
	faultTimeout = time.Minute
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
	faults.Fault             // with the target as the history names it
	target       string      // as it was asked for
	heal         faults.Heal // nil: it is over at once
	meter        *meter      // nil where no requests are counted
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
func (st *Session) Inject(ctx context.Context, p faults.Planned) error {
	ctx, cancel := context.WithTimeoutCause(ctx, faultTimeout, fmt.Errorf("no effect after %v", faultTimeout))
	defer cancel()
	a := &injectedFault{Fault: faults.Fault{Planned: p}}
	if err := st.prepare(ctx, a); err != nil {
		st.failInjection(ctx, a.Step, err)
		return fmt.Errorf("inject %s: %w", p.Fault, err)
	}
	e := eventOf(history.Inject, a.Step)
	e.Life, e.Effects = a.Spec.Life, a.Spec.EffectsOf(a.Params)
	d, links := st.concerns(ctx, a)
	if st.sparesQuorum(a, d, links) {
		e.Effects = append(slices.Clone(e.Effects), history.Minority)
	}
	st.recorder.Record(e)
	a.meter = meterOf(d, links)
	injection, err := st.try(ctx, a.Fault)
	if err != nil {
		st.failed(ctx, e, err)
		return fmt.Errorf("inject %s: %w", p.Fault, err)
	}
	a.heal = injection.Heal
	st.moved = st.moved || a.Spec.Has(history.Moves)
	st.mu.Lock()
	defer st.mu.Unlock()
	st.faults = append(st.faults, a)
	if injection.AwaitFiring != nil {
		st.Log.InfoContext(ctx, "fault is armed", "fault", p.Fault, "target", a.Target, "for", observed(a.target, injection.Effect))
		a.meter = nil // it is met by the message that it waits for
		a.fired = make(chan struct{})
		st.waiting.Go(func() { st.awaitFiring(context.WithoutCancel(ctx), a, e, injection) })
		return nil
	}
	st.landed(ctx, e, observed(a.target, injection.Effect))
	if a.heal == nil { // else a reader of the record takes it for one that is in effect to the end
		e = eventOf(history.Heal, a.Step)
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
	if !st.lock.Quorum || t.Name != topologies.Independent || d != st.deployment || a.Spec.Life == history.Triggered {
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
		if len(other.hits) == 0 && other.Spec.Life != history.Triggered { // nothing is known of it
			return false
		}
		for _, server := range other.hits {
			hit[server] = true
		}
	}
	return 2*len(hit) < len(t.Of(topologies.Redis))
}

// prepare makes the fault of a planned step, which is aimed at what it means now.
func (st *Session) prepare(ctx context.Context, a *injectedFault) (err error) {
	if a.Params, err = st.aimAtLock(a.Step); err != nil {
		return err
	}
	if a.Target, err = st.resolve(ctx, a.Target); err != nil {
		return err
	}
	a.target = a.Target
	f, err := st.build(a.Planned)
	if err = cmp.Or(err, st.deployment.CheckClaim()); err == nil {
		a.Inject, a.Target = f.Inject, a.Spec.AimOf(ctx, st.deployment, a.Step)
	}
	return err
}

// build makes the fault of a step as it is aimed. Those of messages know the scripts of our locks by their names.
func (st *Session) build(s faults.Planned) (faults.Fault, error) {
	if key := s.Params[ParamKey]; key != "" {
		s.Params = maps.Clone(s.Params)
		s.Params[ParamKey] = st.keyOf(key)
	}
	at := faults.Site{Clients: st.apart, ClientClocks: map[string]faults.ClientClock{}, Scripts: map[string]string{}}
	for name, source := range lock.Scripts() {
		at.Scripts[faults.ScriptDigest(source)] = name
	}
	maps.Copy(at.Scripts, st.footprint.Scripts())
	for _, zone := range st.deployment.Topology().Of(topologies.Zone) {
		if clock := st.clocks.Of(zone); clock != nil {
			at.ClientClocks[zone] = clock
		}
	}
	at.Deployment, s.Target = st.where(s.Target)
	return s.On(at)
}

// observed is what was observed of a fault with that target. The only server of the protected resource has the name of
// one of the locks': what was observed there is told of the resource.
func observed(target, effect string) string {
	if inner, ok := faults.OfResource(target); ok {
		return strings.ReplaceAll(effect, inner, target)
	}
	return effect
}

// try injects a fault. In a random run, one that is of effect only at some moments, since there may be no key to lose
// and no subscriber, is tried again for a while.
func (st *Session) try(ctx context.Context, f faults.Fault) (faults.Injection, error) {
	for end := time.Now().Add(st.patience); ; {
		injection, err := f.Inject(ctx)
		if err == nil || f.Spec.Hits == faults.HitsAnything || f.Spec.Life == history.Triggered || !time.Now().Before(end) || !workload.Pause(ctx, retryEvery) {
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
		a.missed = err
		return
	}
	st.landed(ctx, e, observed(a.target, effect))
	st.recordRequests(a.Step, 1)
	if a.Spec.OneShot() {
		_ = st.end(ctx, a) // what could not be healed is recorded, and tried again at the end
	}
}

// AwaitFault blocks until the newest fault of that name and target fired. An empty
// target is any.
func (st *Session) AwaitFault(ctx context.Context, fault, target string) error {
	a := st.newest(func(a *injectedFault) bool {
		return a.fired != nil && a.Step.Fault == fault && (target == "" || a.target == target)
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
		Fault: faults.Fault{Planned: faults.Planned{Step: s, Spec: &faults.Spec{}}}, heal: func(context.Context) (string, error) { undo(); return "right again", nil },
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
	return st.newest(func(a *injectedFault) bool { return a.active() && (name == "" || a.Step.Fault == name) })
}

// end heals an active fault, unless that was done.
func (st *Session) end(ctx context.Context, a *injectedFault) error {
	a.ending.Lock()
	defer a.ending.Unlock()
	if a.ended {
		return nil
	}
	e := eventOf(history.Heal, a.Step)
	st.recorder.Record(e)
	// A heal is not cut short: what is broken must not stay so.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), faultTimeout)
	defer cancel()
	var requests int64
	if a.meter != nil {
		requests = a.meter.read() // before those by which the heal is proven
	}
	effect, err := a.heal(ctx)
	if err != nil {
		st.failed(ctx, e, err)
		return fmt.Errorf("heal %s: %w", a.Step.Fault, err)
	}
	st.mu.Lock()
	a.ended = true
	st.mu.Unlock()
	e.Type, e.Value = history.OK, effect
	st.recorder.Record(e)
	if a.meter != nil && !a.Spec.Stays() {
		st.recordRequests(a.Step, requests)
	}
	st.Log.InfoContext(ctx, "fault healed", "fault", a.Step.Fault, "effect", effect)
	return nil
}

// HealAll ends all active faults, the newest first, but those that make a new master after
// the others: their heal awaits that all replicas follow it, over links that another fault
// may have cut. Each is tried once, which for one that did not heal before is once more.
func (st *Session) HealAll(ctx context.Context) error {
	st.mu.Lock()
	active := slices.DeleteFunc(slices.Clone(st.faults), func(a *injectedFault) bool { return !a.active() })
	st.mu.Unlock()
	var errs []error
	for _, promotes := range []bool{false, true} {
		for _, a := range slices.Backward(active) {
			if a.Spec.Has(history.Promotes) == promotes {
				errs = append(errs, st.end(ctx, a))
			}
		}
	}
	st.waiting.Wait()
	return errors.Join(errs...)
}
