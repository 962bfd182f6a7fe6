package lock

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	// maxIdle is how many goroutines a client keeps that have nothing to do.
	maxIdle = 64
	// idleLimit is how long it keeps them, at most twice.
	idleLimit = 10 * time.Second
)

// life is the time between the making of a client and its end, and the
// goroutines that belong to it. One that has done its work is kept for a while
// for the next: the stack of a new one would have to grow anew.
type life struct {
	closing chan struct{} // closed at the end

	mu     sync.Mutex
	closed bool
	tasks  sync.WaitGroup
	calls  sync.WaitGroup // to acquire, which may be about to return a hold
	idle   []chan func()  // where those with nothing to do await work, the last one first
	least  int            // how many of them had nothing to do since the last look
	look   *time.Timer    // ends those; nil while there are none

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
	if l.closed {
		return
	}
	l.closed = true
	close(l.closing)
	l.dismiss(len(l.idle))
	if l.look != nil {
		l.look.Stop()
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
	if l.closed {
		return false
	}
	last := len(l.idle) - 1
	if last < 0 {
		l.tasks.Go(func() { l.work(f) })
		return true
	}
	l.idle[last] <- f // which has room for it
	l.idle[last] = nil
	l.idle = l.idle[:last]
	l.least = min(l.least, last)
	return true
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

// work runs f, and what comes after it.
func (l *life) work(f func()) {
	next := make(chan func(), 1)
	for f != nil {
		f()
		if !l.rest(next) {
			return
		}
		f = <-next
	}
}

// rest puts a goroutine among those with nothing to do, if it is to be kept.
func (l *life) rest(next chan func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || len(l.idle) == maxIdle {
		return false
	}
	l.idle = append(l.idle, next)
	if l.look == nil {
		l.least = 0
		l.look = time.AfterFunc(idleLimit, l.thin)
	}
	return true
}

// thin ends those that had nothing to do since it was last called.
func (l *life) thin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.dismiss(l.least)
	}
	l.least = len(l.idle)
	if l.least == 0 {
		l.look = nil
		return
	}
	l.look.Reset(idleLimit)
}

// dismiss ends that many of those with nothing to do, the coldest first.
func (l *life) dismiss(n int) {
	for _, next := range l.idle[:n] {
		close(next)
	}
	l.idle = append(l.idle[:0], l.idle[n:]...)
}
