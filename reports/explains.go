package reports

import (
	"slices"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
)

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
