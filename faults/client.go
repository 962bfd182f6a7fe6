package faults

import (
	"context"
	"fmt"
	"sync"
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
			New:      onClient(func(p ClientProcess, _ Step) Fault { return clientKill{p} }),
		},
		{
			Name: "pause-client", Summary: "SIGSTOP to a client of a script, and SIGCONT at the heal",
			Life:     history.Lasting,
			Observed: "the kernel says that it stands still", Healed: "it goes on",
			Pitfall: "what it was sent waits in its socket, and is read when it wakes",
			New:     onClient(func(p ClientProcess, _ Step) Fault { return clientPause{p} }),
		},
		{
			Name: "throttle-client", Summary: "stop a client of a script and let it run, over and over, as a limit of its processor time does",
			Life:     history.Repeating,
			Params:   []Param{number("stopped", "ms").otherwise("400"), number("runs", "ms").otherwise("100")},
			Observed: "the kernel says that it stands still, and that it goes on", Healed: "it goes on",
			Pitfall: "it does everything late, and its clock goes on: its watchdog can miss the end of a lease",
			New: onClient(func(p ClientProcess, s Step) Fault {
				return clientThrottle{p, s.millis("stopped"), s.millis("runs")}
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
func onClient(of func(ClientProcess, Step) Fault) func(Site, Step) (Fault, error) {
	return func(site Site, s Step) (Fault, error) {
		p := site.Clients[s.Target]
		if p == nil {
			return nil, fmt.Errorf("%s: no client %q is a process of its own", s.Fault, s.Target)
		}
		return of(p, s), nil
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

// clientPause stops a client with SIGSTOP, as a long collection of garbage, a page
// fault or a suspended machine does; the heal lets it go on. What is sent to it
// in between waits in its socket, and its clock goes on.
type clientPause struct{ p ClientProcess }

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
		Effect: "client " + f.p.Name() + " " + standsStill,
		Heal: Once(func(ctx context.Context) (string, error) {
			return "client " + f.p.Name() + " goes on", f.p.Resume(ctx)
		}),
	}, nil
}

// clientKill ends a client with SIGKILL. It has no duration: it is not started again.
type clientKill struct{ p ClientProcess }

// Name returns "kill-client".
func (clientKill) Name() string { return "kill-client" }

// Inject returns once the client is gone.
func (f clientKill) Inject(ctx context.Context) (Injection, error) {
	if err := f.p.Kill(ctx); err != nil {
		return Injection{}, err
	}
	return Injection{Effect: "client " + f.p.Name() + " " + isGone}, nil
}

// clientThrottle stops a client and lets it run, in turns, as a container is treated
// that has used up its share of the processor.
type clientThrottle struct {
	p             ClientProcess
	stopped, runs time.Duration // above 0
}

// Name returns "throttle-client".
func (clientThrottle) Name() string { return "throttle-client" }

// Inject sees the first turn: the client stands still, and goes on.
func (f clientThrottle) Inject(ctx context.Context) (Injection, error) {
	first, err := clientPause{f.p}.Inject(ctx)
	if err != nil {
		return Injection{}, err
	}
	if _, err := first.Heal(ctx); err != nil {
		undo, cancel := Undo(ctx)
		defer cancel()
		_ = f.p.Resume(undo) // it may be gone
		return Injection{}, err
	}
	stop, ended := make(chan struct{}), make(chan struct{})
	turns, cancel := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(ended)
		for {
			_ = f.p.Pause(turns) // it may be gone, which the heal finds
			over := stoppedWithin(stop, f.stopped)
			_ = f.p.Resume(turns)
			if over || stoppedWithin(stop, f.runs) {
				return
			}
		}
	}()
	end := sync.OnceFunc(func() {
		close(stop)
		cancel()
		<-ended
	})
	return Injection{
		Effect: fmt.Sprintf("client %s stands still for %v, runs for %v, and so on", f.p.Name(), f.stopped, f.runs),
		Heal: Once(func(ctx context.Context) (string, error) {
			end()
			return "client " + f.p.Name() + " runs without stops", f.p.Resume(ctx)
		}),
	}, nil
}
