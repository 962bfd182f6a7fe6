package confirm

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/history"
)

// An operation is one of a client, from the invocation to the outcome.
type operation struct {
	client  string // such as zone-a.1, with a number for each crash
	zone    string
	owner   string
	op      history.Op
	lock    string
	mode    history.Mode
	from    time.Duration
	until   time.Duration // never, if it has no outcome
	outcome history.Type
	lease   time.Duration
	expires time.Duration // of a grant
	first   int64         // the index of the invocation
	last    int64
	keep    bool
	strict  bool // it must be granted, for the violation to be possible
}

// never is later than any run ends.
const never = time.Duration(1<<63 - 1)

// operations pairs the events of clients.
func operations(h *history.History) []*operation {
	var all []*operation
	open := map[int]*operation{}
	crashes := map[string]int{}
	for _, e := range h.Events {
		if e.Process == history.NoProcess {
			continue
		}
		name, _, _ := strings.Cut(e.Owner, "#")
		switch e.Op {
		case history.Crash:
			crashes[name]++
			continue
		case history.Acquire, history.Extend, history.Release, history.Access:
		default:
			continue
		}
		if e.Type == history.Invoke {
			o := &operation{
				client: name + "/" + strconv.Itoa(crashes[name]), owner: e.Owner, op: e.Op, lock: e.Lock, mode: e.Mode,
				from: e.Time, until: never, outcome: history.Info, lease: e.Lease, first: e.Index, last: e.Index,
			}
			o.zone, _, _ = strings.Cut(name, ".")
			all = append(all, o)
			open[e.Process] = o
			continue
		}
		if o := open[e.Process]; o != nil && o.op == e.Op {
			o.until, o.outcome, o.last, o.expires = e.Time, e.Type, e.Index, e.Expires
			delete(open, e.Process)
		}
	}
	return all
}

// goesOn reports whether the operation was under way at that time.
func (o *operation) goesOn(at time.Duration) bool { return o.from <= at && at <= o.until }

// of are the operations for which keep is true.
func of(all []*operation, keep func(*operation) bool) []*operation {
	return slices.DeleteFunc(slices.Clone(all), func(o *operation) bool { return !keep(o) })
}
