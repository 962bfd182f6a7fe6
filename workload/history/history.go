package history

import (
	"errors"
	"fmt"
	"io"
	"time"
)

// A History is everything that was recorded of a run, in order: Events[i] has
// Index i.
type History struct {
	Events []Event
	// Truncated is the line number of a last line that was cut short and
	// dropped; 0 if there was none.
	Truncated int
}

// ReadAll reads a whole history. Its errors name the line.
func ReadAll(r io.Reader) (*History, error) {
	h := &History{}
	rd := NewReader(r)
	for {
		e, err := rd.Read()
		if errors.Is(err, io.EOF) {
			h.Truncated = rd.Truncated()
			return h, nil
		}
		if err != nil {
			return nil, err
		}
		h.Events = append(h.Events, e)
	}
}

// End is the time of the last event; 0 for an empty history.
func (h *History) End() time.Duration {
	if len(h.Events) == 0 {
		return 0
	}
	return h.Events[len(h.Events)-1].Time
}

// An Operation is an invocation with its completion. One that was still open
// at the end of the history has the completion Info with Index -1 and the
// history's end as its time.
type Operation struct {
	Invoke, Complete Event
}

// OK reports whether the operation happened for certain.
func (o *Operation) OK() bool { return o.Complete.Type == OK }

// Failed reports whether the operation did not happen for certain.
func (o *Operation) Failed() bool { return o.Complete.Type == Fail }

// Unknown reports whether the operation may have happened.
func (o *Operation) Unknown() bool { return o.Complete.Type == Info }

// Expires is the end of the belief that a completed acquire or extend gives:
// the recorded expiry, else invoke plus lease, else 0 for no end.
func (o *Operation) Expires() time.Duration {
	switch {
	case o.Complete.Expires > 0:
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
	n := 0
	for i := range h.Events {
		if e := &h.Events[i]; e.Type == Invoke && e.Process >= 0 {
			n++
		}
	}
	ops := make([]Operation, 0, n)
	open := map[int]int{}
	for i := range h.Events {
		e := &h.Events[i]
		if e.Process < 0 || e.Op.single() {
			continue
		}
		if e.Type == Invoke {
			open[e.Process] = len(ops)
			ops = append(ops, Operation{Invoke: *e})
			if e.Op.onLock() {
				ops[len(ops)-1].Invoke.Owner = ownerOf(e)
			}
			continue
		}
		if at, ok := open[e.Process]; ok {
			ops[at].Complete = *e
			delete(open, e.Process)
		}
	}
	for _, at := range open {
		e := ops[at].Invoke
		e.Index, e.Type, e.Time, e.Error = -1, Info, h.End(), "still open at the end of the history"
		ops[at].Complete = e
	}
	return ops
}
