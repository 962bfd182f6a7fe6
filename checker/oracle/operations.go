package oracle

import (
	"cmp"
	"math"
	"strconv"
	"time"

	"github.com/lockchaos/lockchaos/history"
)

// never is the end of a lease that has none, and of an operation that is open.
const never = time.Duration(math.MaxInt64)

// An operation is an invocation with its completion, or a single event.
type operation struct {
	// Event is the invocation, or the only event, with the token, the place in the queue and
	// the value that the completion told. Its owner has a name.
	history.Event

	kind     history.Type  // how it ended; info while it is open
	complete time.Duration // never while it is open
	ends     time.Duration // of the lease that its caller was promised; never without one
	recorded time.Duration // the expires of its completion; 0: absent
	// first and last are the lines of its events. That of an operation which is open at the
	// end is behind all lines.
	first, last int
}

// operations pairs the events of a history, in order of their first lines.
func operations(h *history.History) []operation {
	var ops []operation
	open := make(map[int]int)
	for i, e := range h.Events {
		switch e.Op {
		case history.Inject, history.Heal, history.Observe:
			continue
		case history.Declare: // a change of the capacity is no operation of a client, and what was declared first is none
			if e.From == 0 {
				continue
			}
		default:
		}
		at, completes := open[e.Process]
		if !completes || e.Type == history.Invoke || single(e.Op) {
			o := operation{Event: e, kind: history.Info, complete: never, ends: never, first: i, last: len(h.Events)}
			if o.Owner == "" {
				o.Owner = processOwner(o.Process)
			}
			if o.Lease > 0 {
				o.ends = o.Time + o.Lease
			}
			if single(e.Op) {
				o.kind, o.complete, o.last = e.Type, e.Time, i
			} else {
				open[e.Process] = len(ops)
			}
			ops = append(ops, o)
			continue
		}
		delete(open, e.Process)
		o := &ops[at]
		o.kind, o.complete, o.last, o.recorded = e.Type, e.Time, i, e.Expires
		o.Token, o.Queued = max(o.Token, e.Token), e.Queued
		if e.Value != "" {
			o.Value = e.Value
		}
		if e.Expires != 0 {
			o.ends = e.Expires
		}
	}
	return ops
}

func single(op history.Op) bool {
	return op == history.Lost || op == history.Crash || op == history.Declare
}

// gone is the first instant at which what a crash, or a notice of loss, says may have been so.
func (o *operation) gone() time.Duration { return cmp.Or(o.From, o.Time) }

// processOwner is the owner of an operation that names none.
func processOwner(process int) string { return "p" + strconv.Itoa(process) }

// unnamed reports whether it is named after its process.
func (o *operation) unnamed() bool { return o.Owner == processOwner(o.Process) }

// granted reports whether it is an acquire that was granted, or may have been.
func (o *operation) granted() bool { return o.Op == history.Acquire && o.kind != history.Fail }

// is reports whether it is of that op and ended in that way.
func (o *operation) is(op history.Op, kind history.Type) bool { return o.Op == op && o.kind == kind }

// declared is what each lock promises; one that declares nothing is a mutex.
func declared(h *history.History) map[string]history.Event {
	promises := make(map[string]history.Event)
	for _, e := range h.Events {
		if _, known := promises[e.Lock]; e.Lock != "" && !known {
			promises[e.Lock] = e
			if e.Op != history.Declare {
				promises[e.Lock] = history.Event{Lock: e.Lock}
			}
		}
	}
	return promises
}
