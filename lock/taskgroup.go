package lock

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lockchaos/lockchaos/lock/internal/transport"
)

// A taskGroup has the goroutines and the holds of a client, between its making and its end.
type taskGroup struct {
	closing chan struct{} // closed at the end

	mu     sync.Mutex
	closed bool
	tasks  sync.WaitGroup
	calls  sync.WaitGroup     // to acquire, which may be about to return a hold
	holds  map[*Hold]struct{} // whose leases aren't over, also those that outlive it
}

func newTaskGroup() *taskGroup {
	return &taskGroup{closing: make(chan struct{}), holds: map[*Hold]struct{}{}}
}

// closeLimit is how long the end waits for tasks: as long as two timeouts of go-redis, and well
// below the 30s in which Kubernetes ends a process.
const closeLimit = 10 * time.Second

// end closes closing and waits for all tasks, also if it was called before, for no longer than
// closeLimit.
func (l *taskGroup) end() {
	l.close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.tasks.Wait()
	}()
	limit := time.NewTimer(closeLimit)
	defer limit.Stop()
	select {
	case <-ended:
	case <-limit.C:
	}
}

// close closes closing, after which there are no new tasks.
func (l *taskGroup) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		close(l.closing)
	}
}

// begin adds one to a group of goroutines, until Done; false if it is too late.
func (l *taskGroup) begin(group *sync.WaitGroup) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		group.Add(1)
	}
	return !l.closed
}

// enter makes the caller's goroutine a task, until tasks.Done; false if it is too late.
func (l *taskGroup) enter() bool { return l.begin(&l.tasks) }

// call begins a call to acquire, until calls.Done; false if it is too late.
func (l *taskGroup) call() bool { return l.begin(&l.calls) }

// spawn runs f in a goroutine that Close awaits; false if it is too late.
func (l *taskGroup) spawn(f func()) bool {
	if !l.enter() {
		return false
	}
	go func() {
		defer l.tasks.Done()
		f()
	}()
	return true
}

// background runs f in a goroutine that Close awaits, unless Close was called before.
func (l *taskGroup) background(f func()) {
	if !l.spawn(f) {
		go f()
	}
}

// keep notes a hold, and forget notes it no more.
func (l *taskGroup) keep(h *Hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holds[h] = struct{}{}
}

func (l *taskGroup) forget(h *Hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.holds, h)
}

// held are the holds whose leases aren't over.
func (l *taskGroup) held() []*Hold {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.holds))
}

// retryUntilAnswered repeats f, with growing pauses, until a service has answered, and not that it can't
// do so at the moment, the context ends or the client is closed.
func (l *taskGroup) retryUntilAnswered(ctx context.Context, f func() error) error {
	for failures := 0; ; failures++ {
		err := f()
		if err == nil || transport.IsRefusal(err) && !transport.IsPassing(err) || errors.Is(err, ErrNotHeld) || !l.pause(ctx, failures, Forever) {
			return err
		}
	}
}

// pauseAfter is the pause after that many failures in a row and one more.
func pauseAfter(failures int) time.Duration { return 10 * time.Millisecond << min(failures, 6) }

// pause waits after a try that failed, for no longer than left. It returns false if there
// is to be no other try.
func (l *taskGroup) pause(ctx context.Context, failures int, left time.Duration) bool {
	pause := min(pauseAfter(failures), left)
	return pause > 0 && transport.Sleep(ctx, pause, l.closing) == nil
}
