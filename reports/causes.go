package reports

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
)

// A Cause is what several violations have in common as far as the record shows: the
// fault that was in effect while they arose and can explain them, or that there was none.
type Cause struct {
	// Title says it in a line: "split-brain, 19.100 s to 23.600 s: 87 double grants".
	Title string `json:"title"`
	// Fault and Target name the fault; empty without any.
	Fault  string `json:"fault,omitempty"`
	Target string `json:"target,omitempty"`
	// From and Until are when the first of the violations began and the last ended,
	// within the record.
	From  time.Duration `json:"from"`
	Until time.Duration `json:"until"`
	// Violations counts those that are listed, by kind.
	Violations map[string]int `json:"violations"`
	// Servers granted the holds that the violations are about, as far as it is known.
	Servers []string `json:"servers,omitempty"`
	// Impact says how long, how many, and how many requests had no known outcome.
	Impact string `json:"impact"`
	// Story is that of the gravest and longest violation, with its cures: where no fault
	// explains double grants, of one whose cause is known.
	Story Story  `json:"story"`
	Cures []Cure `json:"cures,omitempty"`
	// Sequence are the messages until that violation, and Why is what it followed
	// from, down to events.
	Sequence *Sequence `json:"sequence,omitempty"`
	Why      *Why      `json:"why,omitempty"`
}

// A group are the violations of a cause.
type group struct {
	Cause

	fault int // the index of the fault; -1 for none
	found []*checker.Violation
	told  *checker.Violation // that of the story
}

// causesOf groups the violations by what caused them: those that no fault explains
// first, then by how grave they are and how long they lasted.
func (m *model) causesOf() []*group {
	if m.grouped != nil {
		return m.grouped
	}
	byFault := map[int]*group{}
	causes := []*group{}
	origin := m.origins()
	m.originOf = origin
	for _, v := range m.distinct() {
		c := byFault[origin[v]]
		if c == nil {
			c = &group{fault: origin[v], Cause: Cause{Violations: map[string]int{}, From: m.since(v)}}
			byFault[c.fault] = c
			causes = append(causes, c)
		}
		c.found = append(c.found, v)
		c.Violations[v.Kind]++
		c.From, c.Until = min(c.From, m.since(v)), max(c.Until, m.since(v), min(v.Until, m.end))
	}
	for _, c := range causes {
		if c.fault >= 0 {
			c.Fault, c.Target = m.faults[c.fault].Name, m.faults[c.fault].Target
		}
		c.told = m.gravestOf(c.found)
	}
	slices.SortStableFunc(causes, func(a, b *group) int {
		x, y := a.told, b.told
		return cmp.Or(b2i(b.fault < 0)-b2i(a.fault < 0), cmp.Compare(severity(x.Kind), severity(y.Kind)),
			cmp.Compare(m.lasted(y), m.lasted(x)), cmp.Compare(a.From, b.From))
	})
	m.grouped = causes
	for _, c := range causes {
		if c.fault < 0 {
			c.told = m.clearestOf(c)
		}
	}
	return causes
}

// maxCompared bounds the violations that are compared to tell which explains most.
const maxCompared = 64

// clearestOf is of the violations without a fault the one to tell: a double grant of which
// a wrong answer is known, or a release that can have ended the first hold, rather than a
// longer one whose cause is not in the record.
func (m *model) clearestOf(c *group) *checker.Violation {
	if c.told.Kind != checker.DoubleGrant {
		return c.told
	}
	longest := slices.DeleteFunc(slices.Clone(c.found), func(v *checker.Violation) bool { return v.Kind != c.told.Kind })
	slices.SortStableFunc(longest, func(a, b *checker.Violation) int { return cmp.Compare(m.lasted(b), m.lasted(a)) })
	for _, v := range longest[:min(len(longest), maxCompared)] {
		if m.explained(v) && !m.unprompted(v.Lock) {
			return v
		}
	}
	for _, v := range longest[:min(len(longest), maxCompared)] {
		if holds := m.holdsOf(v); len(holds) > 1 {
			if _, ok := m.lateRelease(holds[0], holds[1], m.delayed(v)); ok {
				return v
			}
		}
	}
	return c.told
}

