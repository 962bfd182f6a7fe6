package lock

import "sync"

// life is the time between the making of a client and its end, and the
// goroutines that belong to it.
type life struct {
	closing chan struct{} // closed at the end

	mu     sync.Mutex
	closed bool
	tasks  sync.WaitGroup
}

func newLife() *life { return &life{closing: make(chan struct{})} }

// end closes closing and waits for all tasks, also if it was called before.
func (l *life) end() {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.closing)
	}
	l.mu.Unlock()
	l.tasks.Wait()
}

// spawn runs f in a goroutine that Close awaits; false if it is too late.
func (l *life) spawn(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.tasks.Go(f)
	return true
}
