package reports

import (
	"cmp"
	"maps"
	"slices"
	"sort"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
)

// A window is the part of the time axis that a timeline shows.
type window struct{ from, to time.Duration }

func (w window) length() time.Duration { return w.to - w.from }

// meets reports whether something that lasted so long shows in the window.
func (w window) meets(from, to time.Duration) bool { return from <= w.to && to >= w.from }

// whole is the window of the entire record.
func (m *model) whole() window { return window{to: max(m.end, time.Millisecond)} }

// focus is the window of what the story tells, with a margin.
func (m *model) focus(v *checker.Violation) window {
	w := window{from: v.From, to: v.From}
	for _, ev := range m.violationStory(v).Events {
		if ev.At <= m.end {
			w.from, w.to = min(w.from, ev.At), max(w.to, ev.At)
		}
	}
	lead := max(w.length(), 2*time.Millisecond)
	if v.Kind == checker.Stuck { // its length is what there is to see
		lead = max(lead, m.lasted(v))
	}
	w.to = max(w.to, min(v.Until, m.end, v.From+max(lead, 50*time.Millisecond)))
	margin := w.length() / 14
	w = window{from: max(0, w.from-margin), to: min(m.whole().to, w.to+margin)}
	if w.length() > m.whole().length()*3/5 {
		return m.whole() // what is left out would not be worth a second chart.Drawing
	}
	return w
}

// A lane is one client at one lock.
type lane struct {
	lock, client string
	waits        []*history.Operation
	holds        []*holding.Hold
	uses         []*history.Operation // accesses under the lock
}

// lanes are all clients at all locks, by lock, then by name.
func (m *model) lanes() []*lane {
	if m.allLanes == nil {
		m.allLanes = m.findLanes()
	}
	return m.allLanes
}

func (m *model) findLanes() []*lane {
	byKey := map[[2]string]*lane{}
	var lanes []*lane
	at := func(lock, owner string) *lane {
		key := [2]string{lock, client(owner)}
		l := byKey[key]
		if l == nil {
			l = &lane{lock: lock, client: key[1]}
			byKey[key] = l
			lanes = append(lanes, l)
		}
		return l
	}
	m.laneIs = byKey
	byProcess := map[int]*lane{}
	for i := range m.ops {
		op := &m.ops[i]
		switch op.Invoke.Op {
		case history.Acquire:
			l := at(op.Invoke.Lock, op.Invoke.Owner)
			l.waits = append(l.waits, op)
			byProcess[op.Invoke.Process] = l
		case history.Access:
			l := byProcess[op.Invoke.Process]
			if op.Invoke.Owner != "" && op.Invoke.Lock != "" {
				l = at(op.Invoke.Lock, op.Invoke.Owner)
			}
			if l != nil {
				l.uses = append(l.uses, op)
			}
		default:
		}
	}
	for i := range m.holds {
		l := at(m.holds[i].Lock, m.holds[i].Owner)
		l.holds = append(l.holds, &m.holds[i])
	}
	slices.SortFunc(lanes, func(a, b *lane) int {
		if a.lock != b.lock {
			return say.Natural(a.lock, b.lock)
		}
		return say.Natural(a.client, b.client)
	})
	return lanes
}

// laneAt is the lane of a client at a lock; nil if it never asked for it.
func (m *model) laneAt(lock, client string) *lane {
	m.lanes()
	return m.laneIs[[2]string{lock, client}]
}

// shows reports whether anything of the lane lies in the window.
func (l *lane) shows(w window) bool {
	for _, h := range l.holds {
		if w.meets(h.Start, h.End) {
			return true
		}
	}
	for _, op := range l.waits {
		if w.meets(op.Invoke.Time, op.Complete.Time) {
			return true
		}
	}
	return false
}

// holdAt is the last hold that began before an access, and under which it
// can have been made.
func (l *lane) holdAt(access *history.Event) *holding.Hold {
	at := sort.Search(len(l.holds), func(i int) bool { return l.holds[i].Start > access.Time })
	for at--; at >= 0; at-- {
		if access.Owner == "" || access.Owner == l.holds[at].Owner {
			return l.holds[at]
		}
	}
	return nil
}

