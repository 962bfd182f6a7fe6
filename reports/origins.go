package reports

import (
	"math"
	"slices"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
)

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
			// Of several the one that shares most holds with it, and of those the last.
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

// consequence reports whether violations of a kind may follow from others: they belong to
// the cause of those, if they were there.
func consequence(kind string) bool {
	k, _ := checker.KindOf(kind)
	return k.Consequence || k.Noun == "" // of another version
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

// inFlight reports whether a fault was in effect, on a link of its client, while a request
// was under way that the evidence is about.
func (m *model) inFlight(f *Fault, holds []*holding.Hold) bool {
	under := func(op *history.Operation) bool {
		return f.Start <= op.Complete.Time && f.End >= op.Invoke.Time
	}
	links := f.links(m.Run.Topology)
	return slices.ContainsFunc(holds, func(h *holding.Hold) bool {
		zone := m.zoneOf(h.Owner)
		if m.isZone(zone) && !slices.ContainsFunc(links, func(l history.Link) bool { return l.From == zone || m.isServer(l.From) }) {
			return false
		}
		return under(&h.Acquire) || h.Release != nil && under(h.Release) ||
			slices.ContainsFunc(h.Extensions, func(op history.Operation) bool { return under(&op) })
	})
}

// leavesStuck reports whether a fault that was over can have left a lock that no client can
// acquire: it was in effect after the last grant was asked for. If that was given back for
// certain it may have undone the release; else only the lease ends the grant, and only a
// clock can have kept that from ending.
func (m *model) leavesStuck(f *Fault, v *checker.Violation) bool {
	before := m.lastGrant(v.Lock, v.From)
	switch {
	case !f.counts() || f.End > v.From:
		return false
	case before == nil:
		return true
	case f.has(history.ShiftsClock):
		return f.endsLate(before, v.From)
	case before.Release == nil || !before.Release.OK():
		return false
	default:
		return f.End >= before.Acquire.Invoke.Time
	}
}

// lastGrant is the last grant of a lock before an instant; nil if there is none.
func (m *model) lastGrant(lock string, at time.Duration) *holding.Hold {
	var before *holding.Hold
	for i := range m.holds {
		if h := &m.holds[i]; h.Lock == lock && h.Start <= at && (before == nil || h.Start > before.Start) {
			before = h
		}
	}
	return before
}

// follows is the double grant that a violation follows from, and the release that leads from
// one to the other: two clients held, and when the first of them gave the lock back, the hold
// of the second ended with it. There is none where a fault explains the violation itself, and
// of a lock that several clients may hold, where to give one grant back ends no other.
func (m *model) follows(v *checker.Violation) (before *checker.Violation, release *history.Operation) {
	holds := m.holdsOf(v)
	if len(holds) == 0 || v.Kind != checker.DoubleGrant && v.Kind != checker.PrematureLoss || m.shared(v.Lock) || m.origin(v) >= 0 {
		return nil, nil
	}
	until := m.since(v)
	if len(holds) > 1 {
		until = holds[1].Start
	}
	if m.seconds == nil {
		m.seconds = map[*holding.Hold][]*checker.Violation{}
		for _, u := range m.distinct() {
			if both := m.holdsOf(u); u.Kind == checker.DoubleGrant && len(both) > 1 {
				m.seconds[both[1]] = append(m.seconds[both[1]], u)
			}
		}
	}
	for _, u := range m.seconds[holds[0]] {
		other := m.holdsOf(u)[0]
		a, b := m.granter(other), m.granter(holds[0])
		r := other.Release
		if u != v && (a == b || a == "" || b == "") && r != nil && !r.Failed() && r.Complete.Time >= holds[0].Acquire.Invoke.Time && r.Invoke.Time <= until {
			before, release = u, r
		}
	}
	return before, release
}