// explained reports whether a wrong answer of the service is known that made the second
// grant of a double grant possible.
func (m *model) explained(v *checker.Violation) bool {
	holds := m.holdsOf(v)
	if len(holds) < 2 {
		return false
	}
	if len(m.wrongAnswers(holds[0], holds[1].Start)) > 0 {
		return true
	}
	_, ended := m.follows(v)
	return ended != nil && !m.vote()
}

// unprompted reports whether two clients were granted a lock without a fault before the service
// gave any wrong answer that can have made room for the second: the defect is in the grant.
func (m *model) unprompted(lock string) bool {
	if known, ok := m.unprompt[lock]; ok {
		return known
	}
	if m.unprompt == nil {
		m.unprompt = map[string]bool{}
	}
	wrong := history.Never
	for _, v := range m.distinct() {
		if op, ok := m.answered(v); ok && v.Kind == checker.ForeignRelease && v.Lock == lock {
			wrong = min(wrong, op.Invoke.Time)
		}
	}
	compared := 0
	m.unprompt[lock] = wrong < history.Never && slices.ContainsFunc(m.distinct(), func(v *checker.Violation) bool {
		holds := m.holdsOf(v)
		if v.Kind != checker.DoubleGrant || v.Lock != lock || len(holds) < 2 || holds[1].Start >= wrong || compared == maxCompared || m.origin(v) >= 0 {
			return false
		}
		compared++
		_, ended := m.follows(v)
		_, late := m.lateRelease(holds[0], holds[1], 0)
		return ended == nil && !late
	})
	return m.unprompt[lock]
}

// causeOf is the fault that a violation is grouped under, or -1.
func (m *model) causeOf(v *checker.Violation) int {
	m.causesOf()
	if fault, known := m.originOf[v]; known {
		return fault
	}
	return m.origin(v)
}

// gravestOf is of the gravest kind the violation that lasted longest within the record,
// and the first of those; a request that was overtaken rather than one that asked later.
func (m *model) gravestOf(found []*checker.Violation) *checker.Violation {
	first := found[0]
	for _, v := range found[1:] {
		if cmp.Or(cmp.Compare(severity(v.Kind), severity(first.Kind)), b2i(m.placedAnew(v))-b2i(m.placedAnew(first)), cmp.Compare(m.lasted(first), m.lasted(v))) < 0 {
			first = v
		}
	}
	return first
}

// consequence reports whether violations of a kind may follow from others: they belong to
// the cause of those, if they were there.
func consequence(kind string) bool {
	k, _ := checker.KindOf(kind)
	return k.Consequence || k.Noun == "" // of another version
}

// origins are the faults that caused the violations: their indices, or -1 for none.
func (m *model) origins() map[*checker.Violation]int {
	origin := map[*checker.Violation]int{}
	roots := map[string][]*checker.Violation{} // by lock, in order of time
	proofs := map[*checker.Violation][]*holding.Hold{}
	gone := map[*holding.Hold]int{} // what made the servers grant the lock beside a hold first
	for _, v := range m.distinct() {
		if consequence(v.Kind) {
			continue
		}
		origin[v] = m.origin(v)
		roots[v.Lock], proofs[v] = append(roots[v.Lock], v), m.evidence(v)
		holds := m.holdsOf(v)
		if len(holds) == 0 || m.shared(v.Lock) || v.Kind != checker.DoubleGrant && v.Kind != checker.PrematureLoss {
			continue
		}
		// The servers knew nothing of a hold any more when they granted the lock beside it; what came
		// later did not take it from them.
		if fault, known := gone[holds[0]]; known {
			origin[v] = fault
		} else if v.Kind == checker.DoubleGrant {
			gone[holds[0]] = origin[v]
		}
	}
	for _, v := range m.distinct() {
		if consequence(v.Kind) || origin[v] >= 0 {
			continue
		}
		if before, _ := m.follows(v); before != nil { // they are in order of time
			origin[v] = origin[before]
		}
	}
	m.usual(origin)
	for _, v := range m.distinct() {
		if !consequence(v.Kind) {
			continue
		}
		origin[v] = m.origin(v)
		holds, most := m.evidence(v), 0
		for _, root := range roots[v.Lock] {
			if root.From > v.Until || root.Until < v.From {
				continue
			}
			shared := 0
			for _, h := range proofs[root] {
				shared += b2i(slices.Contains(holds, h))
			}
			// Of several the last that began before it, and first of all one by the same holds.
			if shared >= most {
				origin[v], most = origin[root], shared
			}
		}
	}
	needless := map[string]bool{} // kinds that also came up without any fault
	for v, fault := range origin {
		needless[v.Kind] = needless[v.Kind] || fault < 0
	}
	for v, fault := range origin {
		if fault >= 0 && needless[v.Kind] && m.explains(&m.faults[fault], v) >= weakRank {
			origin[v] = -1
		}
	}
	return origin
}

