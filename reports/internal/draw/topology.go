package draw

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/reports/internal/facts"
	"github.com/lockchaos/lockchaos/topologies"
)

// The measures of the drawing of a topology, in SVG units.
const (
	mapWidth  = 720.0
	mapNode   = 132.0 // the widest a node gets
	mapServer = 62.0  // its height
	mapSmall  = 28.0  // of a zone or a sentinel
	mapGap    = 52.0  // between rows
	mapPerRow = 5
	maxGrants = 200 // that are drawn one after the other
)

// A life is what a part of a drawing is from each instant on, in microseconds.
type life [][2]any

// lifeOf asks for the state at each instant at which it can change.
func lifeOf(changes []time.Duration, state func(at time.Duration) string) life {
	var l life
	for _, at := range changes {
		if s := state(at); len(l) == 0 || l[len(l)-1][1] != s {
			l = append(l, [2]any{at.Microseconds(), s})
		}
	}
	return l
}

// at is the state at an instant.
func (l life) at(t time.Duration) string {
	state := ""
	for _, part := range l {
		if from, _ := part[0].(int64); from <= t.Microseconds() {
			state, _ = part[1].(string)
		}
	}
	return state
}

// json is the life as an attribute's value.
func (l life) json() string {
	b, _ := json.Marshal(l) // numbers and strings always can be written
	return escape(string(b))
}

