package scenarios

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
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/workload"
)

// How an acquire, extend or release of a script may have to end.
const (
	untilAnswered = "answered" // one way or the other
	untilGranted  = "granted"  // an acquire
	untilDone     = "done"     // an extend or a release
	untilRefused  = "refused"
	untilUnknown  = "unknown" // no answer
	untilEnded    = "ended"   // in whatever way
	untilLost     = "lost"    // of a client that is awaited: it was told that it lost its hold
)

// requests reports whether the step asks the lock for something.
func (step ScriptStep) requests() bool {
	return step.Acquire != "" || step.Extend != "" || step.Release != ""
}

// locks are those that an acquire asks for; nil of another step.
func (step ScriptStep) locks() []string {
	if step.Acquire == "" {
		return nil
	}
	return append([]string{step.Acquire}, step.And...)
}

// ask is the request of an acquire.
func (step ScriptStep) ask(l harness.LockSpec) workload.Request {
	r := workload.Request{Locks: step.locks(), Mode: step.Mode, Lease: step.Lease, Wait: step.Wait, Again: step.Again}
	if l.Kind == history.KindSemaphore {
		r.Mode, r.Permits = history.Permit, max(step.Permits, 1)
	}
	return r
}

// untils are those that fit the step; nil for a step that needs no answer.
func (step ScriptStep) untils() []string {
	switch {
	case step.Acquire != "":
		return []string{untilAnswered, untilGranted, untilRefused, untilUnknown, untilEnded}
	case step.Extend != "" || step.Release != "":
		return []string{untilAnswered, untilDone, untilRefused, untilUnknown, untilEnded}
	case step.Write != "" || step.Access != "":
		return []string{untilDone, untilRefused, untilUnknown, untilEnded}
	default:
		return nil
	}
}

// What a script may require: of servers, and of what a ledger has of a client.
const (
	requireHeld      = "held"
	requireAbsent    = "absent"
	requireWritten   = "written"
	requireUnwritten = "unwritten"
)

const (
	// stepTimeout bounds how long a step waits for what it needs.
	stepTimeout = 30 * time.Second
	// askAgain is how long a client waits after an attempt that did not end as
	// the script needs it.
	askAgain = 5 * time.Millisecond
)

// Run plays the scenario and leaves the record in setup.Dir. A step that can't
// be done as the script needs it ends the scenario; it is recorded as unmet,
// so that no reader takes the verdict for an answer. Only a failure of the
// harness is an error.
func (s Scenario) Run(ctx context.Context, setup harness.Config) (err error) {
	if err := s.Validate(); err != nil {
		return err
	}
	t, err := topologies.New(s.Topology, s.Servers)
	if err != nil {
		return err
	}
	st, err := harness.Open(ctx, setup, harness.Start{
		Run: history.Run{
			Scenario: s.Name, Title: s.Title, Source: s.Source, Expect: s.Expect.Verdict, Cures: s.Cures,
			Progress: s.Progress, Lock: s.Lock.Name, Unpromised: s.Lock.Unpromised(), Workload: "script", Faults: "script",
		},
		Topology: t, Faults: s.faults(), Resource: s.resourceConfig(), Retries: s.Retries,
		Prepare: func(d topologies.Deployment, _ *history.Run) (faults.Plan, error) { return s.fits(d) },
	})
	if err != nil {
		return err
	}
	defer func() { err = st.Close(ctx, err) }()
	st.SetLock(s.Lock, harness.LockOptions{ReplicaAcks: s.ReplicaAcks, Watchdog: s.Watchdog, Permits: cmp.Or(s.Permits, 1)})
	p := &scriptRun{
		Session: st, scenario: s, clients: map[string]*harness.Client{},
		attempts: map[string]attempt{}, background: map[string]*pending{},
	}
	if s, err = s.learned(ctx, st); err != nil {
		p.cut(ScriptStep{}, err)
		return nil
	}
	p.scenario = s
	st.Declare(p.lockNames()...)
	for _, name := range slices.Sorted(maps.Keys(s.Clients)) {
		if p.clients[name], err = st.Client(ctx, name, s.Clients[name], slices.Contains(s.Apart(), name)); err != nil {
			return p.unopened(err)
		}
	}
	behind, cancel := context.WithCancel(ctx)
	defer p.busy.Wait()
	defer cancel()
	for i, step := range s.Steps {
		if err := p.do(ctx, behind, step); err != nil {
			p.cut(step, fmt.Errorf("step %d (%s): %w", i+1, step, err))
			st.Log.WarnContext(ctx, "the scenario ends early", "step", i+1, "error", err)
			break
		}
	}
	for _, name := range p.lockNames() { // what a lock was left as tells why no client was granted it
		p.lookForKey(ctx, name)
	}
	return nil
}

