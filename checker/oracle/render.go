package oracle

import (
	"cmp"
	"slices"
	"time"

	"github.com/lockchaos/lockchaos/history"
)

// A stamped is an event with its place among those of the same stamp.
type stamped struct {
	event history.Event
	place int
	op    int
}

// render writes the operations as a history, or returns nil if it is not one: a
// process does two things at a time or goes on after an unknown outcome, or two
// events of one owner have the same stamp.
func render(specs []history.Event, ops []operation) *history.History {
	var events []stamped
	for i := range ops {
		o := &ops[i]
		if o.invoke < 0 || o.complete < o.invoke {
			return nil
		}
		e := history.Event{Time: o.invoke, Process: o.process, Op: o.op, Lock: o.lock, Owner: o.owner, Mode: o.mode, Permits: o.permits}
		if o.unnamed {
			e.Owner = ""
		}
		switch o.op {
		case history.Crash:
			e.Type, e.Owner, e.Lock, e.Mode, e.Permits = history.Info, "", "", "", 0
		case history.Lost:
			e.Type, e.Permits = history.OK, 0
		case history.Access:
			e.Type, e.Resource = history.Invoke, o.resource
		default:
			e.Type, e.Lease = history.Invoke, o.lease
		}
		if o.op == history.Release || o.op == history.Lost {
			e.Lease = 0
		}
		events = append(events, stamped{event: e, place: o.first, op: i})
		if e.Type != history.Invoke || o.complete == never {
			continue
		}
		e.Time, e.Type = o.complete, o.kind
		if o.kind == history.OK {
			if o.op == history.Acquire || o.op == history.Extend {
				e.Expires = o.expires
			}
			if o.op == history.Acquire {
				if o.queued >= 0 {
					e.Queued = new(o.queued)
				}
			}
			if o.op == history.Acquire || o.op == history.Access {
				e.Token = o.token
			}
			e.Value = o.value
		}
		events = append(events, stamped{event: e, place: o.last, op: i})
	}
	// Those of one process at one stamp are in order of their operations, of
	// which the earlier ones were sent earlier.
	slices.SortStableFunc(events, func(a, b stamped) int {
		if a.event.Time == b.event.Time && a.event.Process == b.event.Process {
			return cmp.Or(cmp.Compare(ops[a.op].invoke, ops[b.op].invoke), cmp.Compare(a.op, b.op))
		}
		return cmp.Or(cmp.Compare(a.event.Time, b.event.Time), cmp.Compare(a.place, b.place))
	})
	h := &history.History{}
	h.Events = append(h.Events, specs...)
	for _, e := range events {
		h.Events = append(h.Events, e.event)
	}
	if !legal(h) {
		return nil
	}
	for i := range h.Events {
		h.Events[i].Index = int64(i)
	}
	return h
}

// legal reports whether a history keeps the rules of the format that the
// generator and the shrinker could break.
func legal(h *history.History) bool {
	type key struct {
		lock, owner string
		at          time.Duration
	}
	const (
		idle = iota
		busy
		gone
	)
	state := make(map[int]int)
	seen := make(map[key]bool)
	var before time.Duration
	for i := range h.Events {
		e := &h.Events[i]
		if e.Op == history.Declare {
			continue
		}
		if e.Time < before {
			return false
		}
		before = e.Time
		is := state[e.Process]
		switch {
		case is == gone:
			return false
		case e.Op == history.Crash:
			state[e.Process] = gone
		case e.Op == history.Lost:
			if is != idle {
				return false
			}
		case e.Type == history.Invoke:
			if is != idle {
				return false
			}
			state[e.Process] = busy
		default:
			if is != busy {
				return false
			}
			state[e.Process] = idle
			if e.Type == history.Info {
				state[e.Process] = gone
			}
		}
		if e.Op == history.Crash || e.Op == history.Access {
			continue
		}
		k := key{lock: e.Lock, owner: e.LockOwner(), at: e.Time}
		if seen[k] {
			return false
		}
		seen[k] = true
	}
	return true
}
