package facts

import (
	"cmp"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/topologies"
)

// The states of a server that a fault stopped.
const (
	Down   = "down"
	Paused = "paused"
)

// A Role is that a server was seen in a role that it did not have.
type Role struct {
	At        time.Duration // 0: at the start
	Node      string
	Role, Was string // Was is empty for the role at the start
}

// rolesOf are the roles at the start, and every change that was observed.
func rolesOf(t history.Topology, notes []history.Event) []Role {
	var all []Role
	current := map[string]string{}
	for _, n := range t.Nodes {
		if n.Role != "" {
			current[n.Name] = n.Role
			all = append(all, Role{Node: n.Name, Role: n.Role})
		}
	}
	boot := all
	for _, e := range notes {
		if e.Op != history.Observe || e.What != history.ObserveRole || e.Value == current[e.Node] {
			continue
		}
		was := current[e.Node]
		current[e.Node] = e.Value
		if was != topologies.Member {
			all = append(all, Role{At: e.Time, Node: e.Node, Role: e.Value, Was: was})
			continue
		}
		for i := range boot { // what it is first seen to be, it was from the start
			if boot[i].Node == e.Node {
				all[i].Role = e.Value
			}
		}
	}
	return all
}

// RoleAt is the role that a server was last seen in.
func (r *Facts) RoleAt(node string, at time.Duration) string {
	role := ""
	for _, c := range r.Roles {
		if c.Node == node && c.At <= at {
			role = c.Role
		}
	}
	return role
}

// Servers are the nodes that hold locks, and those of which a role was observed.
func (r *Facts) Servers() []string {
	var names []string
	for _, n := range r.Run.Topology.Nodes {
		if n.Kind == string(topologies.Redis) || n.Role != "" {
			names = append(names, n.Name)
		}
	}
	for _, c := range r.Roles {
		if c.Node != "" && !slices.Contains(names, c.Node) {
			names = append(names, c.Node)
		}
	}
	return names
}

// A Stretch is a server in one state for a while: a role, [Down], [Paused], or empty where it is not known.
type Stretch struct {
	From, To time.Duration
	State    string
	Changed  bool // it began with a change that was observed
}

// Life is what a server was over the whole record.
func (r *Facts) Life(node string) []Stretch {
	var life []Stretch
	for _, c := range r.Roles {
		if c.Node != node {
			continue
		}
		if n := len(life); n > 0 {
			life[n-1].To = c.At
		}
		life = append(life, Stretch{From: c.At, To: r.End, State: c.Role, Changed: c.At > 0 && c.Was != ""})
	}
	for i := range r.Faults {
		f := &r.Faults[i]
		if !f.OK || !f.Has(history.Stops) || !f.Hits(node) {
			continue
		}
		over := Stretch{From: f.At(), To: r.back(f), State: Down}
		if f.Has(history.Suspends) {
			over.State = Paused
		}
		life = interrupt(life, over)
	}
	return life
}

// back is when what a fault had stopped was there again: when its heal was answered, or had shown its role before that.
func (r *Facts) back(f *Fault) time.Duration {
	for _, c := range r.Roles {
		if f.Healed && f.Hits(c.Node) && c.At > f.healing && c.At < f.End {
			return c.At
		}
	}
	return f.End
}

// interrupt lays a stretch over a life.
func interrupt(life []Stretch, over Stretch) []Stretch {
	out := []Stretch{over}
	for _, s := range life {
		before, after := s, s
		before.To, after.From = min(s.To, over.From), max(s.From, over.To)
		after.Changed = s.Changed && after.From == s.From
		if before.To > before.From {
			out = append(out, before)
		}
		if after.To > after.From {
			out = append(out, after)
		}
	}
	slices.SortStableFunc(out, func(a, b Stretch) int { return cmp.Compare(a.From, b.From) })
	return out
}

// A Look is what one look at a server's key of a lock found.
type Look struct {
	At            time.Duration
	Server, Owner string // the owner is empty where there was no key
}

// OneLook is how far apart the answers of several servers to one look at a key may lie.
const OneLook = 50 * time.Millisecond

// Looks are the looks at the key of a lock, in order of time.
func (r *Facts) Looks(lock string) []Look { return r.looks[lock] }

// Granters are the servers that granted a hold: the one that the record names, else the masters that were seen to have
// its key (with replicas the first of them: what others have is a copy), else the only master that the client could reach.
// That assumes that a server has the role that it was last seen in, and that the client is in the zone of its name. What
// is inferred is marked with "≈" wherever it is shown.
func (r *Facts) Granters(h *holding.Grant) (names []string, inferred bool) {
	if node := r.Answer(h.Acquire).Node; node != "" {
		return []string{node}, false
	}
	names, known := r.granters[h]
	if known {
		return names, len(names) > 0
	}
	owner := r.Owner(h.Acquire)
	for _, l := range r.looks[r.Lock(h.Acquire)] {
		if l.Owner == owner && r.RoleAt(l.Server, l.At) == topologies.Master {
			names = append(names, l.Server)
		}
	}
	names = Distinct(names)
	if len(names) > 1 && slices.ContainsFunc(r.Run.Topology.Nodes, func(n history.Node) bool { return n.Role == topologies.Replica }) {
		names = names[:1]
	}
	if len(names) == 0 {
		if master := r.MasterOf(owner, h.Acquire.Invoke.Time); master != "" && master == r.MasterOf(owner, h.Acquire.Complete.Time) {
			names = []string{master}
		}
	}
	slices.SortFunc(names, say.Natural)
	r.granters[h] = names
	return names, len(names) > 0
}

