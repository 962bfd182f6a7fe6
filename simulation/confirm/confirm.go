package confirm

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/scenarios"
	"github.com/lockchaos/lockchaos/simulation"
	"github.com/lockchaos/lockchaos/simulation/world"
	"github.com/lockchaos/lockchaos/topologies"
)

// A Script is a scenario that may show on real servers what a simulated run showed.
type Script struct {
	// Form says which operations of the run it has.
	Form string
	// YAML is the scenario as lockchaos reproduce reads it, and Scenario what it says.
	YAML     []byte
	Scenario scenarios.Scenario
}

// The forms of a script, in the order in which they are tried.
const (
	// Held has the operations that prove the violation, those that a fault of a message
	// struck, and the holds that other clients had then.
	Held = "held"
	// Core has the first two of these.
	Core = "core"
	// Window has all from the first of those on, or from the first fault.
	Window = "window"
	// Full has all operations up to the violation.
	Full = "full"
)

// Scripts writes the scenarios of a simulated run that shows the violation, in the order of
// their forms and without those that are the same. The error says what a scenario has no step for.
func Scripts(c simulation.Case, l harness.LockSpec, o simulation.Outcome, v checker.Violation) ([]Script, error) {
	if !slices.Contains(topologies.Names(), c.Topology) {
		return nil, fmt.Errorf("no servers are of topology %s", c.Topology)
	}
	h, err := o.Read()
	if err != nil {
		return nil, err
	}
	var all []Script
	var errs []error
	for _, form := range []string{Held, Core, Window, Full} {
		w := newWriter(c, l, o, h, v)
		w.choose(form)
		yaml, err := w.write()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if slices.ContainsFunc(all, func(s Script) bool { return bytes.Equal(s.YAML, yaml) }) {
			continue
		}
		s, err := scenarios.Parse("scenario", yaml, nil)
		if err != nil {
			errs = append(errs, fmt.Errorf("the scenario of a simulated run: %w", err))
			continue
		}
		s.Lock = l
		if err := s.Validate(); err != nil {
			errs = append(errs, err)
			continue
		}
		all = append(all, Script{form, yaml, s})
	}
	if len(all) == 0 {
		return nil, errors.Join(errs...)
	}
	return all, nil
}

// A writer writes one scenario.
type writer struct {
	simulation.Case

	lock      harness.LockSpec
	violation checker.Violation
	ops       []*operation
	incidents []*incident
	proof     map[int64]bool // indices of the events that prove the violation
	end       time.Duration  // when it was complete
	capacity  int            // of a semaphore

	zones   map[string]string // real ones, by simulated
	clients map[string]string
	marks   []mark
}

func newWriter(c simulation.Case, l harness.LockSpec, o simulation.Outcome, h *history.History, v checker.Violation) *writer {
	w := &writer{Case: c, lock: l, violation: v, proof: map[int64]bool{}, zones: map[string]string{}, clients: map[string]string{}}
	w.ops = operations(h)
	w.incidents = incidents(c, o, h, w.ops)
	for _, e := range v.Minimal {
		w.proof[e.Index] = true
	}
	for _, index := range v.Events {
		w.proof[index] = true
	}
	for _, e := range h.Events {
		if e.Op == history.Declare {
			w.capacity = max(w.capacity, e.Capacity)
		}
		if w.proof[e.Index] {
			w.end = max(w.end, e.Time)
		}
	}
	if v.Kind == checker.Stuck { // which the request proves that waited, once it has waited for too long
		w.end = max(w.end, v.Until)
	}
	w.incidents = slices.DeleteFunc(w.incidents, func(i *incident) bool { return i.began > w.end })
	return w
}

// choose says which operations the script has.
func (w *writer) choose(form string) {
	begin := w.end
	for _, o := range w.ops {
		o.keep = slices.ContainsFunc(o.events, func(i int64) bool { return w.proof[i] })
		if o.keep {
			begin = min(begin, o.from)
		}
	}
	for _, i := range w.incidents {
		begin = min(begin, i.began)
		if i.struck != nil {
			i.struck.keep = true
			begin = min(begin, i.struck.from)
		}
	}
	for _, o := range w.ops {
		switch form {
		case Held:
			o.keep = o.keep || w.heldAtFault(o)
		case Window:
			o.keep = o.keep || o.until >= begin && o.from <= w.end || w.heldAt(o, begin)
		case Full:
			o.keep = o.keep || o.from <= w.end
		}
	}
	if form == Held {
		w.before()
	}
	w.complete()
}

// before has the holds that a fault of a message met begin before the operation that it
// struck: that one asks again and again, and might be granted the lock in between.
func (w *writer) before() {
	for _, i := range w.incidents {
		for _, o := range w.ops {
			if i.struck != nil && o != i.struck && w.heldAt(o, i.began) && o.until > i.struck.from {
				o.from, o.until = i.struck.from-2*stamps, i.struck.from-stamps
			}
		}
	}
}

// heldAt reports whether the operation is the acquire of a hold that was not over then.
func (w *writer) heldAt(o *operation, at time.Duration) bool {
	return o.op == history.Acquire && o.outcome == history.OK && o.until < at && (o.expires == 0 || o.expires > at) &&
		!slices.ContainsFunc(w.ops, func(r *operation) bool { return r.op == history.Release && r.owner == o.owner && r.until < at })
}

