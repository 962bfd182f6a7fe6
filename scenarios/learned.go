package scenarios

import (
	"context"
	"maps"
	"slices"

	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/topologies"
)

// ofServers reports whether the step asks servers what they have of a lock.
func (step ScriptStep) ofServers() bool { return step.Require != "" && !step.ofLedger() }

// learned has the run learn what its lock keeps on the servers and sends to them, if
// the script can't be played without. It returns the scenario with the names of locks
// that have their keys where the script expects them.
func (s Scenario) learned(ctx context.Context, st *harness.Session) (Scenario, error) {
	asksServers := s.Lock.HolderOn == nil && slices.ContainsFunc(s.Steps, ScriptStep.ofServers)
	aims := s.Lock.Foreign && slices.ContainsFunc(s.Steps, func(step ScriptStep) bool {
		return step.Params[harness.ParamCommand] != "" || step.Params[harness.ParamKey] != ""
	})
	if !asksServers && !aims {
		return s, nil
	}
	if err := st.Learn(ctx, s.Clients[slices.Sorted(maps.Keys(s.Clients))[0]]); err != nil {
		return s, err
	}
	return s.placed(ctx, st)
}

// placed gives the locks of a script on a cluster other names if need be: the lock
// may keep its key in another slot than its name is in, and the script is about
// the server that has the slot of the name.
func (s Scenario) placed(ctx context.Context, st *harness.Session) (Scenario, error) {
	if !topologies.ShapeOf(s.Topology).Slots {
		return s, nil
	}
	names := map[string]string{}
	steps := slices.Clone(s.Steps)
	for i := range steps {
		step := &steps[i]
		step.Params = maps.Clone(step.Params)
		for _, name := range []*string{&step.Acquire, &step.Extend, &step.Release} {
			if *name == "" {
				continue
			}
			if names[*name] == "" {
				var err error
				if names[*name], err = st.NameOnServerOf(ctx, *name); err != nil {
					return s, err
				}
			}
			*name = names[*name]
		}
	}
	for i := range steps {
		if other := names[steps[i].Params[harness.ParamKey]]; other != "" {
			steps[i].Params[harness.ParamKey] = other
		}
	}
	s.Steps = steps
	return s, nil
}
