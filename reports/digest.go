package reports

import (
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/workload/history"
)

// An Input is everything that a report is made of.
type Input struct {
	Run     history.Run
	History *history.History
	Report  checker.Report
}

// A digest is an input with what all reports derive from it, derived once.
type digest struct {
	Input
	ops    []history.Operation
	holds  []history.Hold // in order of their start
	faults []Fault
	roles  []roleChange
	end    time.Duration // of the record

	allLanes []*lane   // found when the first timeline asks
	pictures []picture // drawn when the first page asks
}

func newDigest(in Input) *digest {
	if in.History == nil {
		in.History = &history.History{}
	}
	d := &digest{Input: in, ops: in.History.Operations(), end: in.History.End()}
	d.holds = in.History.Holds()
	d.faults = faultsOf(in.History)
	d.roles = roleChanges(in.Run.Topology, in.History)
	d.locateGrants()
	return d
}

// locateGrants fills in which server granted a hold, where the lock did not
// say: the master that was seen to hold it, else the only master that the
// client could reach.
func (d *digest) locateGrants() {
	seen := map[string]string{}
	for _, e := range d.History.Events {
		if e.Op != history.Observe || e.What != history.ObserveKey {
			continue
		}
		if _, known := seen[e.Value]; !known && d.roleAt(e.Node, e.Time) == "master" {
			seen[e.Value] = e.Node
		}
	}
	for i := range d.holds {
		h := &d.holds[i]
		if h.Acquire.Complete.Node == "" {
			h.Acquire.Complete.Node = seen[h.Lock+" "+h.Owner]
		}
		if h.Acquire.Complete.Node == "" {
			master := d.masterOf(h.Owner, h.Acquire.Invoke.Time)
			if master == d.masterOf(h.Owner, h.Acquire.Complete.Time) {
				h.Acquire.Complete.Node = master
			}
		}
	}
}

// masterOf is the only master that the client of an owner could reach at an
// instant, by what was seen of the servers and by the faults that cut groups
// off from each other. It is empty if there was none, or more than one.
func (d *digest) masterOf(owner string, at time.Duration) string {
	zone, _, _ := strings.Cut(client(owner), ".")
	only := ""
	for _, n := range d.Run.Topology.Nodes {
		if n.Role == "" || d.roleAt(n.Name, at) != "master" || !d.reaches(zone, n.Name, at) {
			continue
		}
		if only != "" {
			return ""
		}
		only = n.Name
	}
	return only
}

// reaches reports whether no fault kept a zone from a server.
func (d *digest) reaches(zone, server string, at time.Duration) bool {
	for i := range d.faults {
		f := &d.faults[i]
		switch {
		case !f.OK || at < f.at() || at > f.End:
		case f.separates() && f.hits(zone) != f.hits(server), stops(f.Name) && f.hits(server):
			return false
		}
	}
	return true
}

// roleAt is the role that a server was last seen in.
func (d *digest) roleAt(node string, at time.Duration) string {
	role := ""
	for _, c := range d.roles {
		if c.node == node && c.at <= at {
			role = c.role
		}
	}
	return role
}

// violation is the one that the story tells: of the worst property the one
// that lasted longest within the record, and the first of those. It is nil if
// there is none.
func (d *digest) violation() *checker.Violation {
	var first *checker.Violation
	for i := range d.Report.Results {
		r := &d.Report.Results[i]
		if r.Verdict != checker.Invalid || len(r.Violations) == 0 {
			continue
		}
		for j := range r.Violations {
			v := &r.Violations[j]
			if first == nil || severity(v.Kind) < severity(first.Kind) ||
				severity(v.Kind) == severity(first.Kind) && d.lasted(v) > d.lasted(first) {
				first = v
			}
		}
	}
	return first
}

// lasted is how long a violation lasted within the record.
func (d *digest) lasted(v *checker.Violation) time.Duration { return min(v.Until, d.end) - v.From }

// severity orders violations by how much of the others they explain: a double
// grant is the cause of the lost update, not the other way round.
func severity(kind string) int {
	order := []string{
		checker.DoubleGrant, checker.ForeignRelease, checker.PrematureLoss,
		checker.UseAfterLease, checker.LostUpdate, checker.NotLinearizable,
	}
	if at := slices.Index(order, kind); at >= 0 {
		return at
	}
	return len(order)
}

// event is the event of that index, if the history has it.
func (d *digest) event(index int64) (history.Event, bool) {
	if index < 0 || index >= int64(len(d.History.Events)) {
		return history.Event{}, false
	}
	return d.History.Events[index], true
}

// holdsOf are the holds that the evidence names, in order of their start.
func (d *digest) holdsOf(v *checker.Violation) []*history.Hold {
	var found []*history.Hold
	for i := range d.holds {
		h := &d.holds[i]
		for _, op := range []history.Operation{h.Acquire, h.Proof} {
			if slices.Contains(v.Events, op.Invoke.Index) || slices.Contains(v.Events, op.Complete.Index) {
				found = append(found, h)
				break
			}
		}
	}
	return found
}

// holdBefore is the last hold of an owner that began before an instant.
func (d *digest) holdBefore(lock, owner string, at time.Duration) *history.Hold {
	var found *history.Hold
	for i := range d.holds {
		h := &d.holds[i]
		if h.Start <= at && h.Owner == owner && (lock == "" || h.Lock == lock) {
			found = h
		}
	}
	return found
}

// operation is the operation that an event is one end of.
func (d *digest) operation(index int64) (history.Operation, bool) {
	for _, op := range d.ops {
		if op.Invoke.Index == index || op.Complete.Index == index {
			return op, true
		}
	}
	return history.Operation{}, false
}

// client is whose hold it is: the owner without the number of the attempt.
func client(owner string) string {
	name, _, _ := strings.Cut(owner, "#")
	if name == "" {
		return owner
	}
	return name
}

// A roleChange is a server that was seen in a role that it did not have.
type roleChange struct {
	at        time.Duration
	node      string
	role, was string // was is empty for the role at the start
}

// roleChanges are the roles at the start, at instant 0, and every change that
// was observed.
func roleChanges(t history.Topology, h *history.History) []roleChange {
	var changes []roleChange
	current := map[string]string{}
	for _, n := range t.Nodes {
		if n.Role != "" {
			current[n.Name] = n.Role
			changes = append(changes, roleChange{node: n.Name, role: n.Role})
		}
	}
	for _, e := range h.Events {
		if e.Op != history.Observe || e.What != history.ObserveRole || e.Value == current[e.Node] {
			continue
		}
		changes = append(changes, roleChange{at: e.Time, node: e.Node, role: e.Value, was: current[e.Node]})
		current[e.Node] = e.Value
	}
	return changes
}
