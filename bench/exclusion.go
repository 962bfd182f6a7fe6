package bench

import (
	"sync"
	"time"
)

// noWorker is the number of no worker.
const noWorker = -1

// An exclusion watches who is inside of one lock, in memory.
type exclusion struct {
	mu       sync.Mutex
	holder   int
	before   int           // the last one that released
	released time.Time     // when it called release
	entered  chan struct{} // closed once a worker is granted it; nil: no worker asks
}

func newExclusion() *exclusion {
	return &exclusion{holder: noWorker, before: noWorker}
}

// A passage is what was seen when a worker was granted a lock.
type passage struct {
	violated bool
	// handed says that another worker held it before, and passed that it had
	// been released when this worker was waiting already. Since then it took
	// that long.
	handed, passed bool
	took           time.Duration
}

// enter notes that a worker was granted the lock for which it asked at begin.
func (e *exclusion) enter(worker int, begin, now time.Time) passage {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := passage{violated: e.holder != noWorker, handed: e.before != noWorker && e.before != worker}
	if p.handed && begin.Before(e.released) {
		p.passed, p.took = true, now.Sub(e.released)
	}
	e.holder = worker
	e.tell()
	return p
}

// leave notes that a worker is about to release the lock.
func (e *exclusion) leave(worker int, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.holder == worker {
		e.holder = noWorker
	}
	e.before, e.released = worker, now
}

// next is closed once the next one was granted the lock that was left. That may be
// long over, and the lock be left again, when who left it comes to look.
func (e *exclusion) next() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tell() // who left it beside us, for it was granted twice
	e.entered = make(chan struct{})
	return e.entered
}

func (e *exclusion) tell() {
	if e.entered != nil {
		close(e.entered)
		e.entered = nil
	}
}