// fewestUsual is how many violations of a kind without any fault tell how often they come.
const fewestUsual = 10

// usual takes the cause from violations of a kind that came during a fault no more often than
// it does without any: the lock has them all the time.
func (m *model) usual(origin map[*checker.Violation]int) {
	type found struct {
		kind  string
		fault int
	}
	counts, last := map[found]int{}, map[found]time.Duration{}
	for v, fault := range origin {
		of := found{v.Kind, fault}
		counts[of]++
		last[of] = max(last[of], m.since(v))
	}
	for v, fault := range origin {
		of := found{v.Kind, fault}
		without := counts[found{v.Kind, -1}]
		if fault < 0 || without < fewestUsual {
			continue
		}
		f := &m.faults[fault]
		during := max(f.End, last[of]) - f.Start
		if rest := m.end - during; rest > 0 && float64(counts[of]) <= float64(without)*float64(during)/float64(rest) {
			origin[v] = -1
		}
	}
}

// origin is the fault that explains a violation best, of those that were in effect while
// it arose: -1 if there is none.
func (m *model) origin(v *checker.Violation) int {
	from, to := v.From, m.provenAt(v)
	sent, evidence := from, m.withOthers(v, m.evidence(v))
	for _, h := range evidence {
		from, sent = min(from, h.Acquire.Invoke.Time), min(sent, sentAt(h))
	}
	if v.Kind == checker.Overtaken { // a request has its place from when it was made
		sent = from
	}
	best, explains, met := -1, math.MaxInt, false
	where, promoted := m.sceneOf(v, evidence), m.promotedBefore(v, evidence)
	for i := range m.faults {
		f := &m.faults[i]
		hit := f.OK && f.Start <= to && m.settled(f) >= from && m.concerns(f, where)
		if v.Kind == checker.Stuck { // no fault was in effect: it is what an earlier one left
			hit = m.leavesStuck(f, v)
		}
		hit = hit && m.shiftsEnough(f, v, evidence)
		if !hit || f.replacesOnly() && (m.byOneServer(f, v, evidence) || v.Kind == checker.DoubleGrant && f.Start > promoted) {
			continue
		}
		rank := m.explains(f, v)
		if rank < weakRank && v.Kind != checker.Stuck && m.settled(f) < sent {
			continue // it was over before the requests were sent that were granted
		}
		flight := rank == linkRank && m.inFlight(f, evidence) // of several faults of links one that a request met
		if rank >= 0 && (rank < explains || rank == explains && (flight && !met || flight == met && f.Start >= m.faults[best].Start)) {
			best, explains, met = i, rank, flight
		}
	}
	if best < 0 {
		best, _ = m.miscounted(v)
	}
	return best
}

// provenAt is when a violation was there for certain: of the place of a request in a queue once
// that was granted, since a queue that began anew in between gave it.
func (m *model) provenAt(v *checker.Violation) time.Duration {
	if v.Kind == checker.Overtaken {
		return max(v.From, min(v.Until, m.end))
	}
	return m.since(v)
}

// byOneServer reports whether all answers that a violation is about were given by one server,
// as far as it is known. That another server took over, or was cut off, does not explain it.
func (m *model) byOneServer(f *Fault, v *checker.Violation, evidence []*holding.Hold) bool {
	if len(evidence) == 0 {
		return false
	}
	by := m.granter(evidence[0])
	switch v.Kind {
	case checker.DoubleGrant:
		return by != "" && (len(evidence) < 2 || m.granter(evidence[1]) == by)
	case checker.OverCapacity:
		return by != "" && !slices.ContainsFunc(evidence, func(h *holding.Hold) bool { return m.granter(h) != by })
	case checker.PrematureLoss:
		return by != "" && len(v.Events) > 0 && m.answeredBy(f, evidence[0], slices.Max(v.Events)) == by
	default:
		return false
	}
}

