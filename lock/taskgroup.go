package lock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockchaos/lockchaos/lock/internal/transport"
)

// A taskGroup has the goroutines that belong to a client, between its making and its end.
type taskGroup struct {
	closing chan struct{} // closed at the end

	mu     sync.Mutex
	closed bool
	tasks  sync.WaitGroup
	calls  sync.WaitGroup // to acquire, which may be about to return a hold

	workers sync.WaitGroup // the goroutines that run tasks
	idle    chan func()    // to one that waits for another task
	waiting atomic.Int32   // how many do

	expiry expiryTimer // of the holds, also of those that outlive it
}

// maxIdle is how many goroutines wait for another task. The stack of each has grown to what a
// request needs. A new one has its stack copied for that, which was a sixth of what a Redlock
// cost its client.
const maxIdle = 16

func newTaskGroup() *taskGroup {
	return &taskGroup{closing: make(chan struct{}), idle: make(chan func())}
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
		l.workers.Wait()
	}()
	limit := time.NewTimer(closeLimit)
	defer limit.Stop()
	select {
	case <-ended:
	case <-limit.C:
	}
}

// start runs a task, which is one of tasks until it ends, in a goroutine.
func (l *taskGroup) start(task func()) {
	select {
	case l.idle <- task:
	default:
		l.workers.Go(func() { l.work(task) })
	}
}

// work runs a task, and those that come after it.
func (l *taskGroup) work(task func()) {
	for {
		task()
		task = nil
		if l.waiting.Add(1) > maxIdle {
			l.waiting.Add(-1)
			return
		}
		select {
		case task = <-l.idle:
			l.waiting.Add(-1)
		case <-l.closing:
			return
		}
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

// enter makes the caller's goroutine a task, until tasks.Done; false if it is too
// late.
func (l *taskGroup) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.tasks.Add(1)
	}
	return !l.closed
}

// call begins a call to acquire, until calls.Done; false if it is too late.
func (l *taskGroup) call() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.calls.Add(1)
	}
	return !l.closed
}

// spawn runs f in a goroutine that Close awaits; false if it is too late.
func (l *taskGroup) spawn(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.tasks.Add(1)
		l.start(func() {
			defer l.tasks.Done()
			f()
		})
	}
	return !l.closed
}

// background runs f in a goroutine that Close awaits, unless Close was called before.
func (l *taskGroup) background(f func()) {
	if !l.spawn(f) {
		go f()
	}
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
