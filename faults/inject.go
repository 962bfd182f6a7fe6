package faults

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockchaos/lockchaos/internal/await"
)

// errNone stands for no error where there ought to be one, to be told of.
var errNone = errors.New("no error")

// patience is how long a server may take to answer a fault's question. Its observer
// gives up much sooner, which a busy machine would take for a fault.
const patience = 5 * time.Second

// undoTimeout bounds how long an injection that failed may take to undo what
// it had begun.
const undoTimeout = 10 * time.Second

// undoing is the context for undoing what a failed injection had begun: it does
// not end with the run, but after ten seconds.
func undoing(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
}

// Once makes a heal that ends its fault at the first call that succeeds, and
// does nothing from then on.
func Once(heal Heal) Heal {
	var mu sync.Mutex
	done := false
	return func(ctx context.Context) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		if done {
			return "", nil
		}
		effect, err := heal(ctx)
		done = err == nil
		return effect, err
	}
}

// inject makes a fault happen: see [Fault.Inject].
type inject = func(ctx context.Context) (Injection, error)

// An act does something, and says what was observed of it.
type act = func(ctx context.Context) (effect string, err error)

// A change is a fault of one server or client. What its functions return as the effect goes on
// after the name of that.
type change struct {
	// begin makes it happen, and waits until its effect was observed.
	begin act
	// end ends it, even if it was only half begun. Nil: it has no duration.
	end act
	// through says that what was begun is seen through even if the run ends.
	through bool
}

// did does something that has one effect.
func did(effect string, do func(ctx context.Context) error) act {
	return func(ctx context.Context) (string, error) { return effect, do(ctx) }
}

// of is the change of what has a name.
func (c change) of(fault, name string) inject {
	wrong := func(err error) error { return fmt.Errorf("%s on %s: %w", fault, name, err) }
	return func(ctx context.Context) (Injection, error) {
		begins := ctx
		if c.through {
			through, cancel, err := await.Through(ctx)
			if err != nil {
				return Injection{}, wrong(err)
			}
			defer cancel()
			begins = through
		}
		effect, err := c.begin(begins)
		if err != nil && c.end != nil {
			undo, cancel := undoing(ctx)
			defer cancel()
			_, ended := c.end(undo)
			return Injection{}, errors.Join(wrong(err), ended)
		}
		if err != nil {
			return Injection{}, wrong(err)
		}
		injection := Injection{Effect: name + " " + effect}
		if c.end != nil {
			injection.Heal = Once(func(ctx context.Context) (string, error) {
				effect, err := c.end(ctx)
				if err != nil {
					return "", fmt.Errorf("end %w", wrong(err))
				}
				return name + " " + effect, nil
			})
		}
		return injection, nil
	}
}

// takeTurns begins and ends something, over and over, until it is stopped, and leaves it ended. The end of ctx does not stop
// it.
func takeTurns(ctx context.Context, begin func(ctx context.Context) (end func()), lasts, pause time.Duration) (stop func()) {
	return await.Behind(ctx, func(ctx context.Context) {
		for ; ctx.Err() == nil; _ = await.Pause(ctx, pause) {
			end := begin(ctx)
			_ = await.Pause(ctx, lasts)
			end()
		}
	})
}
