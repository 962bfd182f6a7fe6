package causes

import (
	"cmp"
	"slices"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports"
)

// maxSuspects bounds the faults of a cluster, each of which takes two arms.
const maxSuspects = 3

// A Cluster is what violations of one kind have in common that came while the same faults were in
// effect.
type Cluster struct {
	// Kind is that of the violations, and Properties are those that they are of.
	Kind       string
	Properties []string
	// From and Until are the first and the last event of their evidence.
	From, Until time.Duration
	// First is when the first of the violations was there.
	First time.Duration
	// Faults are the faults of the run that took effect until then, in order of time, and Suspects
	// the indices of those that were in effect: at most three, of more the last; where none was, the one that
	// ended last before. Unmeasured are those of which no arm tells what they did alone.
	Faults               []reports.Fault
	Suspects, Unmeasured []int
}

// Clusters are those of a judged run, in order of time, one of each kind and choice of faults: the
// first. Of violations with a fault in common the gravest kind stands for all: the others may follow from it.
func Clusters(in reports.Input) []Cluster {
	results := reports.Summarize(in)
	var effective []reports.Fault
	for _, f := range results.Faults {
		if f.Counts() {
			effective = append(effective, f)
		}
	}
	var all []Cluster
	for _, p := range in.Report.Results {
		if p.Verdict != checker.Invalid {
			continue
		}
		for _, v := range p.Violations {
			all = add(all, clusterOf(p.Name, v, in.History, effective))
		}
	}
	slices.SortStableFunc(all, func(a, b Cluster) int {
		_, first := checker.KindOf(a.Kind)
		_, second := checker.KindOf(b.Kind)
		return cmp.Or(cmp.Compare(first, second), cmp.Compare(a.From, b.From))
	})
	var kept []Cluster
	for _, c := range all {
		if !slices.ContainsFunc(kept, c.follows) && !slices.ContainsFunc(kept, c.repeats) {
			kept = append(kept, c)
		}
	}
	slices.SortStableFunc(kept, func(a, b Cluster) int { return cmp.Compare(a.From, b.From) })
	return kept
}

// clusterOf is the cluster of a single violation.
func clusterOf(property string, v checker.Violation, h *history.History, faults []reports.Fault) Cluster {
	c := Cluster{Kind: v.Kind, Properties: []string{property}, From: v.From, Until: v.From}
	if v.Kind == checker.Stuck {
		c.Until = min(v.Until, h.End())
	} else {
		for _, index := range v.Events {
			if index >= 0 && index < int64(len(h.Events)) {
				at := h.Events[index].Time
				c.From, c.Until = min(c.From, at), max(c.Until, at)
			}
		}
	}
	c.First = c.Until
	since := v.From
	if kind, _ := checker.KindOf(v.Kind); kind.InAnswer {
		since = c.Until
	}
	for _, f := range faults {
		if f.Start > c.Until {
			break
		}
		c.Faults = append(c.Faults, f)
	}
	order, inEffect := nearest(c.Faults, c.From, since)
	c.suspect(order[:min(len(order), max(1, inEffect))])
	return c
}

// nearest orders faults by how near to a violation they were: those that were in effect at some time from one instant
// until another, which it counts, the last that began first; then those that ended before, the last first; then others.
func nearest(all []reports.Fault, from, until time.Duration) (order []int, inEffect int) {
	far := func(i int) (int, time.Duration) {
		switch f := all[i]; {
		case !f.OK:
			return 3, f.Start
		case f.Start > until:
			return 2, f.Start
		case f.End < from:
			return 1, -f.End
		default:
			return 0, -f.Start
		}
	}
	for i := range all {
		order = append(order, i)
		if group, _ := far(i); group == 0 {
			inEffect++
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		first, one := far(a)
		second, other := far(b)
		return cmp.Or(cmp.Compare(first, second), cmp.Compare(one, other))
	})
	return order, inEffect
}

// suspect has faults among those that are measured, while there is room.
func (c *Cluster) suspect(faults []int) {
	for _, f := range faults {
		switch {
		case slices.Contains(c.Suspects, f), slices.Contains(c.Unmeasured, f):
		case len(c.Suspects) < maxSuspects:
			c.Suspects = append(c.Suspects, f)
		default:
			c.Unmeasured = append(c.Unmeasured, f)
		}
	}
	slices.Sort(c.Suspects)
	slices.Sort(c.Unmeasured)
}

// add adds the cluster of a violation to the one that it belongs to: of the same kind, with a suspect in
// common.
func add(all []Cluster, c Cluster) []Cluster {
	at := slices.IndexFunc(all, func(other Cluster) bool { return other.Kind == c.Kind && c.alike(other) })
	if at < 0 {
		return append(all, c)
	}
	a := &all[at]
	if c.Until > a.Until {
		a.Faults = c.Faults
	}
	a.From, a.Until, a.First = min(a.From, c.From), max(a.Until, c.Until), min(a.First, c.First)
	a.suspect(c.Suspects)
	a.suspect(c.Unmeasured)
	if !slices.Contains(a.Properties, c.Properties[0]) {
		a.Properties = append(a.Properties, c.Properties[0])
	}
	return all
}

// alike reports whether two clusters have a suspect in common, or neither has one.
func (c Cluster) alike(other Cluster) bool {
	return len(c.Suspects)+len(other.Suspects) == 0 ||
		slices.ContainsFunc(c.Suspects, func(s int) bool { return slices.Contains(other.Suspects, s) })
}

// follows reports whether the violations may be the consequence of those of a graver kind, which were there
// while the same faults were in effect.
func (c Cluster) follows(other Cluster) bool {
	_, place := checker.KindOf(c.Kind)
	_, graver := checker.KindOf(other.Kind)
	return graver < place && c.alike(other)
}

// repeats reports whether another cluster says the same of faults of the same names.
func (c Cluster) repeats(other Cluster) bool {
	same := func(a, b int) bool { return c.Faults[a].Name == other.Faults[b].Name }
	return c.Kind == other.Kind && slices.EqualFunc(c.Suspects, other.Suspects, same)
}
