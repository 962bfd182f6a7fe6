package oracle

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/lockchaos/lockchaos/history"
)

// never is the end of a lease that has none, and of an operation that is open.
const never = time.Duration(math.MaxInt64)

// An operation is an invocation with its completion, or a single event.
type operation struct {
	// Event is the invocation, or the only event, with the token, the place in the queue and the value that the
	// completion told. Its owner has a name.
	history.Event

	kind     history.Type  // how it ended; info while it is open
	complete time.Duration // never while it is open
	ends     time.Duration // of the lease that its caller was promised; never without one
	recorded time.Duration // the expires of its completion; 0: absent
	// first and last are the lines of its events. That of an operation which is open at the end is behind all lines.
	first, last int
}

// operations pairs the events of a history, in order of their first lines.
func operations(h *history.History) (ops []operation) {
	open := make(map[int]int)
	for i, e := range h.Events {
		if !e.Op.OfHolder() && e.Op != history.Access && e.Op != history.Crash && (e.Op != history.Declare || e.From == 0) {
			continue // nothing that a client did, and no change of a capacity
		}
		if e.Type == history.Invoke || single(e.Op) {
			o := operation{Event: e, kind: history.Info, complete: never, ends: never, first: i, last: len(h.Events)}
			if o.Owner = e.LockOwner(); e.Lease > 0 {
				o.ends = e.Time + e.Lease
			}
			if single(e.Op) {
				o.kind, o.complete, o.last = e.Type, e.Time, i
			} else {
				open[e.Process] = len(ops)
			}
			ops = append(ops, o)
			continue
		}
		o := &ops[open[e.Process]]
		o.kind, o.complete, o.last, o.recorded = e.Type, e.Time, i, e.Expires
		o.Token, o.Queued, o.Value = max(o.Token, e.Token), e.Queued, cmp.Or(e.Value, o.Value)
		if e.Expires != 0 {
			o.ends = e.Expires
		}
	}
	return ops
}

func single(op history.Op) bool {
	return op == history.Lost || op == history.Crash || op == history.Declare
}

// event is the line of the operation's invocation, or of its completion.
func (o *operation) event(completion bool) history.Event {
	e := o.Event
	if o.unnamed() {
		e.Owner = ""
	}
	switch {
	case single(e.Op):
		e.Type = o.kind
	case completion && o.kind == history.OK:
		e.Type, e.Time, e.Expires = o.kind, o.complete, o.recorded
	default:
		if e.Token, e.Queued, e.Value, e.Type = 0, nil, "", history.Invoke; completion {
			e.Type, e.Time = o.kind, o.complete
		}
	}
	return e
}

// render writes the operations as a history, or returns nil if it is not one: see [history.History.Accept].
func render(specs []history.Event, ops []operation) *history.History {
	type end struct {
		time               time.Duration
		process, place, op int
		completion         bool
	}
	var ends []end
	for i, o := range ops {
		if ends = append(ends, end{o.Time, o.Process, o.first, i, false}); !single(o.Op) && o.complete != never {
			ends = append(ends, end{o.complete, o.Process, o.last, i, true})
		}
	}
	// Those of one process at one stamp are in order of their operations, of which the earlier ones were sent earlier.
	slices.SortStableFunc(ends, func(a, b end) int {
		if a.time == b.time && a.process == b.process {
			return cmp.Or(cmp.Compare(ops[a.op].Time, ops[b.op].Time), cmp.Compare(a.op, b.op))
		}
		return cmp.Or(cmp.Compare(a.time, b.time), cmp.Compare(a.place, b.place))
	})
	h := &history.History{Events: slices.Clone(specs)}
	retired := make(map[int]bool) // which the format asks of the recorder, and the reader does not see
	for _, end := range ends {
		e := ops[end.op].event(end.completion)
		if retired[e.Process] {
			return nil
		}
		retired[e.Process] = e.Type == history.Info
		h.Events = append(h.Events, e)
	}
	if h.Accept() != nil {
		return nil
	}
	return h
}

// processOwner is the owner of an operation that names none.
func processOwner(process int) string { return "p" + strconv.Itoa(process) }

// unnamed reports whether it is named after its process.
func (o *operation) unnamed() bool { return o.Owner == processOwner(o.Process) }

// gone is the first instant at which what a crash, or a notice of loss, says may have been so.
func (o *operation) gone() time.Duration { return cmp.Or(o.From, o.Time) }

// is reports whether it is of that op and ended in that way.
func (o *operation) is(op history.Op, kind history.Type) bool { return o.Op == op && o.kind == kind }

// granted reports whether it is an acquire that was granted, or may have been.
func (o *operation) granted() bool { return o.Op == history.Acquire && o.kind != history.Fail }

// confirmed reports whether it is a release or extend that was answered ok.
func (o *operation) confirmed() bool {
	return o.is(history.Release, history.OK) || o.is(history.Extend, history.OK)
}

// prolongs reports whether it is an extend, or an acquire that was not refused.
func (o *operation) prolongs() bool { return o.Op == history.Extend || o.granted() }

// declared is what each lock promises, in order of their first events; one that declares nothing is a mutex.
func declared(h *history.History) (specs []history.Event) {
	for _, e := range h.Events {
		if e.Lock == "" || slices.ContainsFunc(specs, func(s history.Event) bool { return s.Lock == e.Lock }) {
			continue
		}
		if e.Op != history.Declare {
			e = history.Event{Lock: e.Lock}
		}
		specs = append(specs, e)
	}
	return specs
}