// answeredBy is the server that told a holder of a loss; empty where it is not known, or
// where it did not keep its role from the grant on. If the record does not name the server, it
// is the only master that the client could reach, once the fault is known to have made one.
func (m *model) answeredBy(f *Fault, h *holding.Hold, index int64) string {
	told, ok := m.event(index)
	if !ok {
		return ""
	}
	by, made := told.Node, false
	if by == "" {
		by = m.masterOf(h.Owner, told.Time)
	}
	for _, c := range m.roles {
		if c.node == by && c.at >= sentAt(h) && c.at <= told.Time {
			return ""
		}
		made = made || c.role == "master" && c.was != "" && c.at >= f.Start && c.at < sentAt(h)
	}
	if told.Node == "" && !made {
		return ""
	}
	return by
}

// sentAt is when the request was sent that was granted, at the earliest.
func sentAt(h *holding.Hold) time.Duration {
	if sent, ok := lastTry(h); ok {
		return sent
	}
	return h.Acquire.Invoke.Time
}

// promotedBefore is when the last of the servers that made the two grants of a violation was
// promoted, before the second grant: a fault that began later made no master of it. It is
// [history.Never] if no promotion was seen.
func (m *model) promotedBefore(v *checker.Violation, evidence []*holding.Hold) time.Duration {
	promoted := history.Never
	for _, h := range evidence[:min(2, len(evidence))] {
		for _, c := range m.roles {
			if c.node == m.granter(h) && c.role == "master" && c.was != "" && c.at <= m.since(v) && (promoted == history.Never || c.at > promoted) {
				promoted = c.at
			}
		}
	}
	return promoted
}

// settled is when what a fault did was over: of one that makes a new master not before
// the one that it replaced was seen to follow.
func (m *model) settled(f *Fault) time.Duration {
	if !f.OK || !f.has(history.Promotes) || len(m.extraMasters(f.End)) == 0 {
		return f.End
	}
	for _, c := range m.roles {
		if c.at > f.End && len(m.extraMasters(c.at)) == 0 {
			return c.at
		}
	}
	return f.End // it was not looked at
}

// extraMasters are the servers that were seen as masters at an instant, if they were more
// than at the start.
func (m *model) extraMasters(at time.Duration) []string {
	var masters []string
	most := 0
	for _, name := range m.servers() {
		most += b2i(m.roleAt(name, 0) == "master")
		if m.roleAt(name, at) == "master" {
			masters = append(masters, name)
		}
	}
	if most == 0 || len(masters) <= most {
		return nil
	}
	return masters
}

// A scene is where a violation took place, as far as it is known.
type scene struct {
	servers map[string]bool // that granted or answered, or were masters of those locks at that time; nil for any
	masters map[string]bool // of all locks at that time
	zones   map[string]bool // of the clients; nil for any
}

// sceneOf is where the holds and answers of a violation took place.
func (m *model) sceneOf(v *checker.Violation, holds []*holding.Hold) scene {
	from, to := v.From, m.since(v)
	for _, h := range holds {
		from = min(from, h.Acquire.Invoke.Time)
	}
	s := scene{map[string]bool{}, m.mastersIn(from, to), map[string]bool{}}
	for _, h := range holds {
		voters := m.voters(h)
		if len(voters) == 0 { // they are not known of all
			s.servers = nil
		}
		for _, node := range voters {
			if s.servers != nil {
				s.servers[node] = true
			}
		}
		if zone := m.zoneOf(h.Owner); m.isZone(zone) && s.zones != nil {
			s.zones[zone] = true
		} else {
			s.zones = nil
		}
	}
	if len(holds) == 0 || s.servers == nil {
		s.servers = nil
		return s
	}
	for _, index := range v.Events {
		if e, ok := m.event(index); ok && e.Node != "" {
			s.servers[e.Node] = true
		}
	}
	shards := map[string]bool{}
	for node := range s.servers {
		shards[m.shardOf(node)] = true
	}
	for server := range s.masters {
		if shards[m.shardOf(server)] {
			s.servers[server] = true
		}
	}
	return s
}

