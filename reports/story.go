package reports

import (
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/internal/say"
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
	Events []StoryEvent `json:"moments,omitempty"`
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

// maxStory bounds the events of a story, so that it is read in a minute.
const maxStory = 6

// A StoryEvent is one thing that happened: who did what to what. Text is the same as a clause
// that follows its time.
type StoryEvent struct {
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
func (e StoryEvent) said() StoryEvent {
	parts := []string{e.Actor, e.Verb, e.Object}
	if e.Server != "" {
		parts = append(parts, "by", inferred(e.Server, e.Inferred))
	}
	e.Text = strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), " ")
	if e.Detail != "" {
		e.Text += " (" + e.Detail + ")"
	}
	return e
}

// inferred marks what is not in the record.
func inferred(name string, is bool) string {
	if is {
		return "≈ " + name
	}
	return name
}

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
	for _, m := range s.Events {
		parts = append(parts, "At "+say.Instant(m.At)+" "+stop(m.Text))
	}
	for _, words := range append(append([]string{s.InEffectText}, s.Outcome...), s.Weight...) {
		if words != "" {
			parts = append(parts, stop(words))
		}
	}
	if cure := s.cure(); cure != "" {
		parts = append(parts, cure)
	}
	return parts
}

// cure is the sentence that says what helps.
func (s Story) cure() string {
	if len(s.Cures) == 0 {
		return ""
	}
	cures := make([]string, len(s.Cures))
	for i, c := range s.Cures {
		cures[i] = strings.TrimRight(c.Text, ". ")
	}
	return s.Helps() + ": " + strings.Join(cures, "; or ") + "."
}

// Helps says what is known of the cures: a variant of the scenario shows that one prevents the
// violation, or it is one that helps against the kind and was not tried.
func (s Story) Helps() string {
	if slices.ContainsFunc(s.Cures, func(c Cure) bool { return c.Prevents }) {
		return "What prevents it"
	}
	return "What may prevent it"
}

// story tells the first violation with damage, or why there is none. Of a
// script that was cut short it tells where, and of servers that another run took
// over that, whatever was found. A violation before a script was cut short stands.
func (m *model) story() Story {
	if m.told != nil {
		return *m.told
	}
	var s Story
	v := m.violation()
	problem := m.dominantError()
	switch {
	case m.Run.AbortReason != "" && m.Report.Verdict != checker.Invalid, m.Run.ClaimLostTo != "":
		s = m.unknownStory()
	case v != nil:
		s = m.violationStory(v)
		if m.Run.AbortReason != "" {
			problem = "The script was cut short after it, at " + m.Run.AbortReason
		}
	case m.Report.Verdict == checker.Valid:
		s = m.validStory()
	case m.Report.Verdict == checker.Invalid:
		s = m.unprovenStory()
	default:
		s = m.unknownStory()
		if problem != "" && len(m.Missing) == 0 && m.Run.DriverFault == "" { // which says what is behind it
			s.Headline, problem = "Not decided: "+problem, ""
		}
	}
	s.Notice, s.Weight, s.InEffectText = problem, m.aboutLock(), s.InEffect.String()
	m.told = &s
	return s
}

// shortened leaves out what is too much for a story: of the highest rank first, and of one rank the
// oldest.
func shortened(events []StoryEvent) []StoryEvent {
	for len(events) > maxStory {
		at := 0
		for i := range events {
			if events[i].rank > events[at].rank {
				at = i
			}
		}
		events = slices.Delete(events, at, at+1)
	}
	for i := range events {
		events[i].rank = 0
	}
	return events
}

// inEffect are the faults that were in effect at some time of a window.
func (m *model) inEffect(from, to time.Duration) []*Fault {
	var found []*Fault
	for i := range m.faults {
		if f := &m.faults[i]; f.counts() && f.during(from, to) {
			found = append(found, f)
		}
	}
	return found
}