// Changes are the instants at which a server's role or a fault changed, in order, from 0.
func Changes(r *facts.Facts) []time.Duration {
	all := []time.Duration{0}
	for _, c := range r.Roles {
		all = append(all, c.At)
	}
	for i := range r.Faults {
		if f := &r.Faults[i]; f.OK { // a microsecond is what the page can tell apart
			all = append(all, f.At(), (f.End + time.Microsecond).Truncate(time.Microsecond))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// A place is where a node is drawn.
type place struct {
	node       history.Node
	x, y, w, h float64
	row        int
}

// placesOf lays the nodes out in rows: the zones of clients, the masters, the replicas in the order of their masters, and
// the sentinels. The servers of one shard stand beside each other.
func placesOf(t history.Topology) (places []*place, height float64) {
	rows := make([][]history.Node, 4)
	for _, n := range t.Nodes {
		row := 3
		switch {
		case n.Kind == string(topologies.Zone):
			row = 0
		case n.Role == facts.Replica:
			row = 2
		case facts.IsServer(n):
			row = 1
		}
		rows[row] = append(rows[row], n)
	}
	for _, group := range rows {
		slices.SortStableFunc(group, func(a, b history.Node) int { return cmp.Or(say.Natural(a.Of, b.Of), say.Natural(a.Name, b.Name)) })
	}
	if len(rows[1]) == 1 {
		rows[1], rows[2] = append(rows[1], rows[2]...), nil
	}
	y, row := 6.0, 0
	for _, group := range rows {
		for nodes := range slices.Chunk(group, mapPerRow) {
			h := mapSmall
			if facts.IsServer(nodes[0]) {
				h = mapServer
			}
			pitch := mapWidth / float64(len(nodes))
			w := min(mapNode, pitch-12)
			for i, n := range nodes {
				places = append(places, &place{node: n, x: pitch*(float64(i)+0.5) - w/2, y: y, w: w, h: h, row: row})
			}
			y, row = y+h+mapGap, row+1
		}
	}
	return places, y - mapGap/2
}

// Topology draws the parties and the links between them at an instant. Each part carries its life, so that a script
// can show any other instant. It is empty where no topology was recorded.
func Topology(r *facts.Facts, at time.Duration) string {
	places, height := placesOf(r.Run.Topology)
	if len(places) == 0 {
		return ""
	}
	var s drawing
	changes := Changes(r)
	for _, e := range edgesOf(r, places) {
		e.draw(&s, lifeOf(changes, e.state), at)
	}
	var grants []*holding.Hold
	if v := r.Told(); v != nil && v.Lock != "" {
		near := facts.Window{From: max(0, v.From-10*time.Second), To: v.From + 10*time.Second}
		for i := range r.Holds {
			if h := &r.Holds[i]; h.Lock == v.Lock && near.Meets(h.Start, facts.Entitled(h)) && len(grants) < maxGrants {
				grants, changes = append(grants, h), append(changes, h.Start, min(facts.Entitled(h), r.End))
			}
		}
	}
	slices.Sort(changes)
	changes = slices.Compact(changes)
	for _, p := range places {
		p.draw(&s, r, grants, changes, at)
	}
	return fmt.Sprintf(`<svg class="figure map" viewBox="0 0 %s %s" role="img" aria-label="%s">%s</svg>`,
		num(mapWidth), num(height), escape("The topology "+r.Run.Topology.Name+" at "+say.Instant(at)), s.String())
}

// draw draws a party with its role and, of a server, whom it granted the lock.
func (p *place) draw(s *drawing, r *facts.Facts, grants []*holding.Hold, changes []time.Duration, at time.Duration) {
	stretches := r.Life(p.node.Name)
	l := lifeOf(changes, func(at time.Duration) string {
		for _, part := range stretches {
			if part.From <= at && (at < part.To || part.To == r.End) {
				return part.State
			}
		}
		return ""
	})
	kind := "map-other"
	switch {
	case facts.IsServer(p.node):
		kind = "map-server"
	case p.node.Kind == string(topologies.Zone):
		kind = "map-zone"
	}
	title := []string{p.node.Name, ": ", p.node.Kind}
	for _, part := range [][]string{{", ", p.node.Role}, {" of ", p.node.Of}, {", ", p.node.Address}} {
		if part[1] != "" {
			title = append(title, part...)
		}
	}
	s.raw(`<g class="map-node `, kind, ` is-`, className(l.at(at)), `" data-life="`, l.json(), `">`)
	s.rect("", p.x, p.y, p.w, p.h, 5, strings.Join(title, ""))
	middle, room := p.x+p.w/2, int(p.w/6.6)
	s.text("map-name", middle, p.y+18, say.Shorten(p.node.Name, room))
	if kind == "map-server" {
		s.living("map-role", middle, p.y+33, l, at, room)
		granted := lifeOf(changes, func(at time.Duration) string {
			var names []string
			for _, h := range grants {
				by, inferred := r.Granters(h)
				name := facts.Inferred(facts.Client(h.Owner), inferred)
				if h.Start <= at && at < facts.Entitled(h) && slices.Contains(by, p.node.Name) && !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
			if len(names) == 0 {
				return ""
			}
			return say.Shorten("granted to "+strings.Join(names, ", "), 20)
		})
		if len(granted) > 1 {
			s.living("map-grant", middle, p.y+50, granted, at, room)
		}
	}
	s.raw(`</g>`)
}

// living draws a text that is another one at another instant.
func (s *drawing) living(class string, x, y float64, l life, at time.Duration, room int) {
	s.raw(`<text class="`, class, `" x="`, num(x), `" y="`, num(y), `" data-say="`, l.json(), `">`, escape(say.Shorten(l.at(at), room)), `</text>`)
}

// className makes a state, which may come from anywhere, part of a class.
func className(state string) string {
	switch state {
	case facts.Master, facts.Replica, facts.Down, facts.Paused, isCut, isHeld, isSlow, isReplicating:
		return state
	case facts.Leader:
		return facts.Master
	case facts.Follower, facts.Member:
		return facts.Replica
	default:
		return "plain"
	}
}

// What the links between two parties are.
const (
	isReplicating = "replicates"
	isSlow        = "slow"
	isHeld        = "hold"
	isCut         = "cut"
)

// An edge are all links between two parties.
type edge struct {
	r        *facts.Facts
	a, b     *place
	names    []string
	carries  bool // what a lock is made of, so that a mark on it is worth the room
	replicas bool
	hits     []hit
}

// A hit is what a fault does to an edge, the worst last.
type hit struct {
	f     *facts.Fault
	state string
}

// edgesOf are the pairs that are linked, in the order of their links.
func edgesOf(r *facts.Facts, places []*place) []*edge {
	at, byPair := map[string]*place{}, map[[2]string]*edge{}
	for _, p := range places {
		at[p.node.Name] = p
	}
	var edges []*edge
	of := func(from, to string) *edge {
		a, b := at[from], at[to]
		if a == nil || b == nil || a == b {
			return nil
		}
		if a.y > b.y || a.y == b.y && a.x > b.x {
			a, b = b, a
		}
		pair := [2]string{a.node.Name, b.node.Name}
		if byPair[pair] == nil {
			byPair[pair] = &edge{r: r, a: a, b: b}
			edges = append(edges, byPair[pair])
		}
		return byPair[pair]
	}
	for _, l := range r.Run.Topology.Links {
		if e := of(l.From, l.To); e != nil {
			e.names = append(e.names, l.Name+" ("+l.Kind+")")
			e.replicas = e.replicas || l.Kind == string(topologies.Replication)
			e.carries = e.carries || e.replicas || l.Kind == string(topologies.Peer) || l.Kind == string(topologies.Client) && facts.IsServer(e.b.node)
		}
	}
	for _, does := range []struct {
		effect history.Effect
		state  string
	}{{history.Delays, isSlow}, {history.Stalls, isHeld}, {history.Cuts, isCut}} {
		for i := range r.Faults {
			f := &r.Faults[i]
			if !f.OK || !f.Has(does.effect) || does.effect == history.Delays && f.Life == history.Triggered { // not all that passes is late
				continue
			}
			for _, l := range f.Links(r.Topology()) {
				if e := of(l.From, l.To); e != nil && !slices.Contains(e.hits, hit{f, does.state}) {
					e.hits = append(e.hits, hit{f, does.state})
				}
			}
		}
	}
	return edges
}

// state is that of an edge: the worst that a fault does to it, else whether a replica gets its data over it.
func (e *edge) state(at time.Duration) string {
	for _, h := range slices.Backward(e.hits) {
		if at >= h.f.At() && at < max(h.f.End, h.f.At()+1) {
			return h.state
		}
	}
	a, b := e.r.RoleAt(e.a.node.Name, at), e.r.RoleAt(e.b.node.Name, at)
	if e.replicas && (a == facts.Master && b == facts.Replica || a == facts.Replica && b == facts.Master) {
		return isReplicating
	}
	return ""
}

// draw draws an edge with the marks of what it can be: as a line, or below its row.
func (e *edge) draw(s *drawing, l life, at time.Duration) {
	x1, y1, x2, y2 := e.a.x+e.a.w/2, e.a.y+e.a.h, e.b.x+e.b.w/2, e.b.y
	path, x, y := d("M", x1, y1, "L", x2, y2), x1+(x2-x1)*0.42, y1+(y2-y1)*0.42 // nearer to the upper end, where fewer lines cross
	if e.a.row == e.b.row {
		const drop = mapGap * 0.6
		path, x, y = d("M", x1, y1, "C", x1, y1+drop, x2, y1+drop, x2, y1), (x1+x2)/2, y1+drop*0.75
	}
	s.raw(`<g class="map-link is-`, className(l.at(at)), `" data-life="`, l.json(), `">`)
	s.path("", path, strings.Join(e.names, ", "))
	if len(l) > 1 && e.carries {
		s.path("map-cut", cross(x, y, 5), "")
		s.path("map-hold", d("M", x-3, y-6, "v", 12.0, "M", x+3, y-6, "v", 12.0), "")
		s.path("map-slow", d("M", x-9, y, "q", 4.5, -8.0, 9.0, 0.0, "t", 9.0, 0.0), "")
	}
	s.raw(`</g>`)
}
