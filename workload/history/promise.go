package history

import "time"

// The kinds of lock that a Declare names.
const (
	KindMutex     = "mutex"     // one holder
	KindRW        = "rw"        // one writer, or any number of readers
	KindSemaphore = "semaphore" // as many permits as its capacity
)

// A Promise is what a lock promises: its Declare with the defaults filled in.
type Promise struct {
	Kind      string // mutex, rw or semaphore; without a Declare as its modes tell
	Reentrant bool
	Fair      bool
	Capacity  int           // permits of a semaphore; 0 if it was not declared
	Drift     time.Duration // clock error allowed per lease
	Fenced    bool          // a token was seen, unless declared otherwise
}

// Promises are the promises of every lock that the history names.
func (h *History) Promises() map[string]Promise {
	promises := map[string]Promise{}
	fenced := map[string]bool{}
	for i := range h.Events {
		e := &h.Events[i]
		if e.Lock == "" {
			continue
		}
		p, seen := promises[e.Lock]
		if e.Op == Declare {
			p = Promise{Kind: e.Kind, Reentrant: e.Reentrant, Fair: e.Fair, Capacity: e.Capacity, Drift: e.Drift}
			if e.Fenced != nil {
				p.Fenced = *e.Fenced
				fenced[e.Lock] = true
			}
			promises[e.Lock] = p
			continue
		}
		before := p
		if p.Kind == "" {
			switch e.Mode {
			case Read, Write:
				p.Kind = KindRW
			case Permit:
				p.Kind = KindSemaphore
			default:
			}
		}
		if e.Op == Acquire && e.Token != 0 && !fenced[e.Lock] {
			p.Fenced = true
		}
		if !seen || p != before {
			promises[e.Lock] = p
		}
	}
	for name, p := range promises {
		if p.Kind == "" {
			p.Kind = KindMutex
			promises[name] = p
		}
	}
	return promises
}
