package facts

import (
	"cmp"
	"path"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/topologies"
)

// The roles of servers: of Redis, and of the members of a consensus store at boot and as they are seen.
const (
	Master   = "master"
	Replica  = "replica"
	Member   = "member"
	Leader   = "leader"
	Follower = "follower"
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
	Role, Was string         // Was is empty for the role at the start
	Event     *history.Event // nil at the start
}

// rolesOf are the roles at the start, and every change that was observed.
func rolesOf(t history.Topology, notes []*history.Event) []Role {
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
		if was != Member {
			all = append(all, Role{At: e.Time, Node: e.Node, Role: e.Value, Was: was, Event: e})
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

// IsServer reports whether a node holds locks.
func IsServer(n history.Node) bool { return n.Kind == string(topologies.Redis) || n.Role != "" }

// Servers are the nodes that hold locks, and those of which a role was observed.
func (r *Facts) Servers() []string {
	var names []string
	for _, n := range r.Run.Topology.Nodes {
		if IsServer(n) {
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
		over := Stretch{From: f.At(), To: r.back(i), State: Down}
		if f.Has(history.Suspends) {
			over.State = Paused
		}
		life = interrupt(life, over)
	}
	return life
}

// back is when what a fault had stopped was there again: when its heal was answered, or had shown its role before that.
func (r *Facts) back(fault int) time.Duration {
	f := &r.Faults[fault]
	for _, c := range r.Roles {
		if f.Healed && f.Hits(c.Node) && c.At > r.heals[fault] && c.At < f.End {
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

// locateGrants infers which server granted a hold, where the record does not say it: the master that was seen to
// have its key, else the only master that the client could reach. It assumes that a server has the role that it was
// last seen in, and that the client is in the zone of its name. What is inferred is marked with "≈" wherever it is shown.
func (r *Facts) locateGrants() {
	seen := map[string]string{}
	for lock, looks := range r.looks {
		for _, l := range looks {
			if key := lock + " " + l.Owner; seen[key] == "" && r.RoleAt(l.Server, l.At) == Master {
				seen[key] = l.Server
			}
		}
	}
	r.granters = map[int]string{}
	for i := range r.Holds {
		h := &r.Holds[i]
		if h.Acquire.Complete.Node != "" {
			continue
		}
		node := seen[h.Lock+" "+h.Owner]
		if node == "" {
			if master := r.MasterOf(h.Owner, h.Acquire.Invoke.Time); master != "" && master == r.MasterOf(h.Owner, h.Acquire.Complete.Time) {
				node = master
			}
		}
		if node != "" {
			r.granters[h.Acquire.Ordinal()] = node
		}
	}
}

// MasterOf is the only master that the client of an owner could reach at an instant, by what was seen of the servers
// and by the faults that cut groups off from each other. It is empty if there was none, or more than one.
func (r *Facts) MasterOf(owner string, at time.Duration) string {
	only := ""
	for _, n := range r.Run.Topology.Nodes {
		if n.Role == "" || r.RoleAt(n.Name, at) != Master || !r.reaches(r.ZoneOf(owner), n.Name, at) {
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
	if !r.IsZone(zone) {
		return !slices.ContainsFunc(r.Run.Topology.Nodes, func(n history.Node) bool {
			return n.Kind == string(topologies.Zone) && !r.reaches(n.Name, server, at)
		})
	}
	for i := range r.Faults {
		f := &r.Faults[i]
		if f.OK && at >= f.At() && at <= r.heals[i] && (f.Has(history.Isolates) || f.Has(history.Stops)) && f.blocks(zone, server, r.Run.Topology) {
			return false
		}
	}
	return true
}

// IsZone reports whether a node is a zone of clients.
func (r *Facts) IsZone(name string) bool {
	return slices.ContainsFunc(r.Run.Topology.Nodes, func(n history.Node) bool { return n.Kind == string(topologies.Zone) && n.Name == name })
}

// ZoneOf is the zone of a client: that of the script, else its name up to the first dot.
func (r *Facts) ZoneOf(owner string) string {
	name := Client(owner)
	zone, _, _ := strings.Cut(name, ".")
	return cmp.Or(r.Run.Clients[name], zone)
}

// granter is the server that granted a hold, as recorded or else inferred; empty where neither is known.
func (r *Facts) granter(h *holding.Hold) string {
	return cmp.Or(h.Acquire.Complete.Node, r.granters[h.Acquire.Ordinal()])
}

// Granters are the servers that granted a hold, as far as it is known: one, or of independent servers all that were
// seen to have its key. They are inferred where the record does not name one.
func (r *Facts) Granters(h *holding.Hold) (names []string, inferred bool) {
	first := r.granter(h)
	if first == "" {
		return nil, false
	}
	names = []string{first}
	if h.Acquire.Complete.Node != "" {
		return names, false
	}
	if slices.ContainsFunc(r.Run.Topology.Nodes, func(n history.Node) bool { return n.Role == Replica }) {
		return names, true // what others have is a copy
	}
	for _, l := range r.looks[h.Lock] {
		if l.Owner == h.Owner && !slices.Contains(names, l.Server) && r.RoleAt(l.Server, h.Start) == Master {
			names = append(names, l.Server)
		}
	}
	slices.SortFunc(names, say.Natural)
	return names, true
}

// Inferred marks what is not in the record.
func Inferred(name string, is bool) string {
	if is && name != "" {
		return "≈ " + name
	}
	return name
}

// A Key is the time in which a server had the key of a grant, as far as the record shows: from the grant by this
// server, or from the first look that found it there, until it was released or replaced, its lease ended, or a look
// found it gone.
type Key struct {
	Server, Owner string
	From, Until   time.Duration
	// Entitled is until when the client was entitled to the grant: also of a server that is down.
	Entitled time.Duration
	Looks    []time.Duration // that found it
	Copy     bool            // it was only seen there, and granted by another
	Inferred bool            // that this server granted it is not in the record
}

// maxKeys bounds the keys of a lock in a window.
const maxKeys = 200

// Keys are which servers had whose key of a lock in a window.
func (r *Facts) Keys(lock string, w Window) []Key {
	var keys []Key
	for i := range r.Holds {
		h := &r.Holds[i]
		if h.Lock != lock || h.Start > w.To || len(keys) >= maxKeys || len(r.looks[lock]) == 0 && max(r.keyEnd(h), Entitled(h)) < w.From {
			continue
		}
		names, inferred := r.Granters(h)
		var of []Key
		for _, server := range names {
			gone := r.dataEnd(server, lock, h.Start)
			k := Key{Server: server, Owner: h.Owner, From: h.Start, Until: min(r.keyEnd(h), gone), Entitled: min(Entitled(h), gone), Inferred: inferred}
			for _, s := range r.Life(server) {
				if s.From > k.From && s.State == Down { // it may have them from its disk, which a look shows
					k.Until = min(k.Until, s.From)
				}
			}
			of = append(of, k)
		}
		for _, l := range r.looks[lock] {
			at := -1 // the last key of that server
			for k := range of {
				if of[k].Server == l.Server {
					at = k
				}
			}
			switch {
			case l.At < h.Start:
			case l.Owner != h.Owner && at >= 0: // gone, or another's
				of[at].Until = min(of[at].Until, l.At)
			case l.Owner != h.Owner:
			case at < 0 || l.At > r.dataEnd(l.Server, lock, of[at].From):
				of = append(of, Key{Server: l.Server, Owner: h.Owner, From: l.At, Until: l.At, Looks: []time.Duration{l.At}, Copy: true})
			default:
				of[at].Looks, of[at].Until = append(of[at].Looks, l.At), max(of[at].Until, l.At)
			}
		}
		for _, k := range of {
			if w.Meets(k.From, max(k.Until, k.Entitled)) {
				keys = append(keys, k)
			}
		}
	}
	slices.SortStableFunc(keys, func(a, b Key) int {
		return cmp.Or(say.Natural(a.Server, b.Server), cmp.Compare(a.From, b.From))
	})
	// A server has one key of a lock that is granted to one at a time: the next replaces it.
	for i := range keys[:max(0, len(keys)-1)] {
		if a, b := &keys[i], &keys[i+1]; !r.Shared(lock) && a.Server == b.Server && a.Owner != b.Owner {
			a.Until = max(a.From, min(a.Until, b.From))
		}
	}
	return keys
}

// keyEnd is when the key of a hold is gone, as far as its client can know: when it was released, or when the lease
// ends that the client counts.
func (r *Facts) keyEnd(h *holding.Hold) time.Duration {
	if due := Due(h, history.Never); h.Ended != holding.EndReleased && due < history.Never {
		return due
	}
	return h.End
}

// dataEnd is when a server has no longer the keys that it had at an instant: when it became a replica, which copies
// another server, or a fault removed them. What a look finds later counts more.
func (r *Facts) dataEnd(server, lock string, at time.Duration) time.Duration {
	end := history.Never
	for _, c := range r.Roles {
		if c.Node == server && c.At > at && c.Role == Replica {
			end = min(end, c.At)
		}
	}
	for i := range r.Faults {
		f := &r.Faults[i]
		if !f.OK || !f.Hits(server) || f.Start < at {
			continue
		}
		pattern := f.Params["pattern"]
		matches, err := path.Match(pattern, lock)
		if f.Has(history.Forgets) && (pattern == "" || err == nil && matches) {
			end = min(end, f.At())
		}
	}
	return end
}

// measureRecovery fills in how long it took after each fault, and after its heal, until a lock was granted again. A
// script's steps wait for each other: the time until its next grant is the script's.
func (r *Facts) measureRecovery() {
	grants := map[string][]*holding.Hold{} // of each lock, of which it is known who granted them
	for i := range r.Holds {
		if h := &r.Holds[i]; len(r.Faults) > 0 && r.granter(h) != "" {
			grants[h.Lock] = append(grants[h.Lock], h)
		}
	}
	for i := range r.Faults {
		f := &r.Faults[i]
		if !f.OK || r.Run.Scenario != "" || !slices.ContainsFunc([]history.Effect{
			history.Cuts, history.Stalls, history.Isolates, history.Stops, history.Suspends, history.Promotes, history.Restarts, history.Refuses, history.Withholds,
		}, f.Has) {
			continue
		}
		f.Interrupts = true
		concerned := r.concernedBy(f, grants)
		promoted := f.At() // what was granted between the order and the blow was granted by the old master
		for _, c := range slices.Backward(r.Roles) {
			if f.Has(history.Promotes) && c.Role == Master && c.Was != "" && c.At >= f.Start && c.At <= f.InEffect {
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
func (r *Facts) nextGrant(from, notBefore time.Duration, concerned func(*history.Operation) bool) time.Duration {
	best := time.Duration(0)
	for i := sort.Search(len(r.Ops), func(i int) bool { return r.Ops[i].Invoke.Time > from }); i < len(r.Ops); i++ {
		op := &r.Ops[i]
		if best > 0 && op.Invoke.Time-from >= best {
			break
		}
		if took := op.Complete.Time - from; op.Invoke.Op == history.Acquire && op.OK() && op.Complete.Time >= notBefore && (best == 0 || took < best) && concerned(op) {
			best = took
		}
	}
	return best
}

// concernedBy tells which requests a fault concerns: those that had to pass where it was, or all if none had to.
func (r *Facts) concernedBy(f *Fault, grants map[string][]*holding.Hold) func(*history.Operation) bool {
	zones, masters := []string{""}, []string{}
	for _, n := range r.Run.Topology.Nodes {
		switch {
		case n.Kind == string(topologies.Zone):
			zones = append(zones, n.Name)
		case r.RoleAt(n.Name, f.At()) == Master:
			masters = append(masters, n.Name)
		}
	}
	blocked := map[[2]string]bool{}
	for _, server := range masters {
		for _, zone := range zones { // a script does not say where its clients are
			if (zone != "" || f.Has(history.Stops)) && f.blocks(zone, server, r.Run.Topology) {
				blocked[[2]string{zone, server}] = true
			}
		}
	}
	if len(blocked) == 0 {
		return func(*history.Operation) bool { return true }
	}
	return func(op *history.Operation) bool {
		zone := r.ZoneOf(op.Invoke.Owner)
		if !slices.Contains(zones, zone) {
			zone = ""
		}
		before := lastOf(grants[op.Invoke.Lock], f.At(), func(*holding.Hold) bool { return true })
		if before != nil && slices.Contains(masters, r.granter(before)) {
			return blocked[[2]string{zone, r.granter(before)}]
		}
		return slices.ContainsFunc(masters, func(server string) bool { return blocked[[2]string{zone, server}] })
	}
}
