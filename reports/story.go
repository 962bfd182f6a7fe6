package reports

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/reports/internal/chart"
)

// A Story is what happened in plain words, generated from the events alone.
type Story struct {
	// Headline says it in one line, without a full stop.
	Headline string `json:"headline"`
	// Notice is what a reader must know beside it: an error that most operations
	// met. Empty: nothing.
	Notice string `json:"notice,omitempty"`
	// Moments are what led to it, in order of time.
	Moments []Moment `json:"moments,omitempty"`
	// Outcome are the sentences that follow from the moments.
	Outcome []string `json:"outcome,omitempty"`
	// Weight is what a reader has to know of the lock to weigh the verdict: what it
	// does not promise, and what came of the control.
	Weight []string `json:"weight,omitempty"`
	// Cures are what would have prevented it, or if they are Untried what fits the events.
	Cures   []string `json:"cures,omitempty"`
	Untried bool     `json:"untried,omitempty"`
}

// A Moment is one thing that happened, as a clause that follows its time.
type Moment struct {
	At   time.Duration `json:"at"`
	Kind string        `json:"kind"`
	Text string        `json:"text"`
}

// The kinds of moment.
const (
	MomentFault     = "fault"     // a fault began or ended
	MomentServer    = "server"    // a server changed its role, or was looked at
	MomentGrant     = "grant"     // a client was granted the lock
	MomentLock      = "lock"      // a lock was extended, released or lost
	MomentAccess    = "access"    // the protected resource was used
	MomentViolation = "violation" // the instant at which the promise was broken
)

// String is the whole story as one paragraph.
func (s Story) String() string {
	parts := s.lines()
	if len(parts) == 0 {
		return stop(s.Headline)
	}
	return strings.Join(parts, " ")
}

// lines are the story without its headline, a sentence or more each.
func (s Story) lines() []string {
	var parts []string
	if s.Notice != "" {
		parts = append(parts, stop(s.Notice))
	}
	for _, m := range s.Moments {
		parts = append(parts, "At "+say.Instant(m.At)+" "+stop(m.Text))
	}
	parts = append(append(parts, s.Outcome...), s.Weight...)
	if cure := s.cure(); cure != "" {
		parts = append(parts, cure)
	}
	return parts
}

// cure is the sentence that says what would have helped.
func (s Story) cure() string {
	if len(s.Cures) == 0 {
		return ""
	}
	cures := make([]string, len(s.Cures))
	for i, c := range s.Cures {
		cures[i] = strings.TrimRight(c, ". ")
		if !s.Untried && !shown(c) {
			cures[i] += " (which no variant shows)"
		}
	}
	return s.helps() + ": " + strings.Join(cures, "; or ") + "."
}

// helps says what is known of the cures: the variants of a scenario show that its cures
// prevent it; what fits the events of a random run was not tried.
func (s Story) helps() string {
	if s.Untried {
		return "What may prevent it"
	}
	return "What would have prevented it"
}

// story tells the violation that explains most, or why there is none. Of a
// script that was cut short it tells where, and of servers that another run took
// over that, whatever was found.
func (d *digest) story() Story {
	if d.told != nil {
		return *d.told
	}
	var s Story
	v := d.violation()
	switch complaint := d.complaint(); {
	case d.Run.AbortReason != "", d.Run.ClaimLostTo != "":
		s = d.unknownStory()
		s.Notice = complaint
	case v != nil:
		s = d.violationStory(v)
		s.Notice = complaint
	case d.Report.Verdict == checker.Valid:
		s = d.validStory()
		s.Notice = complaint
	case d.Report.Verdict == checker.Invalid:
		s = d.unprovenStory()
		s.Notice = complaint
	default:
		s = d.unknownStory()
		if complaint != "" && len(d.Missing) == 0 && d.Run.DriverFault == "" { // which says what is behind it
			s.Headline = "Not decided: " + complaint
		}
	}
	s.Weight = d.aboutLock()
	d.told = &s
	return s
}

// violationStory tells a violation, once.
func (d *digest) violationStory(v *checker.Violation) Story {
	s, known := d.tellings[v]
	if !known {
		s = d.tell(v)
		if d.tellings == nil {
			d.tellings = map[*checker.Violation]Story{}
		}
		d.tellings[v] = s
	}
	return s
}

