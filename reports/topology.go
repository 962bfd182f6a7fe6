package reports

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/reports/internal/chart"
)

// The measures of the drawing of a topology, in SVG units.
const (
	mapWidth  = 720.0
	mapNode   = 132.0 // the widest a node gets
	mapHeight = 46.0  // of a server
	mapTall   = 62.0  // of a server that says what it granted
	mapSmall  = 28.0  // of a zone or a sentinel
	mapPerRow = 5
	arcDrop   = 34.0 // how far an edge goes around what stands in its way
)

// A life is what a part of the chart.Drawing is from each instant on: an array of
// pairs, [microseconds, state].
type life [][2]any

// at is the state at an instant.
func (l life) at(t time.Duration) string {
	state := ""
	for _, part := range l {
		if from, _ := part[0].(int64); from <= micros(t) {
			state, _ = part[1].(string)
		}
	}
	return state
}

// lifeOf asks for the state at each instant at which it can change.
func lifeOf(changes []time.Duration, state func(at time.Duration) string) life {
	var l life
	for _, at := range changes {
		if s := state(at); len(l) == 0 || l[len(l)-1][1] != s {
			l = append(l, [2]any{micros(at), s})
		}
	}
	return l
}

// json is the life as an attribute's value.
func (l life) json() string {
	b, err := json.Marshal(l)
	if err != nil {
		return "[]" // numbers and strings always can be written
	}
	return chart.Escape(string(b))
}

// moment is the instant that a page shows first: that of the violation, else
// that of the first fault.
func (m *model) moment() time.Duration {
	if v := m.violation(); v != nil {
		return v.From
	}
	for i := range m.faults {
		if m.faults[i].OK {
			return m.faults[i].at()
		}
	}
	return 0
}

