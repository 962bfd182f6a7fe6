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
		history.Event

		place, op int
	}
	var events []stamped
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
		events = append(events, stamped{e, o.first, i})
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
		events = append(events, stamped{e, o.last, i})
	}
	// Those of one process at one stamp are in order of their operations, of
	// which the earlier ones were sent earlier.
	slices.SortStableFunc(events, func(a, b stamped) int {
		if a.Time == b.Time && a.Process == b.Process {
			return cmp.Or(cmp.Compare(ops[a.op].Time, ops[b.op].Time), cmp.Compare(a.op, b.op))
		}
		return cmp.Or(cmp.Compare(a.Time, b.Time), cmp.Compare(a.place, b.place))
	})
	h := &history.History{Events: slices.Clone(specs)}
	retired := make(map[int]bool) // which the format asks of the recorder, and the reader does not see
	for _, e := range events {
		if retired[e.Process] {
			return nil
		}
		retired[e.Process] = e.Type == history.Info
		h.Events = append(h.Events, e.Event)
	}
	if h.Accept() != nil {
		return nil
	}
	return h
}

// Shrink makes a history smaller for as long as it still is what is asked for:
// it leaves out operations and fields and makes numbers less.
func Shrink(h *history.History, still func(*history.History) bool) *history.History {
	var specs []history.Event
	byLock := declared(h)
	for _, name := range slices.Sorted(maps.Keys(byLock)) {
		if byLock[name].Op == history.Declare {
			specs = append(specs, byLock[name])
		}
	}
	ops := operations(h)
	progress := true
	try := func(lessSpecs []history.Event, less []operation) bool {
		smaller := render(lessSpecs, less)
		if smaller == nil || !still(smaller) {
			return false
		}
		h, specs, ops, progress = smaller, lessSpecs, less, true
		return true
	}
	for progress {
		progress = false
		for i := len(specs) - 1; i >= 0; i-- {
			s := &specs[i]
			if s.Kind == history.KindMutex && !s.Reentrant && !s.Fair && s.Drift == 0 && s.Fenced == nil { // else it is needed
				try(slices.Delete(slices.Clone(specs), i, i+1), ops)
				continue
			}
			for _, simpler := range []history.Event{
				with(*s, func(e *history.Event) { e.Drift = 0 }), with(*s, func(e *history.Event) { e.Fair = false }),
				with(*s, func(e *history.Event) { e.Reentrant = false }), with(*s, func(e *history.Event) { e.Fenced = nil }),
				with(*s, func(e *history.Event) { e.Capacity = min(e.Capacity, max(1, e.Capacity-1)) }),
			} {
				if less := slices.Clone(specs); !reflect.DeepEqual(simpler, *s) {
					less[i] = simpler
					try(less, ops)
				}
			}
		}
		for i := len(ops) - 1; i >= 0; i-- {
			without := slices.Delete(slices.Clone(ops), i, i+1)
			if try(specs, without) {
				continue
			}
			for j := range i {
				if try(specs, slices.Delete(slices.Clone(without), j, j+1)) {
					i--
					break
				}
			}
		}
		for i := range ops {
			for _, simplify := range simplifications() {
				less := slices.Clone(ops)
				if simplify(&less[i]); !reflect.DeepEqual(less[i], ops[i]) {
					try(specs, less)
				}
			}
			for _, step := range []time.Duration{16 * unit, 4 * unit, unit} {
				if less := sooner(ops, ops[i].Time, step); !reflect.DeepEqual(less, ops) {
					try(specs, less)
				}
			}
		}
	}
	return h
}

func with[T any](v T, change func(*T)) T {
	change(&v)
	return v
}

// sooner are the operations with all stamps from one on sooner.
func sooner(ops []operation, from, step time.Duration) []operation {
	less := slices.Clone(ops)
	for i := range less {
		for _, stamp := range []*time.Duration{&less[i].Time, &less[i].complete, &less[i].recorded} {
			if *stamp >= from && *stamp != never && *stamp != 0 {
				*stamp -= step
			}
		}
	}
	return less
}

// simplifications make one operation simpler; none undoes another.
func simplifications() []func(*operation) {
	less := func(d *time.Duration) {
		if *d > unit && *d != never {
			*d -= unit
		}
	}
	return []func(*operation){
		func(o *operation) { o.Token = 0 },
		func(o *operation) { o.Queued = nil },
		func(o *operation) { o.recorded = 0 },
		func(o *operation) { o.Lease = 0 },
		func(o *operation) { o.Permits = 0 },
		func(o *operation) { less(&o.Lease) },
		func(o *operation) { less(&o.recorded) },
		func(o *operation) {
			if o.kind == history.OK {
				o.complete = min(o.complete, max(o.Time+unit, o.complete-unit))
			}
		},
		func(o *operation) {
			if o.kind == history.Info && o.Op != history.Crash {
				o.complete = never
			}
		},
		func(o *operation) {
			if o.Process >= 10 && !o.unnamed() {
				o.Process %= 10
			}
		},
	}
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
