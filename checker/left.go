package checker

import (
	"regexp"
	"slices"
	"strings"

	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
)

// left are the refused requests that left the lock with their owner: a master had it for a request
// that was refused, so that no client holds the lock and none can acquire it. A request during
// which a server may have forgotten, or not yet known, that it was withdrawn is left out, and so is one
// of which a copy may have been under way.
func left(ev *evidence) []Violation {
	var all []Violation
	for i := range ev.Faults {
		e := &ev.Faults[i]
		at := strings.LastIndexByte(e.Value, ' ')
		if e.Op != history.Observe || e.What != history.ObserveLeft || at < 0 {
			continue
		}
		op := refusedBefore(ev, e.Value[:at], e.Value[at+1:], e.Index)
		if op == nil || unsettled(ev, e.Node, op.Invoke.Index, e.Index) || promoted(ev, e.Node, op.Invoke.Index, e.Index) {
			continue
		}
		all = append(all, violation(Stuck, e.Value[:at], holding.Span{From: op.Complete.Time, Until: e.Time}, events(op.Invoke.Index, op.Complete.Index, e.Index),
			"%s was refused, and holds: the refusal of %q was answered at %s, and at %s %s has the lock for that request",
			caller(ev.Record, op), e.Value[:at], seconds(op.Complete.Time), seconds(e.Time), e.Node))
	}
	return all
}

// refusedBefore is the acquire of an owner that was refused before an event; nil if there is none, or
// another one of the owner may be under way or granted.
func refusedBefore(ev *evidence, lock, owner string, before int64) *holding.Op {
	l := ev.Lock(lock)
	if l == nil {
		return nil
	}
	requests := holding.Filter(l.Ops, func(op *holding.Op) bool { return isAcquire(op) && ev.Name(op.Owner) == owner })
	if len(requests) == 0 || slices.ContainsFunc(requests, func(op *holding.Op) bool { return !op.Failed() || op.Complete.Index > before }) {
		return nil
	}
	return requests[len(requests)-1]
}

// serverName is how topologies name servers.
var serverName = regexp.MustCompile(`[a-z]+-[0-9]+`)

// lateReplies are the faults by which replies alone are late: the server has carried out the request then.
var lateReplies = []string{"delay-reply", "hold-reply"} //nolint:gochecknoglobals // a constant

// unsettling reports whether a fault may have a server forget that a request was withdrawn, or a copy
// of the request arrive there after that: messages that are late on links to other servers don't, nor do replies.
func unsettling(e *history.Event, server string) bool {
	if e.Op != history.Inject || e.Type != history.Invoke {
		return false
	}
	harmless := slices.Contains(lateReplies, e.Fault) ||
		serverName.MatchString(e.Target) && !slices.Contains(serverName.FindAllString(e.Target, -1), server)
	for _, effect := range e.Effects {
		switch effect {
		case history.ShiftsClock:
			if serverName.MatchString(e.Target) {
				return true
			}
		case history.Loses, history.Cuts, history.Disconnects, history.Refuses, history.StopsClient:
		case history.Delays, history.Stalls:
			if !harmless {
				return true
			}
		default:
			return true
		}
	}
	return len(e.Effects) == 0 && !harmless
}

// endsFault reports whether a fault is over with an event.
func endsFault(e *history.Event) bool {
	return e.Op == history.Heal && e.Type == history.OK || e.Op == history.Inject && e.Type == history.Fail
}

// unsettled reports whether at some time between two events a fault was in effect that is unsettling.
func unsettled(ev *evidence, server string, from, until int64) bool {
	for i := range ev.Faults {
		e := &ev.Faults[i]
		ends := func(x history.Event) bool {
			return endsFault(&x) && x.Index < from && x.Fault == e.Fault && x.Target == e.Target
		}
		if e.Index <= until && unsettling(e, server) && !slices.ContainsFunc(ev.Faults[i:], ends) {
			return true
		}
	}
	return false
}

// promoted reports whether a server may have become the master between two events, at the second of which it is: a
// failover goes on when the fault is over that began it, and the server may know a request and not that it was withdrawn.
func promoted(ev *evidence, server string, from, until int64) bool {
	replica := false // as was seen last
	for i := range ev.Faults {
		e := &ev.Faults[i]
		if e.Op != history.Observe || e.What != history.ObserveRole || e.Node != server || e.Index > until {
			continue
		}
		if replica && e.Value == "master" && e.Index > from {
			return true
		}
		replica = e.Value == "replica"
	}
	return replica
}
