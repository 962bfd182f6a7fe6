// Package story tells what happened in a run: the events that led to a violation as data, one row of data for each
// kind of violation and for each mitigation. Words are made of it last.
package story

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/reports/internal/facts"
)

// A Story is what happened in plain words, generated from the record alone. It says which faults
// were in effect at the time, and never that one of them was the cause: that is measured by playing
// the run again.
type Story struct {
	// Headline says it in one line, without a full stop.
	Headline string `json:"headline"`
	// Notice is what a reader must know beside it: an error that most operations
	// met. Empty: nothing.
	Notice string `json:"notice,omitempty"`
	// Events are what led to it, in order of time: at most six.
	Events []Event `json:"moments,omitempty"`
	// Outcome are the sentences that follow from the events.
	Outcome []string `json:"outcome,omitempty"`
	// InEffect says which faults were in effect while it arose. Empty where that is not known.
	InEffect string `json:"in_effect,omitempty"`
	// Weight is what a reader has to know of the lock to weigh the verdict: what it
	// does not promise, and what came of the control.
	Weight []string `json:"weight,omitempty"`
	// Cures are what helps against violations of this kind and was not in place.
	Cures []Cure `json:"cures,omitempty"`
	// Look is where the code of a lock can be wrong that has such a violation; empty
	// where there is nothing to say.
	Look string `json:"look,omitempty"`
}

// An Event is one thing that happened: who did what to what. Text is the same as a clause
// that follows its time.
type Event struct {
	At   time.Duration `json:"at"`
	Kind string        `json:"kind"`
	// Actor did, or met, what Verb says: a client, a server or a fault. Object is a lock or a
	// resource, and Server which server answered; each is empty where there is none.
	Actor  string `json:"actor"`
	Verb   string `json:"verb"`
	Object string `json:"object,omitempty"`
	Server string `json:"server,omitempty"`
	// Inferred says that Server is not in the record, and follows from roles and links.
	Inferred bool   `json:"inferred,omitempty"`
	Detail   string `json:"detail,omitempty"`
	Text     string `json:"text"`

	rank int // 0 for what a story is not told without; the highest is left out first
}

// The kinds of event.
const (
	EventFault     = "fault"     // a fault began or ended
	EventServer    = "server"    // a server changed its role, or was looked at
	EventGrant     = "grant"     // a client was granted the lock
	EventLock      = "lock"      // a lock was extended, released or lost
	EventAccess    = "access"    // the protected resource was used
	EventViolation = "violation" // the instant at which the promise was broken
)

// said is the event with its text.
func (e Event) said() Event {
	parts := []string{e.Actor, e.Verb, e.Object}
	if e.Server != "" {
		parts = append(parts, "by", facts.Inferred(e.Server, e.Inferred))
	}
	e.Text = joined(" ", parts...)
	if e.Detail != "" {
		e.Text += " (" + e.Detail + ")"
	}
	return e
}

// joined joins those of some texts that are not empty.
func joined(with string, parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), with)
}

// maxEvents bounds the events of a story, so that it is read in a minute.
const maxEvents = 6

// shortened are events in order of time, with their texts, without what is too much for a story: of the highest rank
// first, and of one rank the oldest.
func shortened(events []Event) []Event {
	for i := range events {
		events[i] = events[i].said()
	}
	slices.SortStableFunc(events, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	events = slices.CompactFunc(events, func(a, b Event) bool { return a.At == b.At && a.Text == b.Text })
	for len(events) > maxEvents {
		at := 0
		for i := range events {
			if events[i].rank > events[at].rank {
				at = i
			}
		}
		events = slices.Delete(events, at, at+1)
	}
	return events
}

// Looks reports whether it says more where to look in a lock than what may prevent it: nothing does, or stops the damage alone.
func (s Story) Looks() bool { return s.Look != "" && (len(s.Cures) == 0 || s.Cures[0].ID == fencing) }

// Stop ends a sentence that does not end yet.
func Stop(s string) string {
	if s = strings.TrimSpace(s); s == "" || strings.HasSuffix(s, ".") {
		return s
	}
	return s + "."
}

// sentence makes a clause one, unless it begins with the name of a process or of an attempt.
func sentence(s string) string {
	if len(s) > 1 && s[0] >= 'a' && s[0] <= 'z' && s[1] != '#' && (s[1] < '0' || s[1] > '9') {
		s = strings.ToUpper(s[:1]) + s[1:]
	}
	return Stop(s)
}

// Lines are the story without its headline, a sentence or more each.
func (s Story) Lines() []string {
	lines := []string{Stop(s.Notice)}
	for _, e := range s.Events {
		lines = append(lines, "At "+say.Instant(e.At)+" "+Stop(e.Text))
	}
	lines = append(lines, Stop(s.InEffect))
	for _, words := range append(slices.Clone(s.Outcome), s.Weight...) {
		lines = append(lines, Stop(words))
	}
	if len(s.Cures) > 0 {
		var cures []string
		for _, c := range s.Cures {
			cures = append(cures, strings.TrimRight(c.Text, ". "))
		}
		lines = append(lines, "What may prevent it: "+strings.Join(cures, "; or ")+".")
	}
	return slices.DeleteFunc(lines, func(line string) bool { return line == "" })
}

// recorded reports whether there is a record of the run beside its history, so that it is known which faults it had.
func recorded(r *facts.Facts) bool {
	return len(r.Faults) > 0 || r.Run.Command != "" || r.Run.Seed != 0 || r.Run.Topology.Name != ""
}

// inEffect says which faults were in effect when a violation arose, and which had ended before: those since its first
// request, and those that were measured. Empty where that is not known. That one of them was the cause it
// does not say: that is measured, and stands in the causes of the results.
func (t *telling) inEffect() string {
	var during, before []*facts.Fault
	for i := range t.r.Faults {
		switch f := &t.r.Faults[i]; {
		case slices.Contains(t.effective, f) && !f.OverBy(t.v.From):
			during = append(during, f)
		case slices.Contains(t.effective, f), f.Counts() && f.OverBy(t.v.From) && f.Role(t.cause) != "":
			before = append(before, f)
		}
	}
	said := "No fault was in effect at the time."
	switch {
	case !recorded(t.r):
		return ""
	case len(t.r.Faults) == 0:
		return "No fault was injected."
	case len(during) > 0:
		said = "In effect at the time: " + faultNames(during) + "."
	}
	if len(before) > 0 {
		said += " Before it: " + faultNames(before) + "."
	}
	return said
}

// faultNames are faults with their times, and what of their parameters a reader can't do without.
func faultNames(all []*facts.Fault) string {
	const most = 4
	var names []string
	for _, f := range all[:min(most, len(all))] {
		what := f.Label() + " ("
		if f.Params["command"] != "" || f.Params["data"] != "" {
			what = strings.TrimSuffix(f.Detail(), ")") + ", "
		}
		begun, over := say.Instant(f.At()), say.Instant(f.End)
		if over == begun || f.Passes() || !f.Healed && f.End <= f.InEffect {
			names = append(names, what+"at "+begun+")")
		} else {
			names = append(names, what+"from "+begun+" to "+over+")")
		}
	}
	if more := len(all) - most; more > 0 {
		names = append(names, say.Count(more, "other"))
	}
	return say.List(names)
}