// changes are the instants at which a server's role or a fault changed, in
// order, from 0.
func (m *model) changes() []time.Duration {
	all := []time.Duration{0}
	for _, c := range m.roles {
		all = append(all, c.at)
	}
	for i := range m.faults {
		if f := &m.faults[i]; f.OK {
			// A microsecond is what the page can tell apart.
			all = append(all, f.at(), (f.End + time.Microsecond).Truncate(time.Microsecond))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// steps are the instants that a reader can step through, in microseconds: the
// changes, and what the story tells.
func (m *model) steps() []int64 {
	var all []int64
	for _, at := range m.changes() {
		all = append(all, micros(at))
	}
	for _, ev := range m.story().Events {
		all = append(all, micros(ev.At))
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

// places lays the nodes out in rows: the zones of clients, the servers with
// each replica below its master, the sentinels.
func (m *model) places() (places []*place, height float64) {
	var zones, masters, replicas, others []history.Node
	for _, n := range m.Run.Topology.Nodes {
		switch {
		case n.Kind == "zone":
			zones = append(zones, n)
		case n.Role == "replica":
			replicas = append(replicas, n)
		case n.Kind == "redis" || n.Role != "":
			masters = append(masters, n)
		default:
			others = append(others, n)
		}
	}
	if len(masters) == 1 { // one shard: its servers stand beside each other
		masters, replicas = append(masters, replicas...), nil
	}
	byName := func(a, b history.Node) int { return say.Natural(a.Name, b.Name) }
	for _, group := range [][]history.Node{zones, masters, others} {
		slices.SortStableFunc(group, byName)
	}
	slices.SortStableFunc(replicas, func(a, b history.Node) int {
		above := func(n history.Node) int {
			return slices.IndexFunc(masters, func(ev history.Node) bool { return ev.Name == n.Of })
		}
		return cmp.Or(cmp.Compare(above(a), above(b)), byName(a, b))
	})
	tall := mapHeight
	if v := m.violation(); v != nil && v.Lock != "" {
		tall = mapTall
	}
	y, row := 6.0, 0
	for _, group := range [][]history.Node{zones, masters, replicas, others} {
		for nodes := range slices.Chunk(group, mapPerRow) {
			h := tall
			if nodes[0].Kind != "redis" && nodes[0].Role == "" {
				h = mapSmall
			}
			pitch := mapWidth / float64(len(nodes))
			w := min(mapNode, pitch-12)
			for i, n := range nodes {
				places = append(places, &place{node: n, x: pitch*(float64(i)+0.5) - w/2, y: y, w: w, h: h, row: row})
			}
			y += h + 52
			row++
		}
	}
	return places, y - 52 + 6
}

// topologyFigure draws the parties and the links between them at an instant.
// Each part carries its life, so that a script can show any other instant.
func (m *model) topologyFigure(at time.Duration) string {
	places, height := m.places()
	if len(places) == 0 {
		return ""
	}
	var s chart.Drawing
	changes := m.changes()
	byName := map[string]*place{}
	for _, p := range places {
		byName[p.node.Name] = p
	}
	last := places[len(places)-1].row
	below := 0.0 // for the arcs below the last row
	apart := map[int]bool{}
	for i := range m.faults {
		apart[i] = m.drawSides(&s, &m.faults[i], places, changes, at)
	}
	for _, e := range m.edges(byName) {
		e.apart = apart
		e.draw(&s, m, changes, at)
		if e.around && e.a.row == last {
			below = arcDrop * 0.8
		}
	}
	height += below
	for _, p := range places {
		m.drawNode(&s, p, changes, at)
	}
	return fmt.Sprintf(`<svg class="figure map" viewBox="0 0 %s %s" role="img" aria-label="%s">%s</svg>`,
		chart.Num(mapWidth), chart.Num(height), chart.Escape("The topology "+m.Run.Topology.Name+" at "+say.Instant(at)), s.String())
}

// sideApart is the state of a side that is cut off, and of its links to the other.
const sideApart = "apart"

// drawSides draws the two sides that a fault keeps apart, each in a box of its own: or, where
// the parties of one lie among those of the other, each party that is cut off in one. It
// reports false, and draws nothing, of any other fault.
func (m *model) drawSides(s *chart.Drawing, f *Fault, places []*place, changes []time.Duration, at time.Duration) bool {
	if !f.OK || !f.separates() {
		return false
	}
	var sides [2][]*place
	for _, p := range places {
		side := b2i(f.hits(p.node.Name))
		sides[side] = append(sides[side], p)
	}
	if len(sides[0]) == 0 || len(sides[1]) == 0 {
		return false
	}
	boxes := []place{boxOf(sides[0]), boxOf(sides[1])}
	among := func(i int) bool {
		return slices.ContainsFunc(sides[1-i], func(p *place) bool { return boxes[i].meets(p) })
	}
	if among(0) || among(1) {
		boxes = boxes[:0]
		for _, p := range sides[1] {
			boxes = append(boxes, boxOf([]*place{p}))
		}
	}
	l := lifeOf(changes, func(at time.Duration) string {
		if f.at() <= at && at < max(f.End, f.at()+1) {
			return sideApart
		}
		return ""
	})
	s.Raw(`<g class="map-side is-`, className(l.at(at)), `" data-life="`, l.json(), `">`)
	for _, b := range boxes {
		s.Rect("", b.x, b.y, b.w, b.h, 9, "one side of "+f.label())
	}
	s.Raw(`</g>`)
	return true
}

// boxOf is what encloses some parties, with a margin.
func boxOf(parties []*place) place {
	const margin = 5
	box := *parties[0]
	right, bottom := box.x+box.w, box.y+box.h
	for _, p := range parties {
		box.x, box.y = min(box.x, p.x), min(box.y, p.y)
		right, bottom = max(right, p.x+p.w), max(bottom, p.y+p.h)
	}
	return place{x: box.x - margin, y: box.y - margin, w: right - box.x + 2*margin, h: bottom - box.y + 2*margin}
}

// meets reports whether two places have a part in common.
func (p *place) meets(q *place) bool {
	return q.x < p.x+p.w && p.x < q.x+q.w && q.y < p.y+p.h && p.y < q.y+q.h
}

// drawNode draws a party with its role and, of a server, what it has granted.
func (m *model) drawNode(s *chart.Drawing, p *place, changes []time.Duration, at time.Duration) {
	stretches := m.server(p.node.Name)
	state := func(at time.Duration) string {
		for _, part := range stretches {
			if part.from <= at && (at < part.to || part.to == m.end) {
				return part.state
			}
		}
		return ""
	}
	l := lifeOf(changes, state)
	kind := "map-other"
	if p.h >= mapHeight {
		kind = "map-server"
	}
	if p.node.Kind == "zone" {
		kind = "map-zone"
	}
	s.Raw(`<g class="map-node `, kind, ` is-`, className(l.at(at)), `" data-life="`, l.json(), `">`)
	s.Rect("", p.x, p.y, p.w, p.h, 5, nodeTitle(p.node))
	middle := p.x + p.w/2
	room := int(p.w / 6.6)
	s.Text("map-name", middle, p.y+18, say.Shorten(p.node.Name, room))
	if p.h >= mapHeight {
		grants := m.grantsLife(p.node.Name)
		s.Raw(`<text class="map-role" x="`, chart.Num(middle), `" y="`, chart.Num(p.y+33), `" data-say="`, l.json(), `">`, chart.Escape(say.Shorten(l.at(at), room)), `</text>`)
		if len(grants) > 1 {
			s.Raw(`<text class="map-grant" x="`, chart.Num(middle), `" y="`, chart.Num(p.y+50), `" data-say="`, grants.json(), `">`, chart.Escape(say.Shorten(grants.at(at), room)), `</text>`)
		}
	} else {
		s.Raw(`<title>`, chart.Escape(nodeTitle(p.node)), `</title>`)
	}
	s.Raw(`</g>`)
}

func nodeTitle(n history.Node) string {
	title := n.Name + ": " + n.Kind
	if n.Role != "" {
		title += ", " + n.Role + " at the start"
	}
	if n.Of != "" {
		title += " of " + n.Of
	}
	if n.Address != "" {
		title += ", " + n.Address
	}
	return title
}

// className makes a state, which may come from anywhere, part of a class.
func className(state string) string {
	switch state {
	case "master", "replica", "down", "paused", "cut", "hold", "slow", "replicates", sideApart:
		return state
	case roleLeader:
		return "master"
	case roleFollower, roleMember:
		return "replica"
	default:
		return "plain"
	}
}

// maxGrants bounds the grants that the chart.Drawing shows, near the violation.
const maxGrants = 200

// grantsLife is which clients a server had granted the violated lock: while the grant ran,
// and the server had not taken over another's keys, as far as that is known.
func (m *model) grantsLife(server string) life {
	v := m.violation()
	if v == nil || v.Lock == "" {
		return nil
	}
	focus := m.focus(v)
	type grant struct {
		client string
		window
	}
	var grants []grant
	changes := []time.Duration{0}
	for i := range m.holds {
		h := &m.holds[i]
		if h.Lock == v.Lock && focus.meets(h.Start, believes(h)) && slices.Contains(m.voters(h), server) && len(grants) < maxGrants {
			g := grant{inferred(client(h.Owner), h.Acquire.Complete.Node == ""), window{h.Start, min(believes(h), m.dataEnd(server, v.Lock, h.Start))}}
			grants = append(grants, g)
			changes = append(changes, g.from)
			if g.to < m.end {
				changes = append(changes, g.to)
			}
		}
	}
	slices.Sort(changes)
	return lifeOf(changes, func(at time.Duration) string {
		var names []string
		for _, g := range grants {
			if g.from <= at && at < g.to && !slices.Contains(names, g.client) {
				names = append(names, g.client)
			}
		}
		if len(names) == 0 {
			return ""
		}
		return say.Shorten("granted to "+strings.Join(names, ", "), 20)
	})
}

// An edge are all links between two parties.
type edge struct {
	a, b   *place
	links  []history.Link
	around bool         // another party stands between them
	apart  map[int]bool // the faults whose sides are drawn as boxes
}

// edges are the pairs that are linked, in the order of their links.
func (m *model) edges(places map[string]*place) []*edge {
	byPair := map[[2]string]*edge{}
	var edges []*edge
	for _, l := range m.Run.Topology.Links {
		from, to := places[l.From], places[l.To]
		if from == nil || to == nil || from == to {
			continue
		}
		if from.y > to.y || from.y == to.y && from.x > to.x {
			from, to = to, from
		}
		pair := [2]string{from.node.Name, to.node.Name}
		if byPair[pair] == nil {
			e := &edge{a: from, b: to}
			for _, p := range places {
				e.around = e.around || from.row == to.row && p.row == from.row && from.x < p.x && p.x < to.x
			}
			byPair[pair] = e
			edges = append(edges, byPair[pair])
		}
		byPair[pair].links = append(byPair[pair].links, l)
	}
	return edges
}

// draw draws an edge as a line, or around what stands between its ends in
// their row, with the mark of each fault that it can have.
func (e *edge) draw(s *chart.Drawing, m *model, changes []time.Duration, at time.Duration) {
	l := lifeOf(changes, e.states(m))
	x1, y1, x2, y2 := e.a.x+e.a.w/2, e.a.y+e.a.h, e.b.x+e.b.w/2, e.b.y
	path := "M" + chart.Num(x1) + " " + chart.Num(y1) + "L" + chart.Num(x2) + " " + chart.Num(y2)
	var mx, my float64 // where a mark stands
	switch {
	case e.a.row != e.b.row:
		// The mark stands nearer to the upper end, where fewer lines cross.
		mx, my = x1+(x2-x1)*0.42, y1+(y2-y1)*0.42
	case !e.around:
		y := e.a.y + e.a.h/2
		x1, x2 = e.a.x+e.a.w, e.b.x
		path = "M" + chart.Num(x1) + " " + chart.Num(y) + "L" + chart.Num(x2) + " " + chart.Num(y)
		mx, my = (x1+x2)/2, y
	default:
		drop := arcDrop
		path = "M" + chart.Num(x1) + " " + chart.Num(y1) + "C" + chart.Num(x1) + " " + chart.Num(y1+drop) + " " + chart.Num(x2) + " " + chart.Num(y1+drop) + " " + chart.Num(x2) + " " + chart.Num(y1)
		mx, my = (x1+x2)/2, y1+drop*0.75
	}
	var names []string
	for _, link := range e.links {
		names = append(names, link.Name+" ("+link.Kind+")")
	}
	s.Raw(`<g class="map-link is-`, className(l.at(at)), `" data-life="`, l.json(), `">`)
	s.Path("", path, strings.Join(names, ", "))
	if len(l) > 1 && e.carries() {
		s.Path("map-cut", chart.Cross(mx, my, 5), "")
		s.Path("map-hold", "M"+chart.Num(mx-3)+" "+chart.Num(my-6)+"v12M"+chart.Num(mx+3)+" "+chart.Num(my-6)+"v12", "")
		s.Path("map-slow", "M"+chart.Num(mx-9)+" "+chart.Num(my)+"q4.5 -8 9 0t9 0", "")
	}
	s.Raw(`</g>`)
}

// carries reports whether the edge carries what a lock is made of, so that a
// mark on it is worth the room: between clients and servers, and replication.
func (e *edge) carries() bool {
	return slices.ContainsFunc(e.links, func(l history.Link) bool {
		return l.Kind == "replication" || l.Kind == "peer" || l.Kind == "client" && (e.b.node.Kind == "redis" || e.b.node.Role != "")
	})
}

// states tells the state of an edge: the worst that a fault does to one of its
// links, else whether a replica gets its data over it.
func (e *edge) states(m *model) func(at time.Duration) string {
	type hit struct {
		f     *Fault
		state string
	}
	var hits []hit
	for i := range m.faults {
		f := &m.faults[i]
		if state := e.hitBy(f, m.Run.Topology); state != "" {
			if e.apart[i] {
				state = sideApart
			}
			hits = append(hits, hit{f, state})
		}
	}
	replication := slices.ContainsFunc(e.links, func(l history.Link) bool { return l.Kind == "replication" })
	return func(at time.Duration) string {
		worst := ""
		for _, h := range hits {
			if at >= h.f.at() && at < max(h.f.End, h.f.at()+1) && gravity(h.state) > gravity(worst) {
				worst = h.state
			}
		}
		if worst != "" || !replication {
			return worst
		}
		a, b := m.roleAt(e.a.node.Name, at), m.roleAt(e.b.node.Name, at)
		if a == "master" && b == "replica" || a == "replica" && b == "master" {
			return "replicates"
		}
		return ""
	}
}

// gravity orders what a fault does to an edge, the worst last.
func gravity(state string) int {
	return slices.Index([]string{"", sideApart, "slow", "hold", "cut"}, state)
}

// hitBy is what a fault does to one of an edge's links: cut, hold, slow or
// nothing.
func (e *edge) hitBy(f *Fault, t history.Topology) string {
	state := ""
	switch {
	case !f.OK:
	case f.has(history.Cuts):
		state = "cut"
	case f.has(history.Stalls):
		state = "hold"
	case f.has(history.Delays) && f.Life != history.Triggered: // by which all that passes is late
		state = "slow"
	}
	if state == "" {
		return ""
	}
	hit := f.links(t)
	if slices.ContainsFunc(e.links, func(l history.Link) bool { return slices.Contains(hit, l) }) {
		return state
	}
	return ""
}
