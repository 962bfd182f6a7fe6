package story

import (
	"fmt"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/reports/internal/facts"
	"github.com/lockchaos/lockchaos/topologies"
)

// named calls a client as stories do.
func named(client string) string { return "client " + client }

// who names the client of an event, or else its process.
func who(r *facts.Facts, e *history.Event) string {
	if name := r.ClientOf(e); name != "" {
		return named(name)
	}
	return fmt.Sprintf("process %d", e.Process)
}

// InMode is " (read)" or " (2 permits)", or empty for the only way to hold a lock.
func InMode(mode history.Mode, permits int) string {
	switch {
	case mode == history.Exclusive || mode == "":
		return ""
	case mode == history.Permit && permits > 1:
		return " (" + say.Count(permits, "permit") + ")"
	default:
		return " (" + string(mode) + ")"
	}
}

// grantEvent is the event with which a hold began.
func grantEvent(r *facts.Facts, h *holding.Grant) Event {
	servers, inferred := r.Granters(h)
	asked := r.Asked(h.Acquire)
	ev := Event{
		At: h.Start, Kind: EventGrant, Actor: named(r.Holder(h)), Verb: "was granted", Object: asked.Lock + InMode(asked.Mode, asked.Permits),
		Server: say.List(servers), Inferred: inferred,
	}
	token, lease := "", ""
	if h.Token() != 0 {
		token = fmt.Sprintf("token %d", h.Token())
	}
	if asked.Lease > 0 {
		lease = "lease " + say.Span(asked.Lease)
	} else if r.Met(history.MetUnleased) && facts.Unleased(h) {
		lease = "left to the watchdog"
		if r.Run.Watchdog > 0 {
			lease += ", which renews a lease of " + say.Span(r.Run.Watchdog)
		}
	}
	ev.Detail = joined(", ", token, lease, entitled(h))
	return ev
}

// entitled says until when a holder is entitled to hold.
func entitled(h *holding.Grant) string {
	until := facts.Entitled(h)
	due := facts.Due(h, until)
	switch {
	case until == history.Never:
		return "with no end in the record"
	case until <= h.Start:
		return "its lease had ended by then, at " + say.Instant(until)
	case until < h.End || h.Ended != holding.EndReleased && h.Ended != holding.EndLost:
		return "entitled until " + say.Instant(until)
	case h.Ended == holding.EndReleased:
		return "released at " + say.Instant(until)
	case due < history.Never:
		return "until " + say.Instant(due)
	case h.Release != nil && until == h.Release.Invoke.Time:
		return "asked to release at " + say.Instant(until)
	default:
		return "told at " + say.Instant(until) + " that it is lost"
	}
}

// operationEvent is the answer to an operation.
func operationEvent(r *facts.Facts, op *holding.Op) Event {
	if op.Verb == holding.Access {
		return accessEvent(r, op)
	}
	return eventOf(r, r.Answer(op))
}

// verbs are what a client was told, by the operation and the type of the event.
var verbs = map[history.Op]map[history.Type]string{ //nolint:gochecknoglobals // a table
	history.Acquire: {history.Invoke: "asked to acquire", history.OK: "was granted", history.Fail: "was refused", history.Info: "got no certain answer to its acquire of"},
	history.Extend:  {history.Invoke: "asked to extend", history.OK: "was confirmed an extension of", history.Fail: "was refused an extension of", history.Info: "got no certain answer to its extend of"},
	history.Release: {history.Invoke: "asked to release", history.OK: "was confirmed the release of", history.Fail: "was refused the release of", history.Info: "got no certain answer to its release of"},
	history.Access:  {history.Invoke: "began to use", history.OK: "used", history.Fail: "was refused the use of", history.Info: "may have used"},
	history.Lost:    {history.OK: "was told that it lost"},
	history.Crash:   {history.Info: "crashed"},
	history.Inject:  {history.Invoke: "began", history.OK: "took effect", history.Fail: "did not take effect", history.Info: "may not have taken effect"},
	history.Heal:    {history.Invoke: "ended", history.OK: "was healed", history.Fail: "was not healed", history.Info: "may not have been healed"},
	history.Observe: {history.OK: "was seen with"},
}

// eventOf is any event.
func eventOf(r *facts.Facts, e *history.Event) Event {
	if op, ok := r.Operation(e.Index); ok && e.Op == history.Access && e.Type != history.Invoke {
		return accessEvent(r, op)
	}
	ev := Event{At: e.Time, Kind: EventLock, Actor: who(r, e), Verb: verbs[e.Op][e.Type], Object: e.Lock + InMode(e.Mode, e.Permits), Server: e.Node}
	switch {
	case e.Op == history.Access:
		ev.Kind, ev.Object = EventAccess, e.Resource
	case e.Op == history.Inject, e.Op == history.Heal:
		ev.Kind, ev.Actor = EventFault, joined(" ", "the fault", e.Fault, e.Target)
	case e.Op == history.Observe:
		ev.Kind, ev.Actor, ev.Object, ev.Server = EventServer, e.Node, joined(" ", e.What, e.Value), ""
	case e.Op == history.Crash:
		ev.Object = ""
	case e.Op == history.Acquire && e.Type == history.OK:
		ev.Kind = EventGrant
	}
	if e.Token != 0 {
		ev.Detail = fmt.Sprintf("token %d", e.Token)
	}
	return ev
}