// mastersIn are the servers that were masters at some time of a window, as far as it was seen.
func (m *model) mastersIn(from, to time.Duration) map[string]bool {
	masters := map[string]bool{}
	for _, n := range m.Run.Topology.Nodes {
		if n.Role != "" && m.roleAt(n.Name, from) == "master" {
			masters[n.Name] = true
		}
	}
	for _, c := range m.roles {
		if c.role == "master" && c.at >= from && c.at <= to {
			masters[c.node] = true
		}
	}
	return masters
}

func (m *model) isZone(name string) bool {
	return slices.ContainsFunc(m.Run.Topology.Nodes, func(n history.Node) bool { return n.Kind == "zone" && n.Name == name })
}

// shardOf is the server that a server shares its data with as their master at the start.
func (m *model) shardOf(server string) string {
	first := ""
	for _, n := range m.Run.Topology.Nodes {
		if first == "" && n.Role == "master" {
			first = n.Name
		}
	}
	for _, n := range m.Run.Topology.Nodes {
		if n.Name == server && n.Role == "replica" {
			return cmp.Or(n.Of, first) // a record may leave it out where there is one
		}
	}
	return server
}

func (s scene) server(name string) bool { return s.servers == nil || s.servers[name] }
func (s scene) zone(name string) bool   { return s.zones == nil || s.zones[name] }

// concerns reports whether a fault can have touched what happened at a scene: one of
// other servers, of links that lead elsewhere, or of other zones of clients can't.
func (m *model) concerns(f *Fault, s scene) bool {
	if f.Met != nil && *f.Met == 0 {
		return false
	}
	if f.has(history.Promotes) && !f.has(history.Isolates) && s.servers != nil {
		return m.replaces(f, s)
	}
	named, touched := false, false
	for _, n := range m.Run.Topology.Nodes {
		if strings.Contains(f.Target, ">") || !f.hits(n.Name) {
			continue
		}
		switch {
		case n.Kind == "zone":
			named, touched = true, touched || s.zone(n.Name)
		case n.Role != "" || n.Kind == "redis":
			// What a replica has, or its clock shows, matters once it is the master.
			named, touched = true, touched || s.server(n.Name) && (s.servers != nil || len(s.masters) == 0 || s.masters[n.Name] || !f.has(history.ShiftsClock) && !f.has(history.Forgets))
		case n.Kind == "sentinel" && (f.has(history.Stops) || f.has(history.Restarts) || f.has(history.ShiftsClock)):
			named, touched = true, touched || m.promotes(f.Start) // it keeps no lock
		}
	}
	if named {
		return touched
	}
	links := f.links(m.Run.Topology)
	return len(links) == 0 || slices.ContainsFunc(links, func(l history.Link) bool {
		switch {
		case m.isZone(l.From):
			return s.zone(l.From) && (s.server(l.To) || !m.isServer(l.To))
		case m.isServer(l.From):
			return s.server(l.From) || s.server(l.To)
		default:
			return s.server(l.To) || !m.isServer(l.To)
		}
	})
}

// promotes reports whether a server was seen to be promoted from an instant on.
func (m *model) promotes(from time.Duration) bool {
	return slices.ContainsFunc(m.roles, func(c roleChange) bool { return c.at >= from && c.was != "" && c.role == "master" })
}

// replaces reports whether the masters that a fault replaces are those of a scene.
func (m *model) replaces(f *Fault, s scene) bool {
	shard := f.Params["shard"]
	for _, n := range m.Run.Topology.Nodes {
		if shard == "" && n.Role != "" && f.hits(n.Name) {
			shard = m.shardOf(n.Name)
		}
	}
	for _, n := range m.Run.Topology.Nodes {
		if shard == "" && n.Role == "master" { // that of the first
			shard = n.Name
		}
	}
	for server := range s.servers {
		if shard == "" || m.shardOf(server) == shard {
			return true
		}
	}
	return false
}

func (m *model) isServer(name string) bool {
	return slices.ContainsFunc(m.Run.Topology.Nodes, func(n history.Node) bool {
		return n.Name == name && (n.Role != "" || n.Kind == "redis")
	})
}

