package scenarios

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/topologies"
)

// paramCommand is the parameter that names a command of a lock.
const paramCommand = "command"

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

// learnFor learns what the lock keeps on the servers and sends to them, if the
// script can't be played without. It returns the scenario with the names of locks
// that have their keys where the script expects them.
func (st *stage) learnFor(ctx context.Context, s Scenario) (Scenario, error) {
	asksServers := st.lock.HeldOn == nil && slices.ContainsFunc(s.Steps, ScriptStep.ofServers)
	aims := st.lock.Foreign && slices.ContainsFunc(s.Steps, func(step ScriptStep) bool {
		return step.Params[paramCommand] != "" || step.Params[paramKey] != ""
	})
	if !asksServers && !aims {
		return s, nil
	}
	zone := s.Clients[slices.Sorted(maps.Keys(s.Clients))[0]]
	l, err := st.locker(harness.LockOptions{Watchdog: s.Watchdog}, zone)
	if err != nil {
		return s, err
	}
	if err := st.learn(ctx, zone, l); err != nil {
		return s, err
	}
	return st.placed(ctx, s)
}

// mostNames is how many names of a lock are tried.
const mostNames = 1000

// placed gives the locks of a script on a cluster other names if need be: the lock
// may keep its key in another slot than its name is in, and the script is about
// the server that has the slot of the name.
func (st *stage) placed(ctx context.Context, s Scenario) (Scenario, error) {
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
				if names[*name], err = st.nameOnServerOf(ctx, *name); err != nil {
					return s, err
				}
			}
			*name = names[*name]
		}
	}
	for i := range steps {
		if other := names[steps[i].Params[paramKey]]; other != "" {
			steps[i].Params[paramKey] = other
		}
	}
	s.Steps = steps
	return s, nil
}

// nameOnServerOf is a name that begins with the name of a lock, and whose key is on
// the server that has the slot of that name.
func (st *stage) nameOnServerOf(ctx context.Context, name string) (string, error) {
	want, err := servedBy(ctx, st.deployment, name)
	if err != nil {
		return "", err
	}
	for n := range mostNames {
		other := name
		if n > 0 {
			other = fmt.Sprintf("%s-%d", name, n+1)
		}
		server, err := servedBy(ctx, st.deployment, st.footprint.KeysOf(other)[0])
		if err != nil {
			return "", err
		}
		if server == want {
			return other, nil
		}
	}
	return "", fmt.Errorf("no name was found of which the lock keeps its key on %s: all its keys may be in one slot", want)
}

// learn learns what the lock keeps on the servers and sends to them, from the
// traffic of a zone.
func (st *stage) learn(ctx context.Context, zone string, l lock.Locker) error {
	f, err := harness.Learn(ctx, st.deployment, zone, l)
	if err != nil {
		return err
	}
	st.footprint = &f
	for _, name := range st.locks {
		st.keys[name] = f.KeysOf(name)[0]
	}
	st.Log.InfoContext(ctx, "learnt what the lock uses", "keys", f.Keys, "acquire", f.Acquire, "extend", f.Extend, "release", f.Release)
	return nil
}

// heldOn reports whether a server says that the owner holds the lock, as far as it
// can be asked.
func (st *stage) heldOn(ctx context.Context, server *redis.Client, name, owner string) (bool, error) {
	switch {
	case st.lock.HeldOn != nil:
		return st.lock.HeldOn(ctx, server, name, owner)
	case st.footprint != nil:
		return st.footprint.HeldOn(ctx, server, name, owner)
	default:
		return false, errors.New("the keys of the lock are not known")
	}
}

// aimAtLock has a fault of commands wait for one that the lock sends, as far as
// that was learnt.
func (st *stage) aimAtLock(s faults.Step) (faults.Step, error) {
	words := s.Params[paramCommand]
	if _, other := toResource(s.Target); other || words == "" || st.footprint == nil || !st.lock.Foreign {
		return s, nil
	}
	aimed, ok := st.footprint.Aim(words)
	if !ok {
		return s, fmt.Errorf("it waits for %q, and lock %s sends no such command", words, st.lock.Name)
	}
	if aimed != words {
		s.Params = maps.Clone(s.Params)
		s.Params[paramCommand] = aimed
	}
	return s, nil
}
