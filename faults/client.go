package faults

import (
	"context"
	"fmt"
	"time"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/topologies"
)

// clientSpecs are the faults of a client that is an operating system's process of
// its own: it stands still, now and then or until the heal, or it is gone.
func clientSpecs() []Spec {
	specs := []Spec{
		{
			Name: "kill-client", Summary: "SIGKILL to a client of a script, which is gone for good",
			Life:     history.Momentary,
			Observed: "the process is gone",
			Pitfall:  "what it held, it holds until the lease runs out",
			New:      onClient(func(p ClientProcess, _ Step) change { return change{begin: did("is gone", p.Kill)} }),
		},
		{
			Name: "pause-client", Summary: "SIGSTOP to a client of a script, and SIGCONT at the heal",
			Life:     history.Lasting,
			Observed: "the kernel says that it stands still", Healed: "it goes on",
			Pitfall: "what it was sent waits in its socket, and is read when it wakes",
			New: onClient(func(p ClientProcess, _ Step) change {
				return change{begin: did("stands still", p.Pause), end: did("goes on", p.Resume)}
			}),
		},
		{
			Name: "throttle-client", Summary: "stop a client of a script and let it run, over and over, as a limit of its processor time does",
			Life:     history.Repeating,
			Params:   []Param{number("stopped", "ms").otherwise("400"), number("runs", "ms").otherwise("100")},
			Observed: "the kernel says that it stands still, and that it goes on", Healed: "it goes on",
			Pitfall: "it does everything late, and its clock goes on: its watchdog can miss the end of a lease",
			New: onClient(func(p ClientProcess, s Step) change {
				return throttle(p, s.millis("stopped"), s.millis("runs"))
			}),
		},
	}
	for i := range specs {
		specs[i].Family, specs[i].Target, specs[i].Needs = Client, AtClient, []topologies.Capability{topologies.Workers}
		specs[i].Effects = []history.Effect{history.StopsClient}
	}
	return specs
}

// onClient makes a fault of the client that a step's target names.
func onClient(of func(ClientProcess, Step) change) func(Site, Step) (inject, error) {
	return func(site Site, s Step) (inject, error) {
		p := site.Clients[s.Target]
		if p == nil {
			return nil, fmt.Errorf("%s: no client %q is a process of its own", s.Fault, s.Target)
		}
		return of(p, s).of(s.Fault, "client "+s.Target), nil
	}
}

// A ClientProcess is what a fault needs of a client. Each method waits until the
// kernel says that it took effect.
type ClientProcess interface {
	Name() string
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error
	Kill(ctx context.Context) error
}

// throttle stops a client and lets it run, in turns, as a container is treated
// that has used up its share of the processor. The first turn is seen.
func throttle(p ClientProcess, stopped, runs time.Duration) change {
	stop := func() {}
	return change{
		begin: func(ctx context.Context) (string, error) {
			if err := p.Pause(ctx); err != nil {
				return "", err
			}
			if err := p.Resume(ctx); err != nil {
				return "", err
			}
			turns, cancel := context.WithCancel(context.WithoutCancel(ctx))
			end := takeTurns(func() func() {
				_ = p.Pause(turns) // it may be gone, which the heal finds
				return func() { _ = p.Resume(turns) }
			}, stopped, runs)
			stop = func() {
				cancel()
				end()
			}
			return fmt.Sprintf("stands still for %v, runs for %v, and so on", stopped, runs), nil
		},
		end: func(ctx context.Context) (string, error) {
			stop()
			return "runs without stops", p.Resume(ctx)
		},
	}
}