// replacesOnly reports whether all that a fault does to grants is that another server
// makes them: it does not explain two grants by the same server.
func (f *Fault) replacesOnly() bool {
	return (f.has(history.Promotes) || f.has(history.Isolates)) &&
		!f.has(history.Restarts) && !f.has(history.Forgets) && !f.has(history.Moves)
}

// strong are the effects of faults that explain a violation of a kind in a lock that is
// right as far as it goes, those that explain most first.
func strong(kind string) []history.Effect {
	if kind == checker.UseAfterLease {
		return []history.Effect{history.StopsClient, history.ShiftsClock}
	}
	return []history.Effect{
		history.Promotes, history.Isolates, history.Forgets, history.Restarts, history.ShiftsClock, history.Moves,
	}
}

// weak are the effects that most locks withstand, those that explain most first: what a
// fault with one of them is said to have caused must not come up without it.
func weak() [][]history.Effect {
	return [][]history.Effect{
		{history.StopsClient},
		{history.Suspends},
		{history.Stops},
		{history.Cuts, history.Stalls, history.Loses, history.Withholds, history.Disconnects, history.Delays, history.Refuses},
		strong(""),
	}
}

// The ranks of the first of the weak effects, and of those of links.
const (
	weakRank = 100
	linkRank = weakRank + 3
)

// explains ranks how well a fault explains a violation, by its effects: the lowest is best. It
// is -1 for one that does not.
func (m *model) explains(f *Fault, v *checker.Violation) int {
	kind := v.Kind
	has := func(e history.Effect) bool {
		switch e {
		case history.Restarts:
			return f.has(e) && !m.keepsData(f) && m.forgets(f, v)
		case history.Forgets:
			return f.has(e) && m.forgets(f, v)
		case history.Isolates: // it explains a grant by another server, where one can take over
			return f.has(e) && m.replaceable() && m.tookOver(f)
		default:
			return f.has(e)
		}
	}
	if rank := slices.IndexFunc(strong(kind), has); rank >= 0 {
		return rank
	}
	switch kind { // they are in what a server said, whenever it came
	case checker.Overtaken, checker.FenceRegress, checker.FenceDuplicate, checker.StaleAccess:
		return -1
	}
	for i, effects := range weak() {
		if slices.ContainsFunc(effects, has) {
			return weakRank + i
		}
	}
	return -1
}

// forgets reports whether a server that lost what it had can have forgotten a grant that a
// violation is about: one whose request was sent before the last of the loss. It is said of a
// lock that one client holds, where no other server can take the place of that one and go on
// beside it.
func (m *model) forgets(f *Fault, v *checker.Violation) bool {
	if m.replaceable() || m.shared(v.Lock) || v.Kind != checker.DoubleGrant && v.Kind != checker.PrematureLoss && v.Kind != checker.LostUpdate {
		return true
	}
	until := f.End
	if f.has(history.Stops) { // it grants nothing until it is back
		until = max(f.InEffect, f.Start)
	}
	holds := m.evidence(v)
	return len(holds) == 0 || slices.ContainsFunc(holds, func(h *holding.Hold) bool { return sentAt(h) <= until })
}

// replaceable reports whether another server can take the place of one, as far as it is known.
func (m *model) replaceable() bool {
	nodes := m.Run.Topology.Nodes
	return len(nodes) == 0 || slices.ContainsFunc(nodes, func(n history.Node) bool { return n.Role != "" && n.Role != "master" })
}

// tookOver reports whether another server may have become a master because of a fault: not in a
// record that says the servers' roles, of which none changed, and had no master too many.
func (m *model) tookOver(f *Fault) bool {
	looked := slices.ContainsFunc(m.notes, func(e *history.Event) bool {
		return e.Op == history.Observe && e.What == history.ObserveRole
	})
	return !looked || m.promotes(f.Start) || len(m.extraMasters(f.Start)) > 0 || len(m.extraMasters(f.End)) > 0
}

// keepsData reports whether a server that a fault restarts has all that it had.
func (m *model) keepsData(f *Fault) bool {
	return f.Params["data"] == "kept" || m.option("persistence") == "always" && !f.has(history.Forgets)
}

