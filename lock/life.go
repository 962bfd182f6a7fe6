package lock

import (
	"context"
	"errors"
	"sync"
	"time"
)

// life is the time between the making of a client and its end, and the
// goroutines that belong to it.
type life struct {
	closing chan struct{} // closed at the end

	mu     sync.Mutex
	closed bool
	tasks  sync.WaitGroup
	calls  sync.WaitGroup // to acquire, which may be about to return a hold

	clock clock // of the holds, also of those that outlive it
}

func newLife() *life { return &life{closing: make(chan struct{})} }

// end closes closing and waits for all tasks, also if it was called before.
func (l *life) end() {
	l.close()
	l.tasks.Wait()
}

// close closes closing, after which there are no new tasks.
func (l *life) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		close(l.closing)
	}
}

// enter makes the caller's goroutine a task, until tasks.Done; false if it is too
// late.
func (l *life) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.tasks.Add(1)
	}
	return !l.closed
}

// call begins a call to acquire, until calls.Done; false if it is too late.
func (l *life) call() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.calls.Add(1)
	}
	return !l.closed
}

// spawn runs f in a goroutine that Close awaits; false if it is too late.
func (l *life) spawn(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.tasks.Go(f)
	}
	return !l.closed
}

// background runs f in a goroutine that Close awaits, unless Close was called before.
func (l *life) background(f func()) {
	if !l.spawn(f) {
		go f()
	}
}

// insist repeats f, with growing pauses, until a service has answered, and not that it can't
// do so at the moment, the context ends or the client is closed.
func (l *life) insist(ctx context.Context, f func() error) error {
	for pause := 10 * time.Millisecond; ; pause *= 2 {
		err := f()
		if err == nil || isRefusal(err) && !isPassing(err) || errors.Is(err, ErrNotHeld) {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		case <-l.closing:
			return err
		}
	}
}