// fault is the fault that the step injects.
func (step ScriptStep) fault() faults.Step {
	return faults.Step{Fault: step.Inject, Target: step.Target, Params: step.Params}
}

// spec is the fault that the step names.
func (step ScriptStep) spec() (*faults.Spec, error) {
	return faults.ByName(cmp.Or(step.Inject, step.Heal, step.Await))
}

// environment is what the faults of the script are planned for.
func (s Scenario) environment(t topologies.Topology) faults.Environment {
	return faults.Environment{
		Topology: t, Script: true, Resource: s.resourceConfig().Kind == harness.ResourceRedis,
		Clients: slices.Sorted(maps.Keys(s.Clients)),
	}
}

// faults are those that the script injects.
func (s Scenario) faults() (asked []*faults.Spec) {
	for _, step := range s.Steps {
		if step.Inject != "" {
			spec, _ := step.spec() // a step with another one is refused
			asked = append(asked, spec)
		}
	}
	return asked
}

// Apart are the clients that are processes of their own: those that a fault is
// aimed at.
func (s Scenario) Apart() []string {
	var names []string
	for _, step := range s.Steps {
		if step.Inject == "" || slices.Contains(names, step.Target) {
			continue
		}
		if spec, _ := step.spec(); spec.Target == faults.AtClient {
			names = append(names, step.Target)
		}
	}
	return names
}

// String is the step in words, for messages.
func (step ScriptStep) String() string {
	words := []string{}
	add := func(verb, object string) {
		if object != "" {
			words = append(words, strings.TrimSpace(verb+" "+object))
		}
	}
	add("", step.Client)
	add("acquires", strings.Join(step.locks(), " and "))
	add("extends", step.Extend)
	add("releases", step.Release)
	add("reads", step.Read)
	add("writes", step.Write)
	add("accesses", step.Access)
	add("await", step.Await)
	add("inject", step.Inject)
	add("heal", step.Heal)
	add("require", step.Require)
	add("on", strings.Join(step.On, ", "))
	add("in", step.In)
	return strings.Join(words, " ")
}

// A scriptRun is one run of a scenario.
type scriptRun struct {
	*harness.Session
	scenario Scenario
	clients  map[string]*harness.Client
	attempts map[string]attempt // the latest of each client
	// background is where the end of what each client does there is told.
	background map[string]*pending
	busy       sync.WaitGroup
	beliefs    beliefs
}

// A pending is what a client does in the background.
type pending struct {
	ended // what came of it

	over chan struct{} // closed then
}

// An attempt is the latest request of a client for a lock.
type attempt struct {
	number      int
	lock, owner string
}

// An ended is what came of a step in the background.
type ended struct {
	step    ScriptStep
	outcome history.Type
}

