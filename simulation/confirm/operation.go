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
	and     []string // what else it was asked for together with the lock
	mode    history.Mode
	permits int
	again   bool // as an owner that asked before
	oldest  bool // a release of what was granted first
	from    time.Duration
	until   time.Duration // never, if it has no outcome
	outcome history.Type
	lease   time.Duration
	expires time.Duration // of a grant
	events  []int64       // the indices of its events: two for each lock
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
			if o := together(open, e); o != nil {
				o.and, o.events = append(o.and, e.Lock), append(o.events, e.Index)
				open[e.Process] = o
				continue
			}
			o := &operation{
				client: name + "/" + strconv.Itoa(crashes[name]), owner: e.Owner, op: e.Op, lock: e.Lock, mode: e.Mode, permits: e.Permits,
				from: e.Time, until: never, outcome: history.Info, lease: e.Lease, events: []int64{e.Index},
			}
			o.zone, _, _ = strings.Cut(name, ".")
			all = append(all, o)
			open[e.Process] = o
			continue
		}
		if o := open[e.Process]; o != nil && o.op == e.Op {
			o.until, o.outcome, o.expires = e.Time, e.Type, e.Expires
			o.events = append(o.events, e.Index)
			delete(open, e.Process)
		}
	}
	return all
}

// together is the operation that is under way for another lock, of which the invocation is a
// part; nil if there is none.
func together(open map[int]*operation, e history.Event) *operation {
	for _, o := range open {
		if o.owner == e.Owner && o.op == e.Op && o.until == never && o.lock != e.Lock && e.Op != history.Access {
			return o
		}
	}
	return nil
}

// goesOn reports whether the operation was under way at that time.
func (o *operation) goesOn(at time.Duration) bool { return o.from <= at && at <= o.until }

// of are the operations for which keep is true.
func of(all []*operation, keep func(*operation) bool) []*operation {
	return slices.DeleteFunc(slices.Clone(all), func(o *operation) bool { return !keep(o) })
}
