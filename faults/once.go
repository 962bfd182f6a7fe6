package faults

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockchaos/lockchaos/internal/await"
)

// ErrNone stands for no error where there ought to be one, to be told of.
var ErrNone = errors.New("no error")

// Patience is how long a server may take to answer a fault's question. Its observer
// gives up much sooner, which a busy machine would take for a fault.
const Patience = 5 * time.Second

// undoTimeout bounds how long an injection that failed may take to undo what
// it had begun.
const undoTimeout = 10 * time.Second

// Undo is the context for undoing what a failed injection had begun: it does
// not end with the run, but after ten seconds.
func Undo(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
}

// Through is the context for what must be seen through once it has begun, even if
// the run is called off: half of it would be left behind, or come later. It fails
// if the run has ended already. It ends when the injection ought to have shown its
// effect, that is at the deadline of ctx, but not before ten seconds have passed.
func Through(ctx context.Context) (through context.Context, cancel context.CancelFunc, err error) {
	return await.Through(ctx)
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