func (p *scriptRun) lockNames() []string {
	var names []string
	for _, step := range p.scenario.Steps {
		for _, name := range step.locks() {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// resource is one that a client uses.
func (p *scriptRun) resource(client, name string) workload.Resource {
	return p.Resource(p.scenario.Clients[client], name, p.clients[client].Owner())
}

// do plays a step. What it leaves in the background ends with the context
// behind.
func (p *scriptRun) do(ctx, behind context.Context, step ScriptStep) error {
	timeout := fmt.Errorf("not done after %v", stepTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, stepTimeout, timeout)
	defer cancel()
	switch {
	case step.Background:
		if err := p.holds(step); err != nil {
			return err
		}
		doing := &pending{ended{step: step}, make(chan struct{})}
		p.background[step.Client] = doing
		c := p.clients[step.Client]
		p.asks(step)
		p.busy.Go(func() {
			ctx, cancel := context.WithTimeoutCause(behind, stepTimeout, timeout)
			defer cancel()
			doing.outcome = p.once(ctx, c, step, false)
			close(doing.over)
		})
		return nil
	case step.Await != "":
		return p.await(ctx, step)
	case step.Inject != "":
		planned := p.Plan[0] // they are those of the steps, in order
		p.Plan, planned.Params = p.Plan[1:], step.Params
		return p.Inject(ctx, planned)
	case step.Heal != "":
		return p.Heal(ctx, step.Heal)
	case step.Require != "":
		return p.require(ctx, step)
	default:
		return p.act(ctx, p.clients[step.Client], step)
	}
}

func (p *scriptRun) act(ctx context.Context, c *harness.Client, step ScriptStep) error {
	switch {
	case step.requests():
		return p.insist(ctx, c, step)
	case step.Read != "":
		_, err := c.Do(ctx, workload.Act{Do: workload.DoRead, Name: step.Read}, p.resource(step.Client, step.Read))
		return err
	}
	name := cmp.Or(step.Write, step.Access)
	r := p.resource(step.Client, name)
	e := ended{step, history.Fail}
	var refused error
	if step.Access != "" {
		_, refused = c.Do(ctx, workload.Act{Do: workload.DoRead, Name: name}, r)
	}
	switch {
	case refused == nil:
		e.outcome, _ = c.Do(ctx, workload.Act{Do: workload.DoWrite, Name: name}, r)
	case !errors.Is(refused, workload.ErrRefused) || step.Until == "":
		return refused
	}
	if until := cmp.Or(step.Until, untilEnded); !e.met(until) {
		return e.differs(until)
	}
	return nil
}

// asks notes a request that is about to be made, as [workload.Client] names it.
func (p *scriptRun) asks(step ScriptStep) {
	if step.Acquire != "" {
		n := p.attempts[step.Client].number
		if !step.Again {
			n++
		}
		p.attempts[step.Client] = attempt{number: n, lock: step.Acquire, owner: fmt.Sprintf("%s#%d", step.Client, n)}
	}
}

// once makes one request, and notes what the client may believe since. again is true where
// the step has made it before.
func (p *scriptRun) once(ctx context.Context, c *harness.Client, step ScriptStep, again bool) history.Type {
	outcome := p.request(ctx, c, step, again)
	p.beliefs.note(step, outcome)
	return outcome
}

// request makes one request, and looks at the servers when an acquire was answered.
func (p *scriptRun) request(ctx context.Context, c *harness.Client, step ScriptStep, again bool) history.Type {
	a, r := workload.Act{Do: workload.DoRelease}, workload.Resource(nil)
	switch {
	case step.Acquire != "":
		a = workload.Act{Do: workload.DoAsk, Ask: step.ask(p.scenario.Lock)}
	case step.Extend != "":
		a = workload.Act{Do: workload.DoExtend, Lease: step.Lease}
	case step.Write != "":
		a, r = workload.Act{Do: workload.DoWrite, Name: step.Write}, p.resource(step.Client, step.Write)
	case again || step.Release != "" && p.beliefs.unsure(step): // a release that was confirmed may be unknown once more, since it may be of the first; the next one is refused
		a.Do = workload.DoReleaseAgain
	case step.First:
		a.Do = workload.DoReleaseFirst
	}
	outcome, _ := c.Do(ctx, a, r) // an error is of a read
	if a.Do == workload.DoAsk && outcome != history.Info {
		p.lookForKey(ctx, step.Acquire)
	}
	return outcome
}

// holds says why a client can't extend or give back what the step says.
func (p *scriptRun) holds(step ScriptStep) error {
	name, held, which := cmp.Or(step.Extend, step.Release), p.clients[step.Client].Holds(), "last"
	switch {
	case name == "", len(held) == 0 && p.beliefs.unsure(step):
		return nil
	case len(held) == 0:
		return errors.New("it was granted nothing that it could extend or release")
	case step.First:
		held, which = held[:1], "first"
	}
	if held[len(held)-1] != name {
		return fmt.Errorf("what it was granted %s is %s, and not %s", which, held[len(held)-1], name)
	}
	return nil
}

// insist makes a request until it ends as the step wants, as far as asking
// again can help.
func (p *scriptRun) insist(ctx context.Context, c *harness.Client, step ScriptStep) error {
	if err := p.holds(step); err != nil {
		return err
	}
	began, unknowns := time.Now(), 0
	for {
		p.asks(step)
		e := ended{step, p.once(ctx, c, step, unknowns > 0)}
		switch {
		case e.met(step.Until):
			return nil
		case step.Until == untilUnknown, step.Until == untilRefused && e.outcome == history.OK,
			step.Acquire == "" && (step.Until != "" || e.outcome != history.Info): // it does not become what is wanted
			return e.differs(step.Until)
		case e.outcome == history.Info:
			unknowns++
		}
		if err := p.hopeless(step, e.outcome, unknowns, time.Since(began)); err != nil {
			return err
		}
		if !workload.Pause(ctx, askAgain) {
			return fmt.Errorf("not %s: %w", cmp.Or(step.Until, untilAnswered), context.Cause(ctx))
		}
	}
}

// met reports whether it ended as it should.
func (e ended) met(until string) bool {
	switch until {
	case untilGranted, untilDone:
		return e.outcome == history.OK
	case untilRefused:
		return e.outcome == history.Fail
	case untilUnknown:
		return e.outcome == history.Info
	case untilEnded:
		return true
	default:
		return e.outcome != history.Info
	}
}

// differs says that it ended otherwise than it should.
func (e ended) differs(until string) error {
	was := untilUnknown
	switch {
	case e.outcome == history.Fail:
		was = untilRefused
	case e.outcome == history.OK && e.step.Acquire != "":
		was = untilGranted
	case e.outcome == history.OK:
		was = untilDone
	}
	return differentError{fmt.Errorf("it was %s, and should have been %s", was, cmp.Or(until, untilAnswered)), e.outcome != history.Info}
}

// await waits for what a client has in the background, or for a fault that lies
// in wait.
func (p *scriptRun) await(ctx context.Context, step ScriptStep) error {
	doing, ok := p.background[step.Await]
	if !ok && step.Until == untilLost {
		return p.clients[step.Await].AwaitLost(ctx)
	}
	if !ok {
		return p.awaitFault(ctx, step)
	}
	delete(p.background, step.Await)
	select {
	case <-doing.over:
		if !doing.met(step.Until) {
			return doing.differs(step.Until)
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// lookForKey records which owner holds the lock, as each server says. Those that do not answer say nothing.
func (p *scriptRun) lookForKey(ctx context.Context, name string) {
	if p.scenario.Lock.HolderOn == nil {
		return
	}
	for _, server := range p.Deployment().Topology().Of(topologies.Redis) {
		holder, err := p.scenario.Lock.HolderOn(ctx, p.Deployment().Server(server).Observer(), name)
		if err != nil {
			continue
		}
		p.Record(history.Event{
			Process: history.NoProcess, Op: history.Observe, Type: history.OK,
			Node: server, What: history.ObserveKey, Value: strings.TrimSpace(name + " " + holder),
		})
	}
}

// require waits until servers say of a client's latest grant what the script
// needs them to, or looks at what a ledger has of it.
func (p *scriptRun) require(ctx context.Context, step ScriptStep) error {
	asked := p.attempts[step.Of]
	if step.In != "" { // what was written is there, and what was not never will be without a step that writes it
		if written := p.Written(step.In, asked.owner); written != (step.Require == requireWritten) {
			return fmt.Errorf("%s has a change by %s: %t", step.In, asked.owner, written)
		}
		return nil
	}
	if p.scenario.other && step.Require == requireHeld && p.beliefs.refused(step.Of) {
		return differentError{fmt.Errorf("client %s was refused, and a server should have its grant", step.Of), false}
	}
	if p.scenario.other && p.scenario.Lock.HolderOn == nil && step.Require == requireAbsent && p.beliefs.others(step.Of) {
		return differentError{errors.New("another client holds the lock, and its keys do not tell whose a grant is"), false}
	}
	for _, server := range step.On {
		there := p.Deployment().Server(server)
		if there == nil { // an attached deployment may be smaller
			return fmt.Errorf("there is no server %s here", server)
		}
		for {
			held, err := p.HeldOn(ctx, there.Observer(), asked.lock, asked.owner)
			if err == nil && held == (step.Require == requireHeld) {
				break
			}
			if !workload.Pause(ctx, askAgain) {
				return fmt.Errorf("%s says held: %t (%w)", server, held, cmp.Or(err, context.Cause(ctx)))
			}
		}
	}
	return nil
}
