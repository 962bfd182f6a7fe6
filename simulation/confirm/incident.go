package confirm

import (
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/simulation"
	"github.com/lockchaos/lockchaos/simulation/world"
)

// An incident is a fault of the plan as it happened.
type incident struct {
	world.Fault

	began time.Duration
	ended time.Duration // never, if it did not
	// Of a fault of a message, which command it met, and who waited for the answer.
	struck  *operation
	command string
	nth     int
}

// incidents are the faults that began, in order.
func incidents(c simulation.Case, o simulation.Outcome, h *history.History, ops []*operation) []*incident {
	var all []*incident
	left := slices.Clone(c.Plan)
	for _, e := range h.Events {
		if e.Process != history.NoProcess || e.Type != history.Invoke {
			continue
		}
		switch e.Op {
		case history.Inject:
			at := slices.IndexFunc(left, func(f world.Fault) bool {
				return f.Name == e.Fault && (f.Target == e.Target || f.Target == world.TheMaster || f.Target == "")
			})
			if at >= 0 {
				i := &incident{Fault: left[at], began: e.Time, ended: never}
				i.Target = e.Target
				left = slices.Delete(left, at, at+1)
				i.meet(o, ops)
				all = append(all, i)
			}
		case history.Heal:
			for _, i := range all {
				if i.ended == never && i.Name == e.Fault && i.Target == e.Target {
					i.ended = e.Time
					break
				}
			}
		default:
		}
	}
	return all
}

// stamps is by how much the stamp of an event may be after its instant: no two events of
// a history have the same.
const stamps = time.Microsecond

// meet finds the command that a fault of a message struck.
func (i *incident) meet(o simulation.Outcome, ops []*operation) {
	if !ofMessage(i.Name) {
		return
	}
	zone, _, _ := strings.Cut(i.Target, ">")
	var from time.Duration
	for _, op := range ops {
		if op.zone == zone && op.op != history.Access && op.goesOn(i.began) && (i.struck == nil || op.from > i.struck.from) {
			i.struck, from = op, op.from-stamps
		}
	}
	var last world.Sent
	for _, s := range o.Sent {
		if s.Link == i.Target && s.At <= i.began {
			last = s
		}
	}
	i.command = strings.ToLower(last.Name)
	if last.Script != "" {
		i.command = last.Script
	}
	// A server that does not know a script is sent it a second time, by EVAL, which is no
	// other command; a lock that sends EVALSHA never counts those.
	bySHA := slices.ContainsFunc(o.Sent, func(s world.Sent) bool { return s.Script == last.Script && s.Name == "EVALSHA" })
	for _, s := range o.Sent {
		if s.Link == i.Target && s.At >= from && s.At <= i.began && s.Script == last.Script && (s.Name == last.Name || bySHA) && (!bySHA || last.Script == "" || s.Name == "EVALSHA") {
			i.nth++
		}
	}
	i.nth = max(i.nth, 1)
}

// ofMessage reports whether faults of that name are of one command or its reply, on real servers.
func ofMessage(name string) bool { return world.OfMessage(name) && name != world.RepeatCommand }