// accessEvent is what an access did: "client a read 41 and wrote 42 to ledger", when it began if that was a while
// before, and that its client held nothing.
func accessEvent(r *facts.Facts, op *holding.Op) Event {
	e := r.Answer(op)
	resource := r.Resource(op)
	if resource == "" {
		resource = "the resource"
	}
	ev := Event{At: e.Time, Kind: EventAccess, Actor: who(r, r.Asked(op)), Verb: "used", Object: resource}
	read, written, changed := strings.Cut(e.Value, ">")
	switch {
	case facts.GaveUp(op):
		ev.Verb, ev.Detail = "gave up its access to", "its lease was over, or about to end"
	case op.Failed():
		ev.Verb, ev.Server, ev.Object, ev.Detail = "was refused", resource, "", e.Error
	case op.Unknown():
		ev.Verb = "may have used"
	case changed:
		ev.Verb = "read " + read + " and wrote " + written + " to"
	case e.Value != "":
		ev.Detail = "value " + e.Value // read or written: it is not said
	}
	begun, refused := "", ""
	if at := say.Instant(op.Invoke.Time); at != say.Instant(e.Time) {
		begun = "begun at " + at
	}
	if asked := askedInVain(r, op); asked != nil {
		refused = "though its request was refused at " + say.Instant(asked.Complete.Time)
	}
	ev.Detail = joined(", ", ev.Detail, begun, refused)
	return ev
}

// askedInVain is the last request for the lock of a client before an access, if it was refused and no hold
// was there; nil otherwise.
func askedInVain(r *facts.Facts, access *holding.Op) *holding.Op {
	l := r.LaneOf(r.Lock(access), facts.Client(r.Owner(access)))
	if l == nil || access.Unnamed() || l.HoldAt(access) != nil {
		return nil
	}
	var last *holding.Op
	for _, asked := range l.Waits {
		if asked.Complete.Time <= access.Invoke.Time {
			last = asked
		}
	}
	if last == nil || !last.Failed() {
		return nil
	}
	return last
}

// Line is an event in words.
func Line(r *facts.Facts, e *history.Event) string {
	ev := eventOf(r, e)
	if e.Expires > 0 {
		ev.Detail = joined(", ", ev.Detail, "good until "+say.Instant(e.Expires))
	}
	if e.Error != "" && e.Op != history.Access {
		ev.Detail = joined(", ", ev.Detail, e.Error)
	}
	return ev.said().Text
}

// Became says that a server was seen in a role, and in another before.
func Became(role string) string {
	switch role {
	case topologies.Leader:
		return "became the leader"
	case topologies.Master:
		return "was promoted to master"
	}
	return "became a " + role
}

// roleEvents are the changes of roles in a window: those that make a master are left out last.
func roleEvents(r *facts.Facts, from, to time.Duration) []Event {
	var events []Event
	for _, c := range r.Roles {
		if c.At == 0 || c.At < from || c.At > to {
			continue
		}
		ev := Event{At: c.At, Kind: EventServer, Actor: c.Node, Verb: Became(c.Role), rank: 4}
		if c.Role == topologies.Master || c.Role == topologies.Leader {
			ev.rank = 2
		}
		events = append(events, ev)
	}
	return events
}

// keyEvents are the looks at a lock's key: which servers had it, and whose. Those of one look that found the same are
// one event. What blocks a lock is the key of an owner whose hold was over.
func keyEvents(r *facts.Facts, lock string, from, to time.Duration, rank int, over func(facts.Look) string) []Event {
	var events []Event
	var last facts.Look
	var servers []string // of the last event
	for _, l := range r.Looks(lock) {
		if l.At < from || l.At > to {
			continue
		}
		if n := len(events); n > 0 && last.Owner == l.Owner && l.At-events[n-1].At <= facts.OneLook {
			servers = facts.Distinct(append(servers, l.Server))
			events[n-1].Actor = say.List(servers)
			continue
		}
		last, servers = l, []string{l.Server}
		ev := Event{At: l.At, Kind: EventServer, Actor: l.Server, Verb: "had no holder of", Object: lock, rank: rank}
		if l.Owner != "" {
			ev.Verb = "had " + named(facts.Client(l.Owner)) + " as the holder of"
			if over != nil && over(l) != "" {
				ev.Verb, ev.Object = "still had", "the key of "+named(facts.Client(l.Owner))
				ev.Detail, ev.rank = over(l)+": while it is there, "+lock+" is not granted", 1
			}
		}
		events = append(events, ev)
	}
	return events
}

// forHowLong is " for 350 ms", or what of it the record covers.
func forHowLong(r *facts.Facts, from, until time.Duration) string {
	switch {
	case until > r.End && r.End <= from, until <= from:
		return ""
	case until > r.End:
		return fmt.Sprintf(" (%s of it observed)", say.Span(r.End-from))
	}
	return " for " + say.Span(until-from)
}
