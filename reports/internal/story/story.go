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
	// InEffect are the faults that were in effect while it arose, nil where that is not known, and
	// InEffectText the same in a sentence.
	InEffect     *InEffect `json:"faults_in_effect,omitempty"`
	InEffectText string    `json:"in_effect,omitempty"`
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

// String is the whole story as one paragraph.
func (s Story) String() string {
	if lines := s.Lines(); len(lines) > 0 {
		return strings.Join(lines, " ")
	}
	return Stop(s.Headline)
}

// Lines are the story without its headline, a sentence or more each.
func (s Story) Lines() []string {
	lines := []string{Stop(s.Notice)}
	for _, e := range s.Events {
		lines = append(lines, "At "+say.Instant(e.At)+" "+Stop(e.Text))
	}
	lines = append(lines, Stop(s.InEffectText))
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

// An InEffect is which faults were in effect while a violation arose. That one of them was the cause it
// does not say: that is measured, and stands in the causes of the results.
type InEffect struct {
	// Injected is how many faults the run had, and Faults are those that were in effect.
	Injected int         `json:"injected"`
	Faults   []FaultTime `json:"faults,omitempty"`
}

// A FaultTime is a fault, and when it was in effect. Of one that is over at once both times are the same.
type FaultTime struct {
	Fault  string        `json:"fault"`
	Target string        `json:"target,omitempty"`
	From   time.Duration `json:"from"`
	Until  time.Duration `json:"until"`

	what string // the fault with its target, and the command that it waited for
}

// timeOf is when a fault was in effect.
func timeOf(f *facts.Fault) FaultTime {
	t := FaultTime{Fault: f.Name, Target: f.Target, From: f.At(), Until: f.End, what: f.Label() + " ("}
	if f.Params["command"] != "" {
		t.what = strings.TrimSuffix(f.Detail(), ")") + ", "
	}
	if !f.Healed && f.End <= f.InEffect {
		t.Until = t.From
	}
	return t
}

// inEffect are the faults that were in effect in a window; nil for a history without a record, of which it is not known.
func inEffect(r *facts.Facts, from, to time.Duration) *InEffect {
	if len(r.Faults) == 0 && r.Run.Command == "" && r.Run.Seed == 0 && r.Run.Topology.Name == "" {
		return nil
	}
	e := &InEffect{Injected: len(r.Faults)}
	for _, f := range r.InEffectIn(from, to) {
		e.Faults = append(e.Faults, timeOf(f))
	}
	return e
}

// String names the faults in a sentence.
func (e *InEffect) String() string {
	const most = 4
	switch {
	case e == nil:
		return ""
	case e.Injected == 0:
		return "No fault was injected."
	case len(e.Faults) == 0:
		return "No fault was in effect at the time."
	}
	var names []string
	for _, f := range e.Faults[:min(most, len(e.Faults))] {
		if say.Instant(f.Until) == say.Instant(f.From) {
			names = append(names, f.what+"at "+say.Instant(f.From)+")")
		} else {
			names = append(names, f.what+"from "+say.Instant(f.From)+" to "+say.Instant(f.Until)+")")
		}
	}
	if more := len(e.Faults) - most; more > 0 {
		names = append(names, say.Count(more, "other"))
	}
	return "In effect at the time: " + say.List(names) + "."
}
