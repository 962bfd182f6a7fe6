package scenarios

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lockchaos/lockchaos/driver"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
)

const (
	// waitedOut is the longest lease that a script lets run out: one with more left
	// stands for a hold that lasts.
	waitedOut = 10 * time.Second
	// A request whose outcome was unknown so often, for so long, is not made again:
	// the lock answers, and does not recover from what the script did. A failover is
	// over by then.
	mostUnknowns, unknownFor = 20, 10 * time.Second
	// firesLate is how long after the last answer a message may still pass that a
	// fault waits for.
	firesLate = time.Second
)

// A differentError says that the lock answered otherwise than a script needs, and
// whether that answer was definite.
type differentError struct {
	error

	definite bool
}

// Unwrap returns what was answered.
func (e differentError) Unwrap() error { return e.error }

// cut records why the script ends early. Of the scenario's own lock nothing is shown
// then. Another lock may answer otherwise than a script needs: without the bug that a
// step shows it is spared, and else the script can't be asked of it.
func (p *scriptRun) cut(step ScriptStep, why error) {
	answer, different := errors.AsType[differentError](why)
	unsuited := different || errors.Is(why, driver.ErrRefused) || errors.Is(why, harness.ErrUnlearnt)
	switch {
	case !p.scenario.other || !unsuited:
		p.Abort(why)
	case answer.definite && step.Symptom:
		p.Spare(why)
	default:
		p.Unsuit(why)
	}
}

// unopened records that the lock of a driver could not be opened for its clients.
// Other errors are those of the harness.
func (p *scriptRun) unopened(err error) error {
	switch {
	case errors.Is(err, driver.ErrRefused):
		p.cut(ScriptStep{}, err)
	case errors.Is(err, driver.ErrNotStarted):
		p.Abort(err)
	default:
		return err
	}
	return nil
}

// hopeless says why it is no use to make a request again that did not end as the step
// needs it. The scenario's own lock is given the whole time.
func (p *scriptRun) hopeless(step ScriptStep, outcome history.Type, unknowns int, since time.Duration) error {
	switch {
	case !p.scenario.other:
		return nil
	case outcome == history.Info && unknowns >= mostUnknowns && since >= unknownFor:
		return differentError{fmt.Errorf("it was unknown %d times in %v, and should have been %s", unknowns, since.Round(time.Second), cmp.Or(step.Until, untilAnswered)), false}
	case outcome == history.Fail && step.Acquire != "" && step.Until == untilGranted:
		if by := p.beliefs.blocks(step, since); by != "" {
			return differentError{fmt.Errorf("it was refused, since %s, and should have been granted", by), true}
		}
	}
	return nil
}

// awaitFault waits for a fault that lies in wait. What another lock does not send by
// the time that all its clients have their answers, it will not send.
func (p *scriptRun) awaitFault(ctx context.Context, step ScriptStep) error {
	if p.scenario.other && len(p.background) > 0 {
		never := differentError{fmt.Errorf("its clients had their answers, and it sent nothing that %s waits for", step.Await), false}
		var cancel context.CancelCauseFunc
		ctx, cancel = context.WithCancelCause(ctx)
		defer cancel(nil)
		all := slices.Collect(maps.Values(p.background))
		go func() {
			for _, doing := range all {
				<-doing.over
			}
			select {
			case <-time.After(firesLate):
				cancel(never)
			case <-ctx.Done():
			}
		}()
	}
	return p.AwaitFault(ctx, step.Await, step.Target)
}

// beliefs are what clients have of locks, as far as they can know.
type beliefs struct {
	mu sync.Mutex
	of map[string]belief // by client
}

// A belief is what came of the latest request of a client for a lock.
type belief struct {
	lock    string
	outcome history.Type
	until   time.Time // the end of its lease; zero: it has none
	unsure  bool      // the outcome of its release is unknown
}

// note takes in the outcome of a request.
func (b *beliefs) note(step ScriptStep, outcome history.Type) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.of == nil {
		b.of = map[string]belief{}
	}
	now := b.of[step.Client]
	switch {
	case step.Acquire != "":
		now = belief{lock: step.Acquire, outcome: outcome}
	case step.Release != "":
		if now.unsure = outcome == history.Info; !now.unsure {
			now = belief{}
		}
		b.of[step.Client] = now
		return
	case step.Extend == "" || outcome != history.OK:
		return
	}
	now.until = time.Time{}
	if step.Lease > 0 {
		now.until = time.Now().Add(step.Lease)
	}
	b.of[step.Client] = now
}

// unsure reports whether a step gives back once more what its client gave back last, with an outcome that is unknown.
func (b *beliefs) unsure(step ScriptStep) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.of[step.Client]
	return now.unsure && step.Release == now.lock
}

// refused reports whether the latest request of the client was.
func (b *beliefs) refused(client string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.of[client].outcome == history.Fail
}

// others reports whether another client was granted the lock of that client, and has not
// released it.
func (b *beliefs) others(client string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for other, has := range b.of {
		if other != client && has.lock == b.of[client].lock && has.outcome == history.OK {
			return true
		}
	}
	return false
}

// blocks says which other client may have the lock that the step asks for, for longer
// than a script waits; empty if none. since is how long the client has asked already: a
// lease that a watchdog renews may end after that.
func (b *beliefs) blocks(step ScriptStep, since time.Duration) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	for client, has := range b.of {
		if client == step.Client || has.lock != step.Acquire || has.outcome == history.Fail ||
			!has.until.IsZero() && time.Until(has.until) < waitedOut || has.until.IsZero() && since < waitedOut {
			continue
		}
		if has.outcome == history.OK {
			return "client " + client + " was granted the lock and has not released it"
		}
		return "client " + client + " may have been granted the lock, by a request whose outcome is unknown"
	}
	return ""
}
