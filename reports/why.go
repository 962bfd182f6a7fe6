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
func (d *digest) why(v *checker.Violation) *Why {
	headline := d.violationStory(v).Headline
	holds := d.holdsOf(v)
	switch {
	case v.Kind == checker.DoubleGrant && len(holds) > 1:
		return because(headline, d.whyHeld(holds[0]), d.whyGranted(v, holds[0], holds[1]))
	case v.Kind == checker.Stuck:
		return because(headline, d.whyBlocked(v), d.whyEvents(v), d.whyFaults(v))
	default:
		return because(headline, d.whyEvents(v), d.whyFaults(v))
	}
}

// whyHeld is that a client held the lock.
func (d *digest) whyHeld(h *holding.Hold) *Why {
	return because("client "+client(h.Owner)+" "+d.entitled(h),
		because(d.grant(h, false).Text).of(h.Acquire.Complete))
}

// whyGranted is that a second client was granted what the first held.
func (d *digest) whyGranted(v *checker.Violation, first, second *holding.Hold) *Why {
	w := because("client " + client(second.Owner) + " was granted it all the same")
	add := func(more *Why) {
		if more != nil {
			w.Because = append(w.Because, more)
		}
	}
	add(because(d.grant(second, false).Text).of(second.Acquire.Complete))
	add(d.whyForgotten(first, second))
	add(d.whyBothVotes(first, second))
	for _, m := range d.wrongAnswers(first, second.Start) {
		for i := range d.History.Events {
			if e := &d.History.Events[i]; e.Time == m.At && e.Op.OfHolder() && e.Lock == v.Lock {
				add(because(m.Text).of(e))
				break
			}
		}
	}
	if len(w.Because) == 1 {
		add(d.whyFaults(v))
	}
	return w
}

// whyForgotten is that the second grant came from a server that did not know of the first.
func (d *digest) whyForgotten(first, second *holding.Hold) *Why {
	holds := []*holding.Hold{first, second}
	for _, c := range d.roles {
		if c.role != "master" || !d.forgotten(c, holds) {
			continue
		}
		granter := d.granter(first)
		promoted := because(fmt.Sprintf("%s was promoted to master", c.node)).of(d.roleEvent(c))
		for i := range d.faults {
			f := &d.faults[i]
			if f.OK && f.at() <= c.at && f.End >= first.Start && (f.has(history.Stops) || f.has(history.Promotes) || f.has(history.Isolates)) {
				promoted.Because = append(promoted.Because, d.whyFault(f))
			}
		}
		lost := because(fmt.Sprintf("the key that %s had for client %s had not reached %s", granter, client(first.Owner), c.node))
		for i := range d.faults {
			if f := &d.faults[i]; d.isolated(f, first) {
				lost.Because = append(lost.Because, d.whyFault(f))
			}
		}
		if len(lost.Because) == 0 && d.number("replica-acks") == 0 {
			lost.Because = append(lost.Because, because("replication is asynchronous, and the grant counted before a replica had it"))
		}
		return because(fmt.Sprintf("%s did not know of the first grant", c.node), promoted, lost)
	}
	return nil
}

// whyBothVotes is that servers granted it twice.
func (d *digest) whyBothVotes(first, second *holding.Hold) *Why {
	var both *Why
	a := d.voters(first)
	for _, server := range d.voters(second) {
		if !slices.Contains(a, server) {
			continue
		}
		w := because(server+" granted it to both",
			because("to client "+client(first.Owner)).of(first.Acquire.Complete), because("to client "+client(second.Owner)).of(second.Acquire.Complete))
		for i := range d.faults {
			f := &d.faults[i]
			if f.OK && f.hits(server) && f.at() <= second.Start && f.End >= first.Start &&
				(f.has(history.ShiftsClock) || f.has(history.Forgets) || f.has(history.Restarts)) {
				w.Because = append(w.Because, d.whyFault(f))
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
func (d *digest) whyFault(f *Fault) *Why {
	return because(f.happened(d.Run.Topology)).of(d.injection(f))
}

// whyBlocked is that a server still had a key.
func (d *digest) whyBlocked(v *checker.Violation) *Why {
	words := d.blockers(v.Lock, v.From, min(v.Until, d.end)+chart.OneLook)
	if words == "" {
		return nil
	}
	return because(words)
}

// maxWhy bounds what a Why lists of one kind.
const maxWhy = 6

// whyEvents are the events that prove a violation.
func (d *digest) whyEvents(v *checker.Violation) *Why {
	w := because("what the clients were told")
	for _, index := range v.Events {
		if e, ok := d.event(index); ok && len(w.Because) < maxWhy {
			w.Because = append(w.Because, because(d.eventClause(e)).of(e))
		}
	}
	if len(w.Because) == 0 {
		return nil
	}
	slices.SortStableFunc(w.Because, func(a, b *Why) int { return cmp.Compare(*a.At, *b.At) })
	return w
}

// whyFaults are the faults and changes of roles that the story of a violation tells.
func (d *digest) whyFaults(v *checker.Violation) *Why {
	from, to := d.since(v), d.since(v)
	for _, m := range d.violationStory(v).Moments {
		from = min(from, m.At)
	}
	w := because("what was going on")
	for i := range d.faults {
		if f := &d.faults[i]; f.OK && f.at() <= to && d.settled(f) >= from {
			w.Because = append(w.Because, d.whyFault(f))
		}
	}
	for _, c := range d.roles {
		if c.was != "" && c.at >= from && c.at <= to {
			text := c.node + " " + became(c.role)
			if c.role == "master" {
				text = c.node + " was promoted to master"
			}
			w.Because = append(w.Because, because(text).of(d.roleEvent(c)))
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
