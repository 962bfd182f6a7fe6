package history

import "time"

// The kinds of lock that a Declare names.
const (
	KindMutex     = "mutex"     // one holder
	KindRW        = "rw"        // one writer, or any number of readers
	KindSemaphore = "semaphore" // as many permits as its capacity
)

// Guarantees are what a lock promises: its Declare with the defaults filled in.
type Guarantees struct {
	Kind      string // mutex, rw or semaphore; without a Declare as its modes tell
	Reentrant bool
	Fair      bool
	Capacity  int // permits of a semaphore; 0 if it was not declared, or changed
	// Capacities are those of a semaphore whose capacity changed, in order; else nil.
	Capacities []Capacity
	Drift      time.Duration // clock error allowed per lease
	Fenced     bool          // a token was seen, unless declared otherwise
}

// A Capacity is how many permits a semaphore has from an instant on, until the next one.
type Capacity struct {
	From    time.Duration // 0 of the first
	Permits int
}

// Guarantees are the guarantees of every lock that the history names.
func (h *History) Guarantees() map[string]Guarantees {
	type kept struct {
		Guarantees
		lock string
		told bool // whether it is fenced
	}
	var found []kept
	places := map[string]int32{}
	p := (*kept)(nil) // of the event before
	for i := range h.Events {
		e := &h.Events[i]
		if e.Lock == "" {
			continue
		}
		if p == nil || e.Lock != p.lock {
			at, known := places[e.Lock]
			if !known {
				at = int32(len(found)) //nolint:gosec // fewer than events, which fit into memory
				places[e.Lock] = at
				before := h.Before.Guarantees[e.Lock]
				found = append(found, kept{lock: e.Lock, Guarantees: Guarantees{Kind: before.Kind, Fenced: before.Fenced}})
			}
			p = &found[at]
		}
		if e.Op == Declare && e.From > 0 {
			if p.Capacities == nil {
				p.Capacities, p.Capacity = []Capacity{{Permits: p.Capacity}}, 0
			}
			p.Capacities = append(p.Capacities, Capacity{e.From, e.Capacity})
			continue
		}
		if e.Op == Declare {
			p.Guarantees = Guarantees{Kind: e.Kind, Reentrant: e.Reentrant, Fair: e.Fair, Capacity: e.Capacity, Drift: e.Drift, Fenced: h.Before.Guarantees[e.Lock].Fenced}
			if p.told = e.Fenced != nil; p.told {
				p.Fenced = *e.Fenced
			}
			continue
		}
		if p.Kind == "" {
			switch e.Mode {
			case Read, Write:
				p.Kind = KindRW
			case Permit:
				p.Kind = KindSemaphore
			default:
			}
		}
		if e.Op == Acquire && e.Token != 0 && !p.told {
			p.Fenced = true
		}
	}
	promises := make(map[string]Guarantees, len(found))
	for i := range found {
		p := &found[i]
		if p.Kind == "" {
			p.Kind = KindMutex
		}
		promises[p.lock] = p.Guarantees
	}
	return promises
}