// heldAtFault reports whether the operation is the acquire or the release of a hold that a
// fault of a message met.
func (w *writer) heldAtFault(o *operation) bool {
	return slices.ContainsFunc(w.incidents, func(i *incident) bool {
		return i.struck != nil && slices.ContainsFunc(w.ops, func(a *operation) bool {
			return a.owner == o.owner && w.heldAt(a, i.began) && (o == a || o.op == history.Release && o.from <= w.end)
		})
	})
}

// complete adds what the operations of a client need: the grant that one is about, and
// the release of a hold before the client asks again.
func (w *writer) complete() {
	// An owner that asked more than once: what it holds depends on what it gave back.
	asksAgain := func(owner string) bool {
		return len(of(w.ops, func(o *operation) bool { return o.op == history.Acquire && o.owner == owner })) > 1
	}
	isKept := func(owner string) bool {
		return slices.ContainsFunc(w.ops, func(o *operation) bool { return o.keep && o.op == history.Acquire && o.owner == owner })
	}
	for _, o := range w.ops {
		if !o.keep {
			continue
		}
		for _, other := range w.ops {
			before := other.client == o.client && other.from < o.from
			switch {
			case other.op == history.Acquire && other.owner == o.owner && before,
				o.op == history.Acquire && other.op == history.Release && other.owner == o.owner && other.until <= w.end && asksAgain(o.owner),
				o.op == history.Acquire && other.op == history.Release && before && isKept(other.owner):
				other.keep = true
			}
		}
	}
	for _, o := range w.ops {
		o.strict = o.op == history.Acquire && o.outcome == history.OK
	}
}

// place spreads clients over the zones that a deployment has. Those that a fault is
// aimed at come first.
func (w *writer) place(kept []*operation) error {
	there := []string{"zone-a", "zone-b"}
	var order []string
	add := func(zone string) {
		if zone != "" && !slices.Contains(order, zone) && slices.ContainsFunc(kept, func(o *operation) bool { return o.zone == zone }) {
			order = append(order, zone)
		}
	}
	for _, i := range w.incidents {
		zone, _, _ := strings.Cut(i.Target, ">")
		add(zone)
	}
	aimed := len(order)
	if aimed > len(there) {
		return fmt.Errorf("faults are aimed at %d processes of clients, and a deployment has zones for %d", aimed, len(there))
	}
	for _, o := range kept {
		add(o.zone)
	}
	for i, zone := range order {
		w.zones[zone] = there[min(i, len(there)-1)]
	}
	for _, o := range kept {
		if w.clients[o.client] == "" {
			w.clients[o.client] = string(rune('a' + len(w.clients)))
		}
	}
	if len(w.clients) > 26 {
		return fmt.Errorf("%d clients have more names than letters", len(w.clients))
	}
	return nil
}

// target is the target of a fault in the deployment.
func (w *writer) target(t string) string {
	from, to, link := strings.Cut(t, ">")
	switch {
	case !link:
		return cmp.Or(w.zones[from], from)
	case topologies.ShapeOf(w.Topology).Slots && !strings.Contains(to, "/") && strings.HasPrefix(from, "redis-"):
		return from + ">" + to + "/replication" // they have a bus, too
	default:
		return cmp.Or(w.zones[from], from) + ">" + to
	}
}

// replicaLinks is the target of the links by which replicas get what a master wrote, and
// shard the parameter that has a failover replace it. The servers and their shards have
// the same names as in the simulated cluster.
func (w *writer) replicaLinks(master string) string {
	if !topologies.ShapeOf(w.Topology).Slots {
		return "redis>" + master
	}
	boot, replica := simulation.Shard(master)
	if master == replica {
		replica = boot
	}
	return w.target(replica + ">" + master)
}

func (w *writer) shard(master string) string {
	if !topologies.ShapeOf(w.Topology).Slots {
		return ""
	}
	boot, _ := simulation.Shard(master)
	return fmt.Sprintf(", params: {shard: %s}", boot)
}

// longLease is that of a hold whose end the violation does not wait for.
const longLease = 30 * time.Second

// rateLease is that of holds while the clock of a server is too fast or too slow: as long as
// it takes for the error to become visible, and not longer than another client waits.
const rateLease = 6 * time.Second

// leaseOf is the lease that a step asks for.
func (w *writer) leaseOf(o *operation) time.Duration {
	if o.lease > 0 && o.outcome == history.OK && slices.ContainsFunc(w.incidents, func(i *incident) bool { return i.Name == world.ClockRate }) {
		return rateLease
	}
	if o.lease == 0 || w.ranOut(o) || o.outcome != history.OK {
		return o.lease
	}
	return longLease
}

// ranOut reports whether the lease ended before the violation was complete, and nothing
// else had ended the hold by then.
func (w *writer) ranOut(o *operation) bool {
	return o.expires > 0 && o.expires <= w.end && !slices.ContainsFunc(w.ops, func(r *operation) bool {
		return r.op == history.Release && r.owner == o.owner && r.outcome == history.OK && r.until <= o.expires
	})
}

// keeps reports whether servers write their data to a file, since one is killed that
// keeps them.
func (w *writer) keeps() bool {
	return slices.ContainsFunc(w.incidents, func(i *incident) bool { return i.Name == world.Kill && i.Keep })
}
