package faults

import (
	"context"
	"fmt"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/topologies"
)

// clientSpecs are the faults of a client that is an operating system's process of
// its own: it stands still, or it is gone.
func clientSpecs() []Spec {
	specs := []Spec{
		{
			Name: "kill-client", Summary: "SIGKILL to a client of a script, which is gone for good",
			Life:     history.Momentary,
			Observed: "the process is gone",
			Pitfall:  "what it held, it holds until the lease runs out",
			Story:    Story{Injected: "client {target} {was} killed"},
			New:      onClient(killClient),
		},
		{
			Name: "pause-client", Summary: "SIGSTOP to a client of a script, and SIGCONT at the heal",
			Life:     history.Lasting,
			Observed: "the kernel says that it stands still", Healed: "it goes on",
			Pitfall: "what it was sent waits in its socket, and is read when it wakes",
			Story:   Story{"client {target} {was} paused", "client {target} went on after the pause"},
			New:     onClient(pauseClient),
		},
	}
	for i := range specs {
		specs[i].Family, specs[i].Target, specs[i].Needs = Client, AtClient, []topologies.Capability{topologies.Workers}
		specs[i].Effects = []history.Effect{history.StopsClient}
	}
	return specs
}

// onClient makes a fault of the client that a step's target names.
func onClient(of func(ClientProcess) Fault) func(Site, Step) (Fault, error) {
	return func(site Site, s Step) (Fault, error) {
		p := site.Clients[s.Target]
		if p == nil {
			return nil, fmt.Errorf("%s: no client %q is a process of its own", s.Fault, s.Target)
		}
		return of(p), nil
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

type clientPause struct{ p ClientProcess }

// pauseClient stops a client with SIGSTOP, as a long collection of garbage, a page
// fault or a suspended machine does; the heal lets it go on. What is sent to it
// in between waits in its socket, and its clock goes on.
func pauseClient(p ClientProcess) Fault { return clientPause{p} }

// Name returns "pause-client".
func (clientPause) Name() string { return "pause-client" }

// Inject returns once no thread of the client runs.
func (f clientPause) Inject(ctx context.Context) (Injection, error) {
	if err := f.p.Pause(ctx); err != nil {
		undo, cancel := Undo(ctx)
		defer cancel()
		_ = f.p.Resume(undo) // it may be gone
		return Injection{}, err
	}
	return Injection{
		Effect: "client " + f.p.Name() + " stands still",
		Heal: Once(func(ctx context.Context) (string, error) {
			return "client " + f.p.Name() + " goes on", f.p.Resume(ctx)
		}),
	}, nil
}

type clientKill struct{ p ClientProcess }

// killClient ends a client with SIGKILL. It has no duration: it is not started again.
func killClient(p ClientProcess) Fault { return clientKill{p} }

// Name returns "kill-client".
func (clientKill) Name() string { return "kill-client" }

// Inject returns once the client is gone.
func (f clientKill) Inject(ctx context.Context) (Injection, error) {
	if err := f.p.Kill(ctx); err != nil {
		return Injection{}, err
	}
	return Injection{Effect: "client " + f.p.Name() + " is gone"}, nil
}