// MasterOf is the only master that the client of an owner could reach at an instant, by what was seen of the servers
// and by the faults that cut groups off from each other. It is empty if there was none, or more than one.
func (r *Facts) MasterOf(owner string, at time.Duration) string {
	only := ""
	for _, n := range r.Run.Topology.Nodes {
		if n.Role == "" || r.RoleAt(n.Name, at) != topologies.Master || !r.reaches(r.ZoneOf(owner), n.Name, at) {
			continue
		}
		if only != "" {
			return ""
		}
		only = n.Name
	}
	return only
}

// reaches reports whether no fault kept a zone from a server for certain: once its heal was asked for, some links may
// be there again, and others not yet. A client whose zone is not known may be in any.
func (r *Facts) reaches(zone, server string, at time.Duration) bool {
	if zones := r.topology.Of(topologies.Zone); !slices.Contains(zones, zone) {
		return !slices.ContainsFunc(zones, func(zone string) bool { return !r.reaches(zone, server, at) })
	}
	return !slices.ContainsFunc(r.Faults, func(f Fault) bool {
		return f.OK && at >= f.At() && at <= f.healing && (f.Has(history.Isolates) || f.Has(history.Stops)) && f.blocks(zone, server, r.topology)
	})
}

// ZoneOf is the zone of a client: that of the script, else its name up to the first dot.
func (r *Facts) ZoneOf(owner string) string {
	name := Client(owner)
	zone, _, _ := strings.Cut(name, ".")
	return cmp.Or(r.Run.Clients[name], zone)
}

// Inferred marks what is not in the record.
func Inferred(name string, is bool) string {
	if is && name != "" {
		return "≈ " + name
	}
	return name
}

// Distinct are names in their order, each once and none empty.
func Distinct(names []string) (all []string) {
	for _, name := range names {
		if name != "" && !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

// measureRecovery fills in how long it took after each fault, and after its heal, until a lock was granted again. A
// script's steps wait for each other: the time until its next grant is the script's.
func (r *Facts) measureRecovery() {
	interrupts := []history.Effect{
		history.Cuts, history.Stalls, history.Isolates, history.Stops, history.Suspends, history.Promotes, history.Restarts, history.Refuses, history.Withholds,
	}
	for i := range r.Faults {
		f := &r.Faults[i]
		if f.Interrupts = f.OK && r.Run.Scenario == "" && slices.ContainsFunc(interrupts, f.Has); !f.Interrupts {
			continue
		}
		concerned, promoted := r.concernedBy(f), f.At() // what was granted between the order and the blow was granted by the old master
		for _, c := range slices.Backward(r.Roles) {
			if f.Has(history.Promotes) && c.Role == topologies.Master && c.Was != "" && c.At >= f.Start && c.At <= f.InEffect {
				promoted = c.At
			}
		}
		f.Recovery = r.nextGrant(f.At(), promoted, concerned)
		if f.Healed {
			f.HealRecovery = r.nextGrant(f.End, f.End, concerned)
		}
	}
}

// nextGrant is how long it took from an instant to the first grant to a request that was sent after it, and was not
// answered before another. A grant that was already on its way shows nothing. It is 0 if there was none.
func (r *Facts) nextGrant(from, notBefore time.Duration, concerned func(*holding.Op) bool) time.Duration {
	best := time.Duration(0)
	for i := sort.Search(len(r.Ops), func(i int) bool { return r.Ops[i].Invoke.Time > from }); i < len(r.Ops); i++ {
		op := r.Ops[i]
		if best > 0 && op.Invoke.Time-from >= best {
			break
		}
		if took := op.Complete.Time - from; op.Verb == holding.Acquire && op.OK() && op.Complete.Time >= notBefore && (best == 0 || took < best) && concerned(op) {
			best = took
		}
	}
	return best
}

// concernedBy tells which requests a fault concerns: those that had to pass where it was, to the master that granted
// their lock last, or to any where that is not known. A fault that keeps no zone from a master concerns all.
func (r *Facts) concernedBy(f *Fault) func(*holding.Op) bool {
	zones := append(r.topology.Of(topologies.Zone), "") // a client may not say where it is
	masters := slices.DeleteFunc(r.Servers(), func(name string) bool { return r.RoleAt(name, f.At()) != topologies.Master })
	blocked := func(zone string, from []string) bool {
		return (zone != "" || f.Has(history.Stops)) && slices.ContainsFunc(from, func(server string) bool { return f.blocks(zone, server, r.topology) })
	}
	if !slices.ContainsFunc(zones, func(zone string) bool { return blocked(zone, masters) }) {
		return func(*holding.Op) bool { return true }
	}
	known := map[[2]string]bool{} // by zone and lock
	return func(op *holding.Op) bool {
		zone, lock := r.ZoneOf(r.Owner(op)), r.Lock(op)
		if !slices.Contains(zones, zone) {
			zone = ""
		}
		is, asked := known[[2]string{zone, lock}]
		if !asked {
			from := masters
			if before := r.LastGrant(lock, f.At()); before != nil {
				if by, _ := r.Granters(before); len(by) > 0 && slices.Contains(masters, by[0]) {
					from = by[:1]
				}
			}
			is = blocked(zone, from)
			known[[2]string{zone, lock}] = is
		}
		return is
	}
}
