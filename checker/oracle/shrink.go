package oracle

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/history"
)

// Shrink makes a history smaller for as long as it still is what is asked for:
// it leaves out operations and fields and makes numbers less.
func Shrink(h *history.History, still func(*history.History) bool) *history.History {
	byLock := declared(h)
	var specs []history.Event
	for _, name := range slices.Sorted(maps.Keys(byLock)) {
		if spec := byLock[name]; spec.Op == history.Declare {
			specs = append(specs, spec)
		}
	}
	ops := operations(h)
	try := func(specs []history.Event, ops []operation) bool {
		smaller := render(specs, ops)
		if smaller == nil || !still(smaller) {
			return false
		}
		h = smaller
		return true
	}
	for progress := true; progress; {
		progress = false
		for i := len(specs) - 1; i >= 0; i-- {
			if s := &specs[i]; s.Kind != "" || s.Reentrant || s.Fair || s.Drift != 0 {
				continue // without it the lock is a mutex
			}
			if less := slices.Delete(slices.Clone(specs), i, i+1); try(less, ops) {
				specs, progress = less, true
			}
		}
		for i := len(ops) - 1; i >= 0; i-- {
			if less := slices.Delete(slices.Clone(ops), i, i+1); try(specs, less) {
				ops, progress = less, true
				continue
			}
			for j := range i {
				less := slices.Delete(slices.Clone(ops), i, i+1)
				if less = slices.Delete(less, j, j+1); try(specs, less) {
					ops, progress = less, true
					break
				}
			}
			i = min(i, len(ops))
		}
		for i := range specs {
			for _, simpler := range []func(*history.Event){
				func(e *history.Event) { e.Drift = 0 },
				func(e *history.Event) { e.Fair = false },
				func(e *history.Event) { e.Reentrant = false },
				func(e *history.Event) { e.Capacity = min(e.Capacity, 1) },
				func(e *history.Event) { e.Capacity = min(e.Capacity, 2) },
			} {
				less := slices.Clone(specs)
				simpler(&less[i])
				if less[i].Drift != specs[i].Drift || less[i].Fair != specs[i].Fair || less[i].Reentrant != specs[i].Reentrant ||
					less[i].Capacity != specs[i].Capacity {
					if try(less, ops) {
						specs, progress = less, true
					}
				}
			}
		}
		for i := range ops {
			for _, simpler := range simplifications() {
				less := slices.Clone(ops)
				simpler(&less[i])
				if less[i] != ops[i] && try(specs, less) {
					ops, progress = less, true
				}
			}
		}
		// Earlier, all of it from some stamp on.
		for _, step := range []time.Duration{16 * unit, 4 * unit, unit} {
			for i := range ops {
				less := slices.Clone(ops)
				from := ops[i].invoke
				for j := range less {
					o := &less[j]
					if o.invoke >= from {
						o.invoke -= step
					}
					if o.complete >= from && o.complete != never {
						o.complete -= step
					}
					if o.expires >= from && o.expires != 0 {
						o.expires -= step
					}
				}
				if try(specs, less) {
					ops, progress = less, true
				}
			}
		}
	}
	return h
}

// simplifications make one operation simpler; none undoes another.
func simplifications() []func(*operation) {
	return []func(*operation){
		func(o *operation) { o.token = 0 },
		func(o *operation) { o.queued = -1 },
		func(o *operation) { o.expires = 0 },
		func(o *operation) { o.lease = 0 },
		func(o *operation) { o.permits = 0 },
		func(o *operation) {
			if o.kind == history.OK {
				o.complete = min(o.complete, max(o.invoke+unit, o.complete-unit))
			}
		},
		func(o *operation) {
			if o.lease > unit {
				o.lease -= unit
			}
		},
		func(o *operation) {
			if o.expires > unit {
				o.expires -= unit
			}
		},
		func(o *operation) {
			if o.kind == history.Info && o.op != history.Crash {
				o.complete = never
			}
		},
		func(o *operation) {
			if o.process >= 10 {
				o.process %= 10
			}
		},
	}
}

// Lines is a history as its file.
func Lines(h *history.History) string {
	var b strings.Builder
	for i := range h.Events {
		line, err := json.Marshal(&h.Events[i])
		if err != nil {
			panic(err)
		}
		b.Write(line)
		b.WriteByte('\n')
	}
	return b.String()
}
