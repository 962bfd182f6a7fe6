package faults

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/topologies"
)

// processSpecs are the faults of servers' processes.
func processSpecs() []Spec {
	specs := []Spec{
		{
			Name: "kill", Summary: "SIGKILL, and a restart at the heal",
			Life: history.Lasting, Effects: []history.Effect{history.Stops, history.Restarts},
			Candidates: drawn(TargetOfLock, 2, restarted),
			Observed:   "the process is gone", Healed: "the process runs and answers",
			Pitfall: "no power cut: what was written to a file stays written",
			New: onServer(func(p topologies.Server, _ Step) change {
				return change{begin: did("is gone", p.Kill), end: did("answers again", p.Restart), through: true}
			}),
		},
		{
			Name: "pause", Summary: "SIGSTOP, and SIGCONT at the heal",
			Life: history.Lasting, Effects: []history.Effect{history.Stops, history.Suspends},
			Candidates: drawn(TargetOfLock, 2, away),
			Observed:   "the kernel says that it stands still", Healed: "it goes on",
			Pitfall: "its kernel still accepts connections; a paused replica loses nothing",
			New: onServer(func(p topologies.Server, _ Step) change {
				return change{begin: did("stands still", p.Pause), end: did("goes on", p.Resume), through: true}
			}),
		},
		{
			Name: "restart", Summary: "SIGKILL and a restart at once",
			Life: history.Momentary, Effects: []history.Effect{history.Restarts},
			Candidates: drawn(TargetOfLock, 2, restarted),
			Observed:   "it runs and answers",
			Pitfall:    "without persistence it has forgotten everything; a promoted master is the master again",
			New: onServer(func(p topologies.Server, _ Step) change {
				return change{begin: did("was killed and answers again", revive(p, p.Restart)), through: true}
			}),
		},
		{
			Name: "restart-empty", Summary: "SIGKILL, the data removed, and a restart at once",
			Needs: []topologies.Capability{topologies.Wiping},
			Life:  history.Momentary, Effects: []history.Effect{history.Restarts, history.Forgets},
			Candidates: drawn(TargetOfLock, 2, forgets),
			Observed:   "it runs and answers",
			Pitfall:    "its replicas become copies of its emptiness",
			New: onServer(func(p topologies.Server, _ Step) change {
				return change{begin: did("was killed, lost its data and answers again", revive(p, p.Wipe, p.Restart)), through: true}
			}),
		},
	}
	for i := range specs {
		specs[i].Family, specs[i].Target = Process, AtProcess
		specs[i].Needs = append([]topologies.Capability{topologies.Processes}, specs[i].Needs...)
	}
	return specs
}

// onServer makes a fault of the server that a step's target names.
func onServer(of func(s topologies.Server, step Step) change) func(Site, Step) (inject, error) {
	return func(site Site, s Step) (inject, error) {
		server := site.Deployment.Server(s.Target)
		if server == nil {
			return nil, fmt.Errorf("topology %s has no server %q", site.Deployment.Topology().Name, s.Target)
		}
		return of(server, s).of(s.Fault, s.Target), nil
	}
}

// revive kills a process, and does all that has it run again, whatever goes wrong of it.
func revive(p topologies.Server, then ...func(context.Context) error) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		if err := p.Kill(ctx); err != nil {
			return err
		}
		var errs []error
		for _, do := range then {
			errs = append(errs, do(ctx))
		}
		return errors.Join(errs...)
	}
}
