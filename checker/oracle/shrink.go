package oracle

import (
	"cmp"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/history"
)

// render writes the operations as a history, or returns nil if it is not one: see [history.History.Accept].
func render(specs []history.Event, ops []operation) *history.History {
	type stamped struct {
		*history.Event // of lines: what is sorted is small

		place, op int
	}
	lines, events := make([]history.Event, 0, 2*len(ops)), make([]stamped, 0, 2*len(ops))
	add := func(e history.Event, place, op int) {
		lines = append(lines, e)
		events = append(events, stamped{&lines[len(lines)-1], place, op})
	}
	for i, o := range ops {
		e := o.Event
		if e.Type, e.Token, e.Queued, e.Value = history.Invoke, 0, nil, ""; o.unnamed() {
			e.Owner = ""
		}
		if single(e.Op) {
			e.Type = o.kind
		}
		if !o.asksLease() {
			e.Lease = 0
		}
		add(e, o.first, i)
		if single(e.Op) || o.complete == never {
			continue
		}
		if e.Time, e.Type = o.complete, o.kind; o.kind == history.OK {
			if e.Value = o.Value; o.asksLease() {
				e.Expires = o.recorded
			}
			if o.Op == history.Acquire || o.Op == history.Access {
				e.Token = o.Token
			}
			if o.Op == history.Acquire {
				e.Queued = o.Queued
			}
		}
		add(e, o.last, i)
	}
	// Those of one process at one stamp are in order of their operations, of
	// which the earlier ones were sent earlier.
	slices.SortStableFunc(events, func(a, b stamped) int {
		if a.Time == b.Time && a.Process == b.Process {
			return cmp.Or(cmp.Compare(ops[a.op].Time, ops[b.op].Time), cmp.Compare(a.op, b.op))
		}
		return cmp.Or(cmp.Compare(a.Time, b.Time), cmp.Compare(a.place, b.place))
	})
	h := &history.History{Events: append(make([]history.Event, 0, len(specs)+len(events)), specs...)}
	retired := make(map[int]bool) // which the format asks of the recorder, and the reader does not see
	for _, e := range events {
		if retired[e.Process] {
			return nil
		}
		retired[e.Process] = e.Type == history.Info
		h.Events = append(h.Events, *e.Event)
	}
	if h.Accept() != nil {
		return nil
	}
	return h
}

// Shrink makes a history smaller for as long as it still is what is asked for: it leaves out one operation or two, and
// then makes those that are left simpler.
func Shrink(h *history.History, still func(*history.History) bool) *history.History {
	var specs []history.Event
	byLock := declared(h)
	for _, name := range slices.Sorted(maps.Keys(byLock)) {
		if byLock[name].Op == history.Declare {
			specs = append(specs, byLock[name])
		}
	}
	ops, progress := operations(h), true
	try := func(less []operation) {
		if smaller := render(specs, less); smaller != nil && still(smaller) {
			h, ops, progress = smaller, less, true
		}
	}
	for progress {
		progress = false
		for i := len(ops) - 1; i >= 0; i-- { //nolint:modernize // ops shrinks meanwhile
			for j := i; j >= 0 && i < len(ops); j-- {
				try(slices.DeleteFunc(slices.Clone(ops), func(o operation) bool { return o.first == ops[i].first || o.first == ops[j].first }))
			}
		}
		for i := range ops {
			for _, simplify := range []func(*operation){
				func(o *operation) { o.Token, o.Queued, o.recorded, o.Permits = 0, nil, 0, 0 },
				func(o *operation) { o.Lease = max(o.Lease-unit, min(o.Lease, unit)) },
				func(o *operation) { o.complete = min(o.complete, max(o.Time+unit, o.complete-unit)) },
			} {
				less := slices.Clone(ops)
				if simplify(&less[i]); !reflect.DeepEqual(less[i], ops[i]) {
					try(less)
				}
			}
		}
	}
	return h
}

// Lines is a history as its file.
func Lines(h *history.History) string {
	var b strings.Builder
	out := json.NewEncoder(&b)
	for i := range h.Events {
		if err := out.Encode(&h.Events[i]); err != nil {
			panic(err)
		}
	}
	return b.String()
}

// unit is the step between stamps: leases are at least a millisecond, and the steps are
// so coarse that many stamps are equal.
const unit = 10 * time.Millisecond