func (d *digest) tell(v *checker.Violation) Story {
	var s Story
	d.cause = d.causeOf(v)
	switch v.Kind {
	case checker.DoubleGrant:
		s = d.doubleGrant(v)
	case checker.UseAfterLease:
		s = d.useAfterLease(v)
	case checker.LostUpdate:
		s = d.lostUpdate(v)
	case checker.ForeignRelease:
		s = d.foreignRelease(v)
	case checker.PrematureLoss:
		s = d.prematureLoss(v)
	case checker.OverCapacity:
		s = d.overCapacity(v)
	case checker.Reentrancy:
		s = d.reentrancy(v)
	case checker.FenceRegress, checker.FenceDuplicate:
		s = d.tokens(v)
	case checker.StaleAccess:
		s = d.staleAccess(v)
	case checker.Stuck:
		s = d.stuck(v)
	case checker.Overtaken:
		s = d.overtaken(v)
	default:
		s = d.otherViolation(v)
	}
	slices.SortStableFunc(s.Moments, func(a, b Moment) int { return cmp.Compare(a.At, b.At) })
	if words := d.fencingWords(v.Lock); words != "" {
		s.Outcome = append(s.Outcome, words)
	}
	if n := effective(d.faults); n > 0 && d.cause < 0 && d.Run.Scenario == "" {
		words := fmt.Sprintf("None of the %s explains it, as far as the record shows.", say.Count(n, "fault"))
		if n == 1 {
			words = "The fault does not explain it, as far as the record shows."
		}
		s.Outcome = append(s.Outcome, words)
	}
	if d.kindOf(v.Lock) == history.KindSemaphore { // holders of permits have several tokens at a time
		s.Cures = slices.DeleteFunc(s.Cures, func(cure string) bool { return cure == fenceCure })
	}
	if s.Cures = d.cures(s.Cures); len(s.Cures) == 0 {
		s.Outcome = append(s.Outcome, d.advice(v)...)
	}
	if more := d.moreViolations(v); more != "" {
		s.Outcome = append(s.Outcome, more)
	}
	s.Untried = len(s.Cures) > 0 && !slices.ContainsFunc(s.Cures, shown)
	return s
}

// shown reports whether a variant of the scenario shows that a cure helps.
func shown(cure string) bool { return shownBy(cure) != nil }

// moreViolations says how many there are beside the one that is told.
func (d *digest) moreViolations(told *checker.Violation) string {
	if causes := d.causesOf(); len(causes) > 1 {
		for _, c := range causes {
			if slices.Contains(c.found, told) && len(c.found) > 1 {
				return "In all it is the cause of " + kindCounts(c.Violations) + "."
			}
		}
		return ""
	}
	alike, kinds, others := 0, []string{}, 0
	var seen [][]int64
	for _, r := range d.Report.Results {
		if r.Verdict != checker.Invalid {
			continue
		}
		n := max(r.Total, len(r.Violations))
		for i := range r.Violations {
			// Another engine's finding in the same events is the same finding.
			events := r.Violations[i].Events
			if slices.Equal(events, told.Events) || r.Violations[i].Kind == checker.NotLinearizable &&
				slices.ContainsFunc(seen, func(s []int64) bool { return slices.Equal(s, events) }) {
				n--
			}
			seen = append(seen, events)
		}
		switch {
		case n <= 0:
		case len(r.Violations) > 0 && r.Violations[0].Kind == told.Kind:
			alike += n
		default:
			others += n
			kinds = append(kinds, r.Name)
		}
	}
	var parts []string
	if alike > 0 {
		parts = append(parts, "And "+say.Thousands(int64(alike))+" more like it.")
	}
	if others > 0 {
		parts = append(parts, fmt.Sprintf("Also violated: %s (%s).", say.List(kinds), say.Count(others, "violation")))
	}
	return strings.Join(parts, " ")
}

// grant is the moment at which a hold began.
func (d *digest) grant(h *holding.Hold, violates bool) Moment {
	m := Moment{At: h.Start, Kind: MomentGrant}
	if violates {
		m.Kind = MomentViolation
	}
	m.Text = d.who(h) + " was granted " + h.Lock
	if h.Mode != history.Exclusive && h.Mode != "" {
		m.Text += " (" + string(h.Mode) + ")"
	}
	if voters := d.voters(h); len(voters) > 0 {
		m.Text += " by " + say.List(voters)
	}
	if h.Token != 0 {
		m.Text += fmt.Sprintf(" with token %d", h.Token)
	}
	m.Text += " and " + d.entitled(h)
	return m
}

