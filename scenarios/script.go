package scenarios

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/workload"
	"github.com/lockchaos/lockchaos/workload/history"
)

// How an acquire of a script may have to end.
const (
	untilAnswered = "answered"
	untilGranted  = "granted"
	untilRefused  = "refused"
)

// What a script may require of servers.
const (
	requireHeld   = "held"
	requireAbsent = "absent"
)

const (
	// stepTimeout bounds how long a step waits for what it needs.
	stepTimeout = 10 * time.Second
	// askAgain is how long a client waits after an attempt that did not end as
	// the script needs it.
	askAgain = 5 * time.Millisecond
)

// Run plays the scenario and leaves the record in setup.Dir. A step that can't
// be done as the script needs it ends the scenario; it is recorded as unmet,
// so that nobody takes the verdict for an answer. Only a failure of the
// harness is an error.
func (s Scenario) Run(ctx context.Context, setup Setup) (err error) {
	if err := s.Validate(); err != nil {
		return err
	}
	l, err := LockByName(s.Lock)
	if err != nil {
		return err
	}
	t, err := topologies.New(s.Topology, s.Servers)
	if err != nil {
		return err
	}
	st, err := open(ctx, setup, history.Run{
		Scenario: s.Name, Title: s.Title, Source: s.Source, Expect: s.Expect.Verdict, Cures: s.Cures,
		Lock: s.Lock, Workload: "script", Faults: "script",
	}, t, func(d topologies.Deployment, _ *history.Run) error {
		var asked []string
		for _, step := range s.Steps {
			if step.Inject != "" {
				asked = append(asked, step.Inject)
			}
		}
		return possible(d, asked)
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.close(ctx)) }()
	p := &play{stage: st, scenario: s, clients: map[string]*workload.Client{}, resources: map[string]*workload.Register{}}
	st.declare(l, p.lockNames()...)
	for _, name := range slices.Sorted(maps.Keys(s.Clients)) {
		locker, err := st.locker(l, LockOptions{ReplicaAcks: s.ReplicaAcks, Watchdog: s.Watchdog}, s.Clients[name])
		if err != nil {
			return err
		}
		p.clients[name] = &workload.Client{
			Name: name, Locker: locker, Recorder: st.recorder, Processes: &st.processes,
			Careless: true, // what it does when is the script's business
			NodeName: st.deployment.NodeAt,
		}
	}
	for i, step := range s.Steps {
		if err := p.do(ctx, step); err != nil {
			st.run.Unmet = fmt.Sprintf("step %d (%s): %v", i+1, step, err)
			st.Log.WarnContext(ctx, "the scenario ends early", "unmet", st.run.Unmet)
			break
		}
	}
	return nil
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
	add("acquires", step.Acquire)
	add("releases", step.Release)
	add("reads", step.Read)
	add("writes", step.Write)
	add("accesses", step.Access)
	add("inject", step.Inject)
	add("heal", step.Heal)
	add("require", step.Require)
	add("on", strings.Join(step.On, ", "))
	return strings.Join(words, " ")
}

// A play is a scenario on its stage.
type play struct {
	*stage
	scenario  Scenario
	clients   map[string]*workload.Client
	resources map[string]*workload.Register
}

func (p *play) lockNames() []string {
	var names []string
	for _, step := range p.scenario.Steps {
		if step.Acquire != "" && !slices.Contains(names, step.Acquire) {
			names = append(names, step.Acquire)
		}
	}
	return names
}

func (p *play) resource(name string) *workload.Register {
	if p.resources[name] == nil {
		p.resources[name] = &workload.Register{}
	}
	return p.resources[name]
}

func (p *play) do(ctx context.Context, step ScriptStep) error {
	ctx, cancel := context.WithTimeoutCause(ctx, stepTimeout, fmt.Errorf("not done after %v", stepTimeout))
	defer cancel()
	switch {
	case step.Inject != "":
		return p.inject(ctx, faults.Step{Fault: step.Inject, Target: step.Target, Params: step.Params})
	case step.Heal != "":
		return p.heal(ctx, step.Heal)
	case step.Require != "":
		return p.require(ctx, step)
	default:
		return p.act(ctx, p.clients[step.Client], step)
	}
}

func (p *play) act(ctx context.Context, c *workload.Client, step ScriptStep) error {
	switch {
	case step.Acquire != "":
		return p.acquire(ctx, c, step)
	case step.Read != "":
		return c.Read(ctx, step.Read, p.resource(step.Read))
	case step.Write != "":
		c.Write(ctx, step.Write, p.resource(step.Write))
	case step.Access != "":
		if err := c.Read(ctx, step.Access, p.resource(step.Access)); err != nil {
			return err
		}
		c.Write(ctx, step.Access, p.resource(step.Access))
	default:
		if !c.Holding() {
			return errors.New("it was granted nothing that it could release")
		}
		if c.Release(ctx) == history.Info {
			return errors.New("the release got no answer")
		}
	}
	return nil
}

// acquire asks until it is answered as the step wants.
func (p *play) acquire(ctx context.Context, c *workload.Client, step ScriptStep) error {
	for {
		outcome := c.Acquire(ctx, step.Acquire, step.Lease, step.Wait)
		granted, refused := outcome == history.OK, outcome == history.Fail
		switch step.Until {
		case untilGranted:
			refused = false
		case untilRefused:
			if granted {
				return errors.New("it was granted, and should have been refused")
			}
		}
		if granted || refused {
			return p.lookForKey(ctx, step.Acquire, c.Owner())
		}
		if !workload.Pause(ctx, askAgain) {
			return fmt.Errorf("not %s: %w", cmp.Or(step.Until, untilAnswered), context.Cause(ctx))
		}
	}
}

// lookForKey records which servers say that the owner holds the lock. Those
// that do not answer say nothing.
func (p *play) lookForKey(ctx context.Context, name, owner string) error {
	if p.scenario.Lock != "mutex" {
		return nil
	}
	for _, server := range p.deployment.Topology().Of(topologies.Redis) {
		held, err := heldOn(ctx, p.deployment.Server(server).Observer(), name, owner)
		if err != nil {
			continue
		}
		e := history.Event{
			Process: history.Nobody, Op: history.Observe, Type: history.OK,
			Node: server, What: history.ObserveKey, Value: name,
		}
		if held {
			e.Value += " " + owner
		}
		p.recorder.Record(e)
	}
	return ctx.Err()
}

// requireTimeout is how long a requirement may take to come true.
const requireTimeout = 2 * time.Second

// require waits until servers say of a client's latest grant what the script
// needs them to.
func (p *play) require(ctx context.Context, step ScriptStep) error {
	ctx, cancel := context.WithTimeout(ctx, requireTimeout)
	defer cancel()
	c := p.clients[step.Of]
	for _, server := range step.On {
		there := p.deployment.Server(server)
		if there == nil { // somebody else's deployment may be smaller
			return fmt.Errorf("there is no server %s here", server)
		}
		for {
			held, err := heldOn(ctx, there.Observer(), c.Lock(), c.Owner())
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
