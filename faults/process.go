package faults

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/topologies"
)

// What is observed of a process after a fault.
const (
	isGone         = "is gone"
	standsStill    = "stands still"
	killedAndBack  = "was killed and answers again"
	killedAndEmpty = "was killed, lost its data and answers again"
)

// processSpecs are the faults of servers' processes.
func processSpecs() []Spec {
	specs := []Spec{
		{
			Name: "kill", Summary: "SIGKILL, and a restart at the heal",
			Life: history.Lasting, Effects: []history.Effect{history.Stops, history.Restarts},
			Candidates: lasting(TargetOfLock, 2, restarted),
			Observed:   "the process is gone", Healed: "the process runs and answers",
			Pitfall: "no power cut: what was written to a file stays written",
			New:     onServer(killServer),
		},
		{
			Name: "pause", Summary: "SIGSTOP, and SIGCONT at the heal",
			Life: history.Lasting, Effects: []history.Effect{history.Stops, history.Suspends},
			Candidates: lasting(TargetOfLock, 2, away),
			Observed:   "the kernel says that it stands still", Healed: "it goes on",
			Pitfall: "its kernel still accepts connections; a paused replica loses nothing",
			New:     onServer(pauseServer),
		},
		{
			Name: "restart", Summary: "SIGKILL and a restart at once",
			Life: history.Momentary, Effects: []history.Effect{history.Restarts},
			Candidates: once(TargetOfLock, 2, restarted),
			Observed:   "it runs and answers",
			Pitfall:    "without persistence it has forgotten everything; a promoted master is the master again",
			New:        onServer(restartServer),
		},
		{
			Name: "restart-empty", Summary: "SIGKILL, the data removed, and a restart at once",
			Needs: []topologies.Capability{topologies.Wiping},
			Life:  history.Momentary, Effects: []history.Effect{history.Restarts, history.Forgets},
			Candidates: once(TargetOfLock, 2, forgets),
			Observed:   "it runs and answers",
			Pitfall:    "its replicas become copies of its emptiness",
			New:        onServer(restartEmpty),
		},
	}
	for i := range specs {
		specs[i].Family, specs[i].Target = Process, AtProcess
		specs[i].Needs = append([]topologies.Capability{topologies.Processes}, specs[i].Needs...)
	}
	return specs
}

// onServer makes a fault of the server that a step's target names.
func onServer(of func(topologies.Server) Fault) func(Site, Step) (Fault, error) {
	return onServerWith(func(s topologies.Server, _ Step) Fault { return of(s) })
}

func onServerWith(of func(s topologies.Server, step Step) Fault) func(Site, Step) (Fault, error) {
	return func(site Site, s Step) (Fault, error) {
		server := site.Deployment.Server(s.Target)
		if server == nil {
			return nil, fmt.Errorf("topology %s has no server %q", site.Deployment.Topology().Name, s.Target)
		}
		return of(server, s), nil
	}
}

type processFault struct {
	name         string
	p            topologies.Server
	inject, heal func(ctx context.Context) error
	does, ends   string
}

// Name returns the fault's name.
func (f *processFault) Name() string { return f.name }

// Inject does it and waits until the process did as told. What was begun is seen
// through even if the run ends.
func (f *processFault) Inject(ctx context.Context) (Injection, error) {
	through, cancel, err := Through(ctx)
	if err != nil {
		return Injection{}, fmt.Errorf("%s %s: %w", f.name, f.p.Name(), err)
	}
	defer cancel()
	if err := f.inject(through); err != nil {
		return Injection{}, errors.Join(err, f.undo(ctx))
	}
	injection := Injection{Effect: f.p.Name() + " " + f.does}
	if f.heal != nil {
		injection.Heal = Once(func(ctx context.Context) (string, error) {
			return f.p.Name() + " " + f.ends, f.heal(ctx)
		})
	}
	return injection, nil
}

// undo ends what may have begun.
func (f *processFault) undo(ctx context.Context) error {
	if f.heal == nil {
		return nil
	}
	ctx, cancel := Undo(ctx)
	defer cancel()
	return f.heal(ctx)
}

// killServer ends a process with SIGKILL; the heal starts it again. It is no power
// cut: what the process had written to a file stays written.
func killServer(p topologies.Server) Fault {
	return &processFault{name: "kill", p: p, inject: p.Kill, heal: p.Restart, does: isGone, ends: "answers again"}
}

// pauseServer stops a process with SIGSTOP; the heal lets it go on. The kernel still
// accepts connections for it, so that its clients see silence and no refusal.
func pauseServer(p topologies.Server) Fault {
	return &processFault{name: "pause", p: p, inject: p.Pause, heal: p.Resume, does: standsStill, ends: "goes on"}
}

// restartEmpty kills a process, removes its data, and starts it again at once.
// It has no duration.
func restartEmpty(p topologies.Server) Fault {
	return &processFault{name: "restart-empty", p: p, does: killedAndEmpty, inject: func(ctx context.Context) error {
		if err := p.Kill(ctx); err != nil {
			return err
		}
		if err := errors.Join(p.Wipe(ctx), p.Restart(ctx)); err != nil {
			return fmt.Errorf("after the kill: %w", err)
		}
		return nil
	}}
}

// restartServer kills a process and starts it again at once. It has no duration.
func restartServer(p topologies.Server) Fault {
	return &processFault{name: "restart", p: p, does: killedAndBack, inject: func(ctx context.Context) error {
		if err := p.Kill(ctx); err != nil {
			return err
		}
		if err := p.Restart(ctx); err != nil {
			return fmt.Errorf("after the kill: %w", err)
		}
		return nil
	}}
}