// entitled says until when a holder may believe.
func (d *digest) entitled(h *holding.Hold) string {
	until := believes(h)
	switch {
	case until == history.Never:
		return "was entitled to hold it until told otherwise, which the record does not show"
	case until <= h.Start:
		return "learned it when its lease had run out, at " + say.Instant(until)
	case until < h.End:
		return "was entitled to hold it until " + say.Instant(until)
	case h.Ended == holding.EndReleased:
		return "held it until it gave it back at " + say.Instant(until)
	case h.Ended == holding.EndLost:
		return "held it until it was told at " + say.Instant(until) + " that it is lost"
	default:
		return "was entitled to hold it until " + say.Instant(until)
	}
}

// believes is until when a holder was entitled to hold: no later than its
// hold is certain.
func believes(h *holding.Hold) time.Duration {
	if n := len(h.Belief); n > 0 {
		return min(h.End, h.Belief[n-1].Until)
	}
	return h.End
}

// who names the client of a hold.
func (d *digest) who(h *holding.Hold) string { return "client " + client(h.Owner) }

// whoOf names the client of an event: by its owner, else by the last owner
// that its process used.
func (d *digest) whoOf(e *history.Event) string {
	if e.Owner != "" {
		return "client " + client(e.Owner)
	}
	if holds := d.holdIndex().process[e.Process]; len(holds) > 0 {
		return "client " + client(holds[0].Owner)
	}
	return fmt.Sprintf("process %d", e.Process)
}

// maxBackground bounds the moments of the background, so that a run with many
// faults at once still reads in a minute.
const maxBackground = 6

// background are the faults and the servers' changes that were in effect at
// some time of a window, and began before its end.
func (d *digest) background(from, to time.Duration, holders ...*holding.Hold) []Moment {
	begin := from
	var moments, cause []Moment
	var before *Fault // the one that was told last, if another may join it
	for i := range d.faults {
		f := &d.faults[i]
		if !f.OK || f.Start > to || d.settled(f) < from {
			continue
		}
		if n := len(moments); before != nil && before.joins(f) && (len(holders) == 0 || !d.isolated(f, holders[0])) && (!f.Healed || d.back(f) > to) {
			both := *before
			both.Target, both.Effect = before.Target+" "+f.Target, ""
			moments[n-1].Text = both.happened(d.Run.Topology)
			before = &both
			if i == d.cause || len(cause) > 0 && cause[0].At == moments[n-1].At {
				cause = moments[n-1 : n : n]
			}
			continue
		}
		before = nil
		begin = min(begin, f.Start)
		if f.at() > to {
			moments = append(moments, Moment{
				At: f.Start, Kind: MomentFault,
				Text: fmt.Sprintf("the fault %s was asked for; its effect was observed at %s", f.label(), say.Instant(f.InEffect)),
			})
			if i == d.cause {
				cause = slices.Clone(moments[len(moments)-1:])
			}
			continue
		}
		text := f.happened(d.Run.Topology)
		if len(holders) > 0 && d.isolated(f, holders[0]) {
			text += ", so that nothing " + d.granter(holders[0]) + " granted from then on could reach another server"
		}
		moments = append(moments, Moment{At: f.at(), Kind: MomentFault, Text: text})
		if i == d.cause {
			cause = slices.Clone(moments[len(moments)-1:])
		}
		if (len(holders) == 0 || !d.isolated(f, holders[0])) && (!f.Healed || d.back(f) > to) {
			before = f
		}
		if back := d.back(f); f.Healed && back <= to {
			moments = append(moments, Moment{At: back, Kind: MomentFault, Text: f.healed(d.Run.Topology)})
		} else if asked := d.healAsked(f); f.Healed && f.keeps() && asked >= f.at() && asked <= to {
			moments = append(moments, Moment{At: asked, Kind: MomentFault, Text: "the heal of " + f.label() + " began"})
		}
	}
	moments = append(moments, d.serverMoments(begin, to, holders)...)
	slices.SortStableFunc(moments, func(a, b Moment) int { return cmp.Compare(a.At, b.At) })
	if extra := len(moments) - maxBackground; extra > 0 {
		kept := moments[extra:]
		if len(cause) > 0 && !slices.Contains(kept, cause[0]) { // what is told as the cause is never left out
			kept = append(cause, kept[1:]...)
		}
		moments = slices.Clone(kept)
		moments[0].Text += fmt.Sprintf(" (%s before it not told here)", say.Count(extra, "event"))
	}
	return moments
}

