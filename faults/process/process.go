// Package process makes the faults of servers' processes: kill, restart, pause.
package process

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockchaos/lockchaos/faults"
)

// A Process is what a fault needs of one. Each method waits until it took
// effect.
type Process interface {
	Name() string
	Kill(ctx context.Context) error
	Restart(ctx context.Context) error
	// Wipe removes the data of a killed process.
	Wipe(ctx context.Context) error
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error
}

type fault struct {
	name         string
	p            Process
	inject, heal func(ctx context.Context) error
	does, ends   string
}

// Name returns the fault's name.
func (f *fault) Name() string { return f.name }

// Inject does it and waits until the process did as told. What was begun is seen
// through even if the run ends.
func (f *fault) Inject(ctx context.Context) (faults.Injection, error) {
	through, cancel, err := faults.Through(ctx)
	if err != nil {
		return faults.Injection{}, fmt.Errorf("%s %s: %w", f.name, f.p.Name(), err)
	}
	defer cancel()
	if err := f.inject(through); err != nil {
		return faults.Injection{}, errors.Join(err, f.undo(ctx))
	}
	injection := faults.Injection{Effect: f.p.Name() + " " + f.does}
	if f.heal != nil {
		injection.Heal = faults.Once(func(ctx context.Context) (string, error) {
			return f.p.Name() + " " + f.ends, f.heal(ctx)
		})
	}
	return injection, nil
}

// undo ends what may have begun.
func (f *fault) undo(ctx context.Context) error {
	if f.heal == nil {
		return nil
	}
	ctx, cancel := faults.Undo(ctx)
	defer cancel()
	return f.heal(ctx)
}

// Kill ends a process with SIGKILL; the heal starts it again. It is no power
// cut: what the process had written to a file stays written.
func Kill(p Process) faults.Fault {
	return &fault{name: "kill", p: p, inject: p.Kill, heal: p.Restart, does: "is gone", ends: "answers again"}
}

// Pause stops a process with SIGSTOP; the heal lets it go on. The kernel still
// accepts connections for it, so that its clients see silence and no refusal.
func Pause(p Process) faults.Fault {
	return &fault{name: "pause", p: p, inject: p.Pause, heal: p.Resume, does: "stands still", ends: "goes on"}
}

// RestartEmpty kills a process, removes its data, and starts it again at once.
// It has no duration.
func RestartEmpty(p Process) faults.Fault {
	return &fault{name: "restart-empty", p: p, does: "was killed, lost its data and answers again", inject: func(ctx context.Context) error {
		if err := p.Kill(ctx); err != nil {
			return err
		}
		if err := errors.Join(p.Wipe(ctx), p.Restart(ctx)); err != nil {
			return fmt.Errorf("after the kill: %w", err)
		}
		return nil
	}}
}

// Restart kills a process and starts it again at once. It has no duration.
func Restart(p Process) faults.Fault {
	return &fault{name: "restart", p: p, does: "was killed and answers again", inject: func(ctx context.Context) error {
		if err := p.Kill(ctx); err != nil {
			return err
		}
		if err := p.Restart(ctx); err != nil {
			return fmt.Errorf("after the kill: %w", err)
		}
		return nil
	}}
}
