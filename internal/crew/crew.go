// Package crew runs functions side by side without letting a panic of one of
// them end the program at once.
package crew

import (
	"fmt"
	"runtime/debug"
	"sync"
)

// A Crew is several functions that run side by side. The zero value is ready for
// use.
type Crew struct {
	// Failed, if not nil, is called at the first panic: to end what would wait for
	// that function.
	Failed func()

	running sync.WaitGroup

	mu    sync.Mutex
	first *Panic
}

// A Panic is the panic of one function of a [Crew], as [Crew.Wait] passes it on.
type Panic struct {
	Value any
	Stack []byte // where it happened
}

// String has the value and the place.
func (p *Panic) String() string { return fmt.Sprintf("%v\n\n%s", p.Value, p.Stack) }

// Go runs f in a goroutine of its own.
func (c *Crew) Go(f func()) {
	c.running.Go(func() {
		defer func() {
			v := recover()
			if v == nil {
				return
			}
			p, passed := v.(*Panic)
			if !passed {
				p = &Panic{v, debug.Stack()}
			}
			c.note(p)
		}()
		f()
	})
}

func (c *Crew) note(p *Panic) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.first != nil {
		return
	}
	c.first = p
	if c.Failed != nil {
		c.Failed()
	}
}

// Wait waits until all functions have returned. If one of them panicked, Wait
// panics with the first such [Panic].
func (c *Crew) Wait() {
	c.running.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.first != nil {
		panic(c.first)
	}
}