// How many lanes a timeline draws before it says how many it left out. Of more than
// maxWholeLanes the whole run is drawn with a row for each lock.
const (
	maxFocusLanes = 8
	maxWholeLanes = 24
	maxLockRows   = 12
)

// evidence are the holds that a violation is about.
func (m *model) evidence(v *checker.Violation) []*holding.Hold {
	holds := m.holdsOf(v)
	for _, index := range v.Events {
		if e, ok := m.event(index); ok && e.Op != history.Acquire {
			if h := m.holdFor(v, e); h != nil && !slices.Contains(holds, h) {
				holds = append(holds, h)
			}
		}
	}
	return holds
}

// A stretch is a server in one state for a while.
type stretch struct {
	from, to time.Duration
	state    string // master, replica, down, paused, or empty
	changed  bool   // it began with a change that was observed
}

// server is the life of one server over the whole record.
func (m *model) server(node string) []stretch {
	var life []stretch
	for _, c := range m.roles {
		if c.node != node {
			continue
		}
		if n := len(life); n > 0 {
			life[n-1].to = c.at
		}
		life = append(life, stretch{from: c.at, to: m.end, state: c.role, changed: c.at > 0 && c.was != ""})
	}
	for i := range m.faults {
		f := &m.faults[i]
		if !f.OK || !f.has(history.Stops) || !f.hits(node) {
			continue
		}
		state := "down"
		if f.has(history.Suspends) {
			state = "paused"
		}
		life = interrupt(life, stretch{from: f.at(), to: m.back(f), state: state})
	}
	return life
}

// healAsked is when the heal of a fault was asked for that was answered at its end.
func (m *model) healAsked(f *Fault) time.Duration {
	asked := f.End
	for _, e := range m.notes {
		if e.Op == history.Heal && e.Type == history.Invoke && e.Fault == f.Name && e.Target == f.Target && e.Time < f.End {
			asked = e.Time
		}
	}
	return asked
}

// back is when what a fault had stopped was there again: when its heal was answered, or
// had shown its role before that.
func (m *model) back(f *Fault) time.Duration {
	if f.has(history.Stops) && f.Healed {
		healing := m.healAsked(f)
		for _, c := range m.roles {
			if f.hits(c.node) && c.at > healing && c.at < f.End {
				return c.at
			}
		}
	}
	return f.End
}

// interrupt lays a stretch over a life.
func interrupt(life []stretch, over stretch) []stretch {
	var out []stretch
	for _, s := range life {
		if s.to <= over.from || s.from >= over.to {
			out = append(out, s)
			continue
		}
		if s.from < over.from {
			before := s
			before.to = over.from
			out = append(out, before)
		}
		if s.to > over.to {
			after := s
			after.from, after.changed = over.to, false
			out = append(out, after)
		}
	}
	out = append(out, over)
	slices.SortStableFunc(out, func(a, b stretch) int { return cmp.Compare(a.from, b.from) })
	return out
}

// servers are the nodes that get a lane: those with a role, and those of
// which something was observed.
func (m *model) servers() []string {
	var names []string
	add := func(name string) {
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, n := range m.Run.Topology.Nodes {
		if n.Kind == "redis" || n.Role != "" {
			add(n.Name)
		}
	}
	for _, c := range m.roles {
		add(c.node)
	}
	return names
}

// accessesOf are the accesses of each resource, in order of their request.
func (m *model) accessesOf() map[string][]*history.Operation {
	if m.accessed == nil {
		m.accessed = map[string][]*history.Operation{}
		for i := range m.ops {
			if op := &m.ops[i]; op.Invoke.Op == history.Access {
				name := resourceOf(op)
				m.accessed[name] = append(m.accessed[name], op)
			}
		}
	}
	return m.accessed
}

// resources are the names of what was accessed, in order.
func (m *model) resources() []string {
	return slices.SortedFunc(maps.Keys(m.accessesOf()), say.Natural)
}

func resourceOf(op *history.Operation) string {
	return cmp.Or(op.Complete.Resource, op.Invoke.Resource, op.Invoke.Lock)
}