// keeps reports whether a fault keeps something back that its heal lets go, at once and so before
// the heal is answered.
func (f *Fault) keeps() bool {
	return slices.ContainsFunc([]history.Effect{history.Delays, history.Stalls, history.Withholds, history.StopsClient}, f.has)
}

// joins reports whether two faults are told as one: the same was done to two links at
// about the same time.
func (f *Fault) joins(g *Fault) bool {
	return f.Name == g.Name && strings.Contains(f.Target, ">") && strings.Contains(g.Target, ">") && maps.Equal(f.Params, g.Params) && f.at() <= g.at() && g.at()-f.at() <= chart.OneLook
}

// isolated reports whether a fault kept a grant from every other server: it was
// in effect before the grant was asked for, and on all replication links of
// the server that granted. The links are those at the start of the run.
func (d *digest) isolated(f *Fault, h *holding.Hold) bool {
	return f.severs(d.granter(h), d.Run.Topology) && f.at() <= h.Acquire.Invoke.Time && f.End >= h.Start
}

// serverMoments are the promotions and demotions of a window, and what was
// seen of the lock's key in it.
func (d *digest) serverMoments(from, to time.Duration, holders []*holding.Hold) []Moment {
	var moments []Moment
	for _, c := range d.roles {
		if c.at == 0 || c.at < from || c.at > to {
			continue
		}
		text := c.node + " " + became(c.role)
		if c.role == "master" {
			text = c.node + " was promoted to master"
			if d.forgotten(c, holders) {
				text += " and knew nothing of that grant"
			}
		}
		moments = append(moments, Moment{At: c.at, Kind: MomentServer, Text: text})
	}
	if len(holders) > 0 {
		moments = append(moments, d.keyMoments(holders[0].Lock, from, to)...)
	}
	return moments
}

// keyMoments are the looks at a lock's key: which servers had it, and whose.
func (d *digest) keyMoments(lock string, from, to time.Duration) []Moment {
	var moments []Moment
	var look Moment
	var owners, without []string
	with := map[string][]string{}
	end := func() {
		if len(owners) > 0 || len(without) > 0 {
			look.Text = keyWords(lock, owners, with, without)
			moments = append(moments, look)
		}
		owners, without = nil, nil
		clear(with)
	}
	for _, l := range d.looksAt(lock) {
		if l.at < from || l.at > to {
			continue
		}
		if len(owners)+len(without) == 0 || l.at-look.At > chart.OneLook {
			end()
			look = Moment{At: l.at, Kind: MomentServer}
		}
		if l.owner == "" {
			without = append(without, l.server)
			continue
		}
		if with[l.owner] == nil {
			owners = append(owners, l.owner)
		}
		with[l.owner] = append(with[l.owner], l.server)
	}
	end()
	return moments
}

// keyWords say what one look at several servers found.
func keyWords(lock string, owners []string, with map[string][]string, without []string) string {
	if len(owners) == 0 {
		return say.List(without) + " had no holder of " + lock
	}
	var parts []string
	for _, owner := range owners {
		parts = append(parts, say.List(with[owner])+" had client "+client(owner)+" as the holder of "+lock)
	}
	s := strings.Join(parts, ", ")
	if len(without) > 0 {
		s += "; " + say.List(without) + " had none"
	}
	return s
}

// forgotten reports whether a promoted server granted the lock again although
// another server had granted it before the promotion.
func (d *digest) forgotten(c roleChange, holders []*holding.Hold) bool {
	if len(holders) < 2 {
		return false
	}
	first, second := d.granter(holders[0]), d.granter(holders[1])
	return first != "" && first != c.node && second == c.node &&
		holders[0].Start <= c.at && c.at <= holders[1].Start
}
