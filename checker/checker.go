// Package checker judges a recorded history. Each [Checker] judges one property: its
// verdict is valid, invalid or unknown, and its violations point at the events that
// prove them. [Check] judges a history, [CheckRun] one with what was recorded of its run.
//
// The package imports nothing that makes histories: any program that writes the events of
// package history can have them judged. It logs nothing.
package checker

import (
	"slices"
	"time"

	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
)

// A Verdict is the answer of a check. Unknown is an answer: it never counts as
// Valid.
type Verdict string

// The verdicts.
const (
	Valid   Verdict = "valid"   // the property held
	Invalid Verdict = "invalid" // a violation was found
	Unknown Verdict = "unknown" // it could not be decided, and the summary says why
)

// Worst is the verdict of several: Invalid over Unknown over Valid. Of none it
// is Unknown.
func Worst(verdicts ...Verdict) Verdict {
	switch {
	case slices.Contains(verdicts, Invalid):
		return Invalid
	case len(verdicts) == 0 || slices.Contains(verdicts, Unknown):
		return Unknown
	default:
		return Valid
	}
}

// A Violation is one proof that a property does not hold.
type Violation struct {
	// Kind is the name of one of [Kinds].
	Kind     string `json:"kind"`
	Lock     string `json:"lock,omitempty"`
	Resource string `json:"resource,omitempty"`
	// Events are the indices of the two or three events that prove it.
	Events []int64 `json:"events"`
	// From and Until bound it in time; equal for something that has no length.
	From  time.Duration `json:"from"`
	Until time.Duration `json:"until"`
	// Least is for how long two clients held a lock at the least, where the stamps are of clocks that may be wrong
	// ([CheckWithin]) and say more; else 0.
	Least time.Duration `json:"least,omitempty"`
	// Explanation says it in a sentence, with the times and the owners.
	Explanation string `json:"explanation"`
	// Minimal is a part of the history, whole operations only, that on its own
	// still breaks the property in the same way; empty if it was not asked for
	// (see [Explain]).
	Minimal []history.Event `json:"minimal,omitempty"`
}

// A Result is what one checker found.
type Result struct {
	// Name is the property: mutual-exclusion, assumptions, …
	Name    string  `json:"name"`
	Verdict Verdict `json:"verdict"`
	// Summary says the result in one sentence.
	Summary string `json:"summary"`
	// Engine is how it was decided: "interval sweep", "porcupine", …
	Engine string `json:"engine"`
	// Violations are the first of the Total that were found, in order of time.
	Violations []Violation `json:"violations,omitempty"`
	Total      int         `json:"total,omitempty"`
	// TooClose is how many pairs of holds are so close that clocks which may be wrong do not tell which came first
	// ([CheckWithin]), if that is all that keeps it from being decided; else 0.
	TooClose int `json:"too_close,omitempty"`
	// Coverage counts what it was judged on: holds, grants, answers, accesses, requests, … A
	// property without an occasion is left out of the report: see [Report.NotTested].
	Coverage map[string]int `json:"coverage,omitempty"`
	// Met counts what the history covers, by the names in package history; the
	// assumptions have it.
	Met map[string]int `json:"met,omitempty"`
	// Took is how long it took, without the reading of the history and the
	// derivation of who held what, which all properties share.
	Took time.Duration `json:"took_ns"`
	// Memory is what it kept at one time at the most, in bytes, beside the
	// history: an estimate from the sizes of what it allocates.
	Memory int64 `json:"memory_bytes,omitempty"`
}

// A Report is the results of several checkers over one history.
type Report struct {
	Verdict Verdict  `json:"verdict"`
	Results []Result `json:"properties"`
	// NotTested are the properties for which the history had no occasion: they neither held
	// nor were violated.
	NotTested []string `json:"not_tested,omitempty"`
	// Events is the number of events, and Until the time of the last.
	Events int64         `json:"events,omitempty"`
	Until  time.Duration `json:"until_ns,omitempty"`
	// Took is how long all of it took, reading included where it was read.
	Took time.Duration `json:"took_ns,omitempty"`
	// Record is who held what when, as it was judged, for what goes on from there: it goes with the history as that
	// was then. It is nil where the judge read the history, and so nothing of it is kept.
	Record *holding.Record `json:"-"`
}

// TooClose is how many pairs of holds are so close that the clocks do not tell which came first, if all that is not decided
// is so for that reason; else 0.
func (r Report) TooClose() (pairs int) {
	for i := range r.Results {
		switch result := &r.Results[i]; {
		case result.Verdict == Valid:
		case result.Verdict == Unknown && result.TooClose > 0:
			pairs = max(pairs, result.TooClose)
		default:
			return 0
		}
	}
	return pairs
}