// causes are those of the violations, each with its story; nil if there are none.
func (m *model) causes() []Cause {
	var all []Cause
	for _, c := range m.causesOf() {
		done := c.Cause
		told := c.told
		done.Title, done.Impact = m.causeTitle(c), m.impact(c)
		done.Servers = m.serversOf(c)
		done.Story = m.violationStory(told)
		done.Cures = m.curesOf(done.Story.Cures)
		if len(all) < maxToldCauses {
			done.Sequence, done.Why = m.sequence(told), m.why(told)
		}
		all = append(all, done)
	}
	return all
}

// causeTitle says what caused how much, and when.
func (m *model) causeTitle(c *group) string {
	if c.fault < 0 {
		if c.From == c.Until {
			return fmt.Sprintf("without any fault, at %s: %s", say.Instant(c.From), kindCounts(c.Violations))
		}
		return fmt.Sprintf("without any fault, %s to %s: %s", say.Instant(c.From), say.Instant(c.Until), kindCounts(c.Violations))
	}
	f := &m.faults[c.fault]
	return fmt.Sprintf("%s, %s to %s: %s", f.label(), say.Instant(f.Start), say.Instant(f.End), kindCounts(c.Violations))
}

// kindCounts are numbers of violations, the gravest kinds first: "87 double grants and 33
// lost updates".
func kindCounts(counts map[string]int) string {
	var kinds []string
	for kind := range counts {
		kinds = append(kinds, kind)
	}
	slices.SortFunc(kinds, func(a, b string) int {
		return cmp.Or(cmp.Compare(severity(a), severity(b)), strings.Compare(a, b))
	})
	for i, kind := range kinds {
		kinds[i] = say.Count(counts[kind], kindNoun(kind))
	}
	return say.List(kinds)
}

// kindNoun names a violation of a kind so that it can be counted.
func kindNoun(kind string) string {
	k, _ := checker.KindOf(kind)
	return cmp.Or(k.Noun, strings.ReplaceAll(kind, "-", " "), "violation")
}

// serversOf are the servers that granted what a cause's violations are about.
func (m *model) serversOf(c *group) []string {
	var servers []string
	for _, v := range c.found {
		for _, h := range m.holdsOf(v) {
			for _, node := range m.voters(h) {
				if !slices.Contains(servers, node) {
					servers = append(servers, node)
				}
			}
		}
	}
	slices.SortFunc(servers, say.Natural)
	return servers
}

// impact says how bad a cause was.
func (m *model) impact(c *group) string {
	from, until := c.From, c.Until
	if c.fault >= 0 {
		from, until = min(from, m.faults[c.fault].Start), max(until, m.faults[c.fault].End)
	}
	asked, unknown := 0, 0
	for i := range m.ops {
		if op := &m.ops[i]; op.Invoke.Op == history.Acquire && op.Invoke.Time <= until && op.Complete.Time >= from {
			asked++
			unknown += b2i(op.Unknown())
		}
	}
	words := fmt.Sprintf("%s within %s, in a record of %s", kindCounts(c.Violations), say.Span(c.Until-c.From), say.Length(m.end))
	if c.Until == c.From {
		words = fmt.Sprintf("%s at %s, in a record of %s", kindCounts(c.Violations), say.Instant(c.From), say.Length(m.end))
	}
	if lost := c.Violations[checker.LostUpdate]; lost > 0 { // each is proven, and more may be lost
		told := say.Count(lost, kindNoun(checker.LostUpdate))
		words = strings.Replace(words, told, "at least "+told, 1)
	}
	if n := len(c.found); n > 1 && c.Violations[checker.LostUpdate] > 0 && c.Violations[checker.LostUpdate] < n {
		words += ", with damage to what the lock protects"
	}
	when := "in that time"
	if from < c.From || until > c.Until {
		when = fmt.Sprintf("from %s to %s", say.Instant(from), say.Instant(until))
	}
	switch {
	case asked < 2 && unknown == 0:
		return words + "."
	case unknown == 0:
		return fmt.Sprintf("%s; all %s %s had a known outcome.", words, say.Count(asked, "request for a lock"), when)
	}
	return fmt.Sprintf("%s; %d of %s %s had no known outcome.", words, unknown, say.Count(asked, "request for a lock"), when)
}
