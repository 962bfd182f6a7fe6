package draw

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

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
)

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

// Topology draws the parties and the links between them at an instant. It is empty where no topology was recorded.
func Topology(r *facts.Facts, at time.Duration) string {
	places, height := placesOf(r.Run.Topology)
	if len(places) == 0 {
		return ""
	}
	var s drawing
	for _, e := range edgesOf(r, places, at) {
		e.draw(&s)
	}
	for _, p := range places {
		p.draw(&s, r, at)
	}
	return fmt.Sprintf(`<svg class="figure map" viewBox="0 0 %s %s" role="img" aria-label="%s">%s</svg>`,
		num(mapWidth), num(height), escape("The topology "+r.Run.Topology.Name+" at "+say.Instant(at)), s.String())
}

// draw draws a party with its role and, of a server, whom it granted the lock whose violation is told.
func (p *place) draw(s *drawing, r *facts.Facts, at time.Duration) {
	state, name := "", p.node.Name
	for _, part := range r.Life(name) {
		if part.From <= at && (at < part.To || part.To == r.End) {
			state = part.State
		}
	}
	kind := "map-other"
	switch {
	case facts.IsServer(p.node):
		kind = "map-server"
	case p.node.Kind == string(topologies.Zone):
		kind = "map-zone"
	}
	var title strings.Builder
	title.WriteString(name + ": " + p.node.Kind)
	for _, part := range [][]string{{", ", p.node.Role}, {" of ", p.node.Of}, {", ", p.node.Address}} {
		if part[1] != "" {
			title.WriteString(part[0] + part[1])
		}
	}
	s.raw(`<g class="map-node `, kind, ` is-`, className(state), `">`)
	s.rect("", p.x, p.y, p.w, p.h, 5, title.String())
	middle, room := p.x+p.w/2, int(p.w/6.6)
	s.text("map-name", middle, p.y+18, say.Shorten(name, room))
	if kind == "map-server" {
		s.text("map-role", middle, p.y+33, say.Shorten(state, room))
		if holders := grantedBy(r, name, at); len(holders) > 0 {
			s.text("map-grant", middle, p.y+50, say.Shorten("granted to "+strings.Join(holders, ", "), room))
		}
	}
	s.raw(`</g>`)
}

// grantedBy are the clients that hold the lock whose violation is told, and were granted it by a server.
func grantedBy(r *facts.Facts, server string, at time.Duration) (names []string) {
	v := r.Told()
	for _, h := range r.Holds {
		if v == nil || r.Lock(h.Acquire) != v.Lock || at < h.Start || facts.Entitled(h) <= at {
			continue
		}
		if by, inferred := r.Granters(h); slices.Contains(by, server) {
			names = append(names, facts.Inferred(r.Holder(h), inferred))
		}
	}
	return facts.Distinct(names)
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
	a, b    *place
	names   []string
	carries bool   // what a lock is made of, so that a mark on it is worth the room
	state   string // the worst that a fault does to it, else whether a replica gets its data over it
}

// edgesOf are the pairs that are linked, in the order of their links, as they are at an instant.
func edgesOf(r *facts.Facts, places []*place, at time.Duration) []*edge {
	placeOf, byPair := map[string]*place{}, map[[2]string]*edge{}
	for _, p := range places {
		placeOf[p.node.Name] = p
	}
	var edges []*edge
	of := func(from, to string) *edge {
		a, b := placeOf[from], placeOf[to]
		if a == nil || b == nil || a == b {
			return nil
		}
		if a.y > b.y || a.y == b.y && a.x > b.x {
			a, b = b, a
		}
		pair := [2]string{a.node.Name, b.node.Name}
		if byPair[pair] == nil {
			byPair[pair] = &edge{a: a, b: b}
			edges = append(edges, byPair[pair])
		}
		return byPair[pair]
	}
	for _, l := range r.Run.Topology.Links {
		e := of(l.From, l.To)
		if e == nil {
			continue
		}
		e.names = append(e.names, l.Name+" ("+l.Kind+")")
		replicates := l.Kind == string(topologies.Replication)
		e.carries = e.carries || replicates || l.Kind == string(topologies.Peer) || l.Kind == string(topologies.Client) && facts.IsServer(e.b.node)
		roles := []string{r.RoleAt(l.From, at), r.RoleAt(l.To, at)}
		if replicates && slices.Contains(roles, facts.Master) && slices.Contains(roles, facts.Replica) {
			e.state = isReplicating
		}
	}
	for _, does := range []struct {
		effect history.Effect
		state  string
	}{{history.Delays, isSlow}, {history.Stalls, isHeld}, {history.Cuts, isCut}} {
		for i := range r.Faults {
			f := &r.Faults[i]
			if !f.OK || at < f.At() || at >= max(f.End, f.At()+1) || !f.Has(does.effect) || does.effect == history.Delays && f.Life == history.Triggered { // not all that passes is late
				continue
			}
			for _, l := range f.Links(r.Topology()) {
				if e := of(l.From, l.To); e != nil {
					e.state = does.state
				}
			}
		}
	}
	return edges
}

// draw draws an edge with the mark of its state: as a line, or below its row.
func (e *edge) draw(s *drawing) {
	x1, y1, x2, y2 := e.a.x+e.a.w/2, e.a.y+e.a.h, e.b.x+e.b.w/2, e.b.y
	path, x, y := d("M", x1, y1, "L", x2, y2), x1+(x2-x1)*0.42, y1+(y2-y1)*0.42 // nearer to the upper end, where fewer lines cross
	if e.a.row == e.b.row {
		const drop = mapGap * 0.6
		path, x, y = d("M", x1, y1, "C", x1, y1+drop, x2, y1+drop, x2, y1), (x1+x2)/2, y1+drop*0.75
	}
	s.raw(`<g class="map-link is-`, className(e.state), `">`)
	s.path("", path, strings.Join(e.names, ", "))
	mark := map[string]string{
		isCut: cross(x, y, 5), isHeld: d("M", x-3, y-6, "v", 12.0, "M", x+3, y-6, "v", 12.0), isSlow: d("M", x-9, y, "q", 4.5, -8.0, 9.0, 0.0, "t", 9.0, 0.0),
	}[e.state]
	if mark != "" && e.carries {
		s.path("map-"+e.state, mark, "")
	}
	s.raw(`</g>`)
}
