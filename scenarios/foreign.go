package scenarios

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/topologies"
)

// plainMutex is the lock of variants that any correct mutex can play.
const plainMutex = "mutex"

// Under is the variant of the scenario with another lock under test; the empty
// variant is the scenario itself. The verdict that it expects is that of its own
// lock, and need not be that of the other.
//
// The error says what the scenario asks for that the lock can't do, or that the
// variant is about a lock of its own. One about the plain mutex is about every
// correct mutex: it is the control of a planted bug.
func (s Scenario) Under(l harness.LockSpec, variant string) (Scenario, error) {
	as := s.As(variant)
	if as.LockName != s.LockName && as.LockName != plainMutex {
		return as, fmt.Errorf("%s: it is about the lock %s", as.Name, as.LockName)
	}
	as.Lock, as.LockName = l, l.Name
	if err := as.Validate(); err != nil {
		return as, err
	}
	if err := l.On(as.Topology, as.Servers, harness.LockOptions{ReplicaAcks: as.ReplicaAcks, Watchdog: as.Watchdog}); err != nil {
		return as, fmt.Errorf("%s: %w", as.Name, err)
	}
	return as, nil
}

// ofServers reports whether the step asks servers what they have of a lock.
func (step ScriptStep) ofServers() bool { return step.Require != "" && !step.ofLedger() }

// learned has the run learn what its lock keeps on the servers and sends to them, if
// the script can't be played without. It returns the scenario with the names of locks
// that have their keys where the script expects them.
func (s Scenario) learned(ctx context.Context, st *harness.Session) (Scenario, error) {
	asksServers := s.Lock.HeldOn == nil && slices.ContainsFunc(s.Steps, ScriptStep.ofServers)
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
	if s.Topology != topologies.Cluster {
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
