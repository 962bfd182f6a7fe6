package oracle

import (
	"math"
	"strconv"
	"time"

	"github.com/lockchaos/lockchaos/history"
)

// never is the end of a lease that has none.
const never = time.Duration(math.MaxInt64)

// An operation is an invocation with its completion, or a single event.
type operation struct {
	op   history.Op
	kind history.Type // how it ended; info while it is open
	// optional says that it may not have taken effect although it was answered.
	optional bool
	process  int
	lock     string
	owner    string
	unnamed  bool // it names no owner
	mode     history.Mode
	permits  int // 0: not named
	lease    time.Duration
	expires  time.Duration // as recorded; 0: absent
	token    int64
	queued   int64

	resource, value string

	invoke, complete time.Duration
	// first and last are the lines of its events. That of an operation which is
	// open at the end is behind all lines.
	first, last int
}

// operations pairs the events of a history, in order of their first lines.
func operations(h *history.History) []operation {
	ops := make([]operation, 0, len(h.Events))
	open := make(map[int]int)
	for i := range h.Events {
		e := &h.Events[i]
		switch e.Op {
		case history.Inject, history.Heal, history.Observe, history.Declare:
			continue
		default:
		}
		single := e.Op == history.Lost || e.Op == history.Crash
		at, known := open[e.Process]
		if e.Type == history.Invoke || single || !known {
			op := operation{
				op: e.Op, kind: history.Info, process: e.Process, lock: e.Lock, owner: e.Owner,
				mode: e.Mode, permits: e.Permits, lease: e.Lease, expires: 0, token: e.Token, queued: -1,
				resource: e.Resource, value: e.Value, invoke: e.Time, complete: never, first: i, last: len(h.Events),
			}
			if op.owner == "" {
				op.owner, op.unnamed = processOwner(e.Process), true
			}
			if single {
				op.kind, op.complete, op.last = e.Type, e.Time, i
			} else {
				open[e.Process] = len(ops)
			}
			ops = append(ops, op)
			continue
		}
		delete(open, e.Process)
		op := &ops[at]
		op.kind, op.complete, op.last = e.Type, e.Time, i
		op.expires, op.token = e.Expires, e.Token
		if e.Queued != nil {
			op.queued = *e.Queued
		}
		if op.lease == 0 {
			op.lease = e.Lease
		}
		if e.Value != "" {
			op.value = e.Value
		}
	}
	return ops
}

// processOwner is the owner of an operation that names none.
func processOwner(process int) string { return "p" + strconv.Itoa(process) }

// promised is the end of what the operation promised its caller: its expires,
// or what its lease comes to. The outcome of an info has no expires.
func (o *operation) promised() time.Duration {
	switch {
	case o.expires != 0 && o.kind == history.OK:
		return o.expires
	case o.lease != 0:
		return o.invoke + o.lease
	default:
		return never
	}
}

// declared is what each lock promises; one that declares nothing is a mutex.
func declared(h *history.History) map[string]history.Event {
	promises := make(map[string]history.Event)
	for i := range h.Events {
		e := &h.Events[i]
		if e.Op == history.Declare {
			promises[e.Lock] = *e
		} else if e.Lock != "" {
			if _, known := promises[e.Lock]; !known {
				promises[e.Lock] = history.Event{Lock: e.Lock}
			}
		}
	}
	return promises
}

// of are the operations of one lock, with the crashes, which are of all locks.
func of(ops []operation, lock string) []operation {
	var mine []operation
	for i := range ops {
		if ops[i].op == history.Crash || ops[i].lock == lock && ops[i].op != history.Access {
			mine = append(mine, ops[i])
		}
	}
	return mine
}

// without are the operations that some owners had no part in.
func without(ops []operation, owners map[string]string) []operation {
	var others []operation
	for i := range ops {
		if _, is := owners[ops[i].owner]; !is || ops[i].op == history.Crash {
			others = append(others, ops[i])
		}
	}
	return others
}
