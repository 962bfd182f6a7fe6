// Package client makes the faults of a client that is an operating system's
// process of its own: it stands still, or it is gone.
package client

import (
	"context"

	"github.com/lockchaos/lockchaos/faults"
)

// A Process is what a fault needs of a client. Each method waits until the
// kernel says that it took effect.
type Process interface {
	Name() string
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error
	Kill(ctx context.Context) error
}

type pause struct{ p Process }

// Pause stops a client with SIGSTOP, as a long collection of garbage, a page
// fault or a suspended machine does; the heal lets it go on. What is sent to it
// in between waits in its socket, and its clock goes on.
func Pause(p Process) faults.Fault { return pause{p} }

// Name returns "pause-client".
func (pause) Name() string { return "pause-client" }

// Inject returns once no thread of the client runs.
func (f pause) Inject(ctx context.Context) (faults.Injection, error) {
	if err := f.p.Pause(ctx); err != nil {
		undo, cancel := faults.Undo(ctx)
		defer cancel()
		_ = f.p.Resume(undo) // it may be gone
		return faults.Injection{}, err
	}
	return faults.Injection{
		Effect: "client " + f.p.Name() + " stands still",
		Heal: faults.Once(func(ctx context.Context) (string, error) {
			return "client " + f.p.Name() + " goes on", f.p.Resume(ctx)
		}),
	}, nil
}

type kill struct{ p Process }

// Kill ends a client with SIGKILL. It has no duration: nobody starts it again.
func Kill(p Process) faults.Fault { return kill{p} }

// Name returns "kill-client".
func (kill) Name() string { return "kill-client" }

// Inject returns once the client is gone.
func (f kill) Inject(ctx context.Context) (faults.Injection, error) {
	if err := f.p.Kill(ctx); err != nil {
		return faults.Injection{}, err
	}
	return faults.Injection{Effect: "client " + f.p.Name() + " is gone"}, nil
}
