package reports

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports/internal/chart"
)

// A Why is something that happened, with what it followed from. What follows from nothing
// else here is an event.
type Why struct {
	Text string         `json:"text"`
	At   *time.Duration `json:"at,omitempty"`
	// Event is the index of the event; absent for what follows from several, or from how
	// locks and servers work.
	Event   *int64 `json:"event,omitempty"`
	Because []*Why `json:"because,omitempty"`
}

// because is something that follows from others; those that are nil are left out.
func because(text string, of ...*Why) *Why {
	w := &Why{Text: text}
	for _, one := range of {
		if one != nil {
			w.Because = append(w.Because, one)
		}
	}
	return w
}

// of is the event of a Why, with its time.
func (w *Why) of(e *history.Event) *Why {
	if e != nil {
		w.At, w.Event = &e.Time, &e.Index
	}
	return w
}

// why is what a violation followed from, as far as the record shows.
func (m *model) why(v *checker.Violation) *Why {
	headline := m.violationStory(v).Headline
	holds := m.holdsOf(v)
	switch {
	case v.Kind == checker.DoubleGrant && len(holds) > 1:
		return because(headline, m.whyHeld(holds[0]), m.whyGranted(v, holds[0], holds[1]))
	case v.Kind == checker.Stuck:
		return because(headline, m.whyBlocked(v), m.whyEvents(v), m.whyFaults(v))
	default:
		return because(headline, m.whyEvents(v), m.whyFaults(v))
	}
}

// whyHeld is that a client held the lock.
func (m *model) whyHeld(h *holding.Hold) *Why {
	return because("client "+client(h.Owner)+" "+m.entitled(h),
		because(m.grant(h, false).Text).of(h.Acquire.Complete))
}

// whyGranted is that a second client was granted what the first held.
func (m *model) whyGranted(v *checker.Violation, first, second *holding.Hold) *Why {
	w := because("client " + client(second.Owner) + " was granted it all the same")
	add := func(more *Why) {
		if more != nil {
			w.Because = append(w.Because, more)
		}
	}
	add(because(m.grant(second, false).Text).of(second.Acquire.Complete))
	add(m.whyForgotten(first, second))
	add(m.whyBothVotes(first, second))
	for _, ev := range m.wrongAnswers(first, second.Start) {
		for i := range m.History.Events {
			if e := &m.History.Events[i]; e.Time == ev.At && e.Op.OfHolder() && e.Lock == v.Lock {
				add(because(ev.Text).of(e))
				break
			}
		}
	}
	if len(w.Because) == 1 {
		add(m.whyFaults(v))
	}
	return w
}

// whyForgotten is that the second grant came from a server that did not know of the first.
func (m *model) whyForgotten(first, second *holding.Hold) *Why {
	holds := []*holding.Hold{first, second}
	for _, c := range m.roles {
		if c.role != "master" || !m.forgotten(c, holds) {
			continue
		}
		granter := m.granter(first)
		promoted := because(fmt.Sprintf("%s was promoted to master", c.node)).of(m.roleEvent(c))
		for i := range m.faults {
			f := &m.faults[i]
			if f.OK && f.at() <= c.at && f.End >= first.Start && (f.has(history.Stops) || f.has(history.Promotes) || f.has(history.Isolates)) {
				promoted.Because = append(promoted.Because, m.whyFault(f))
			}
		}
		lost := because(fmt.Sprintf("the key that %s had for client %s had not reached %s", granter, client(first.Owner), c.node))
		for i := range m.faults {
			if f := &m.faults[i]; m.isolated(f, first) || f.keepsFrom(c.node, granter, m.Run.Topology) && f.at() <= first.Acquire.Invoke.Time && f.End >= first.Start {
				lost.Because = append(lost.Because, m.whyFault(f))
			}
		}
		if len(lost.Because) == 0 {
			lost.Because = append(lost.Because, because("replication is asynchronous"))
		}
		lost.Because = append(lost.Because, because(fmt.Sprintf("the grant counted although %s had not acknowledged it", c.node)).of(first.Acquire.Complete))
		return because(fmt.Sprintf("%s did not know of the first grant", c.node), promoted, lost)
	}
	return nil
}

// whyBothVotes is that servers granted it twice.
func (m *model) whyBothVotes(first, second *holding.Hold) *Why {
	var both *Why
	a := m.voters(first)
	for _, server := range m.voters(second) {
		if !slices.Contains(a, server) {
			continue
		}
		w := because(server+" granted it to both",
			because("to client "+client(first.Owner)).of(first.Acquire.Complete), because("to client "+client(second.Owner)).of(second.Acquire.Complete))
		for i := range m.faults {
			f := &m.faults[i]
			if f.OK && f.hits(server) && f.at() <= second.Start && f.End >= first.Start &&
				(f.has(history.ShiftsClock) || f.has(history.Forgets) || f.has(history.Restarts)) {
				w.Because = append(w.Because, m.whyFault(f))
			}
		}
		if both == nil {
			both = w
		} else {
			both.Because = append(both.Because, w)
		}
	}
	return both
}

// whyFault is that a fault was in effect.
func (m *model) whyFault(f *Fault) *Why {
	return because(f.happened(m.Run.Topology)).of(m.injection(f))
}

// whyBlocked is that a server still had a key.
func (m *model) whyBlocked(v *checker.Violation) *Why {
	words := m.blockers(v.Lock, v.From, min(v.Until, m.end)+chart.OneLook)
	if words == "" {
		return nil
	}
	return because(words)
}

// maxWhy bounds what a Why lists of one kind.
const maxWhy = 6

// whyEvents are the events that prove a violation.
func (m *model) whyEvents(v *checker.Violation) *Why {
	w := because("what the clients were told")
	for _, index := range v.Events {
		if e, ok := m.event(index); ok && len(w.Because) < maxWhy {
			w.Because = append(w.Because, because(m.eventClause(e)).of(e))
		}
	}
	if len(w.Because) == 0 {
		return nil
	}
	slices.SortStableFunc(w.Because, func(a, b *Why) int { return cmp.Compare(*a.At, *b.At) })
	return w
}

// whyFaults are the faults and changes of roles that the story of a violation tells.
func (m *model) whyFaults(v *checker.Violation) *Why {
	from, to := m.since(v), m.provenAt(v)
	for _, ev := range m.violationStory(v).Events {
		from = min(from, ev.At)
	}
	w := because("what was going on")
	for i := range m.faults {
		if f := &m.faults[i]; f.OK && f.at() <= to && m.settled(f) >= from {
			w.Because = append(w.Because, m.whyFault(f))
		}
	}
	for _, c := range m.roles {
		if c.was != "" && c.at >= from && c.at <= to {
			text := c.node + " " + became(c.role)
			if c.role == "master" {
				text = c.node + " was promoted to master"
			}
			w.Because = append(w.Because, because(text).of(m.roleEvent(c)))
		}
	}
	if len(w.Because) == 0 {
		return nil
	}
	slices.SortStableFunc(w.Because, func(a, b *Why) int {
		if a.At == nil || b.At == nil {
			return 0
		}
		return cmp.Compare(*a.At, *b.At)
	})
	if extra := len(w.Because) - maxWhy; extra > 0 {
		w.Because = w.Because[extra:]
	}
	return w
}
