package history

import (
	"fmt"
	"io"
	"math"
	"time"
)

// Never is the time of what no event of the history brings about, such as the
// end of a hold that nothing ends.
const Never time.Duration = math.MaxInt64

// A History is everything that was recorded of a run, in order: Events[i] has
// Index i.
type History struct {
	Events []Event
	// Truncated is the line number of a last line that was cut short and
	// dropped; 0 if there was none.
	Truncated int
}

// An Owner is one of a lock.
type Owner struct{ Lock, Name string }

// Accept says what a [Reader] would refuse of the events, and fills in what it would: for what makes
// events otherwise. The error is of the first event that is wrong, of which it does not tell the place.
func (h *History) Accept() error {
	all := newSequence()
	for i := range h.Events {
		if err := h.Events[i].Validate(); err != nil {
			return err
		}
		if err := all.accept(&h.Events[i]); err != nil {
			return err
		}
	}
	return nil
}

// ReadAll reads a whole history. Its errors name the line; what comes before it is in the history.
func ReadAll(r io.Reader) (*History, error) {
	h, reader := &History{}, NewReader(r)
	for events, err := range reader.Events() {
		if err != nil {
			return h, err
		}
		h.Events = append(h.Events, events...)
	}
	h.Truncated = reader.Truncated()
	return h, nil
}

// End is the time of the last event; 0 for an empty history.
func (h *History) End() time.Duration {
	if len(h.Events) == 0 {
		return 0
	}
	return h.Events[len(h.Events)-1].Time
}

// An Operation is an invocation with its completion, which point into the
// history. One that was still open at the end of the history has the
// completion Info with Index -1 and the history's end as its time.
type Operation struct {
	Invoke, Complete *Event

	at int // its place among the operations of its history
}

// OK reports whether the operation happened for certain.
func (o *Operation) OK() bool { return o.Complete.Type == OK }

// Failed reports whether the operation did not happen for certain.
func (o *Operation) Failed() bool { return o.Complete.Type == Fail }

// Unknown reports whether the operation may have happened.
func (o *Operation) Unknown() bool { return o.Complete.Type == Info }

// Ordinal is its place among the operations of its history, from 0.
func (o *Operation) Ordinal() int { return o.at }

// Expires is the end of the belief that a completed acquire or extend gives:
// the recorded expiry if it was answered ok, else invoke plus lease, else 0 for no end.
func (o *Operation) Expires() time.Duration {
	switch {
	case o.OK() && o.Complete.Expires > 0:
		return o.Complete.Expires
	case o.Invoke.Lease > 0 && o.Invoke.Lease <= Never-o.Invoke.Time:
		return o.Invoke.Time + o.Invoke.Lease
	default:
		return 0
	}
}

// String is a short form for messages: "p3 acquire orders ok #12-#15".
func (o *Operation) String() string {
	return fmt.Sprintf("p%d %s %s %s #%d-#%d", o.Invoke.Process, o.Invoke.Op, o.Invoke.Lock,
		o.Complete.Type, o.Invoke.Index, o.Complete.Index)
}

// Operations pairs the invocations of clients with their completions, in order
// of invocation. Single events, faults and observations are left out. The
// invocation of one on a lock has its owner, also where the event names none.
func (h *History) Operations() []Operation {
	var ops []Operation
	open := map[int]int{} // by process
	for i := range h.Events {
		e := &h.Events[i]
		switch at, is := open[e.Process]; {
		case e.Process < 0 || e.Op.single():
		case e.Type == Invoke:
			if e.Owner == "" && e.Op.OfHolder() {
				named := *e
				named.Owner = e.LockOwner()
				e = &named
			}
			open[e.Process] = len(ops)
			ops = append(ops, Operation{Invoke: e, at: len(ops)})
		case is:
			ops[at].Complete = e
			delete(open, e.Process)
		}
	}
	for i := range ops {
		if ops[i].Complete == nil {
			e := *ops[i].Invoke
			e.Index, e.Type, e.Time, e.Error = -1, Info, h.End(), "still open at the end of the history"
			ops[i].Complete = &e
		}
	}
	return ops
}

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
	Capacity  int // permits of a semaphore, the most that it had; 0 if it was not declared
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
