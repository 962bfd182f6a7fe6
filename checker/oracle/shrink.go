package oracle

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"github.com/lockchaos/lockchaos/history"
)

// Shrink makes a history smaller for as long as it still is what is asked for: it leaves out one operation or two, and
// then makes those that are left simpler.
func Shrink(h *history.History, still func(*history.History) bool) *history.History {
	specs := slices.DeleteFunc(declared(h), func(e history.Event) bool { return e.Op != history.Declare })
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
