// Package checker judges a recorded history. Each [Checker] judges one property: its
// verdict is valid, invalid or unknown, and its violations point at the events that
// prove them. [Check] judges a history, [CheckRun] one with what was recorded of its run.
//
// The package imports nothing that makes histories: any program that writes the events of
// package history can have them judged. It logs nothing.
package checker

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
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
		result := &r.Results[i]
		if result.Verdict == Invalid || result.Verdict == Unknown && result.TooClose == 0 {
			return 0
		}
		pairs = max(pairs, result.TooClose)
	}
	return pairs
}

// findings are what a judge has found.
type findings struct {
	violations []Violation // in order of time once they are listed
	doubts     []string    // why it may not say Valid
	counts     map[string]int
	met        map[string]int // what the history covers
	valid      string         // the summary if there is neither
	memory     int64          // that the judge had in use, in bytes
}

func newFindings() *findings { return &findings{counts: map[string]int{}} }

func (f *findings) add(found ...Violation) {
	f.violations = append(f.violations, found...)
}

func (f *findings) doubt(format string, args ...any) {
	if d := fmt.Sprintf(format, args...); !slices.Contains(f.doubts, d) {
		f.doubts = append(f.doubts, d)
	}
}

// unclear says of which locks the account of an owner can't be told.
func (f *findings) unclear(locks []*holding.Lock) {
	for _, l := range locks {
		if l.Unclear != "" {
			f.doubt("lock %q: %s", l.Name, l.Unclear)
		}
	}
}

// maxDoubts is how many reasons a summary gives. Most properties have one or two; a run without
// its workload may lack all that this was there for.
const maxDoubts = 8

func (f *findings) result() Result {
	r := Result{Verdict: Valid, Summary: f.valid, Total: len(f.violations), Memory: f.memory, Met: f.met, Coverage: maps.Clone(f.counts)}
	maps.DeleteFunc(r.Coverage, func(_ string, n int) bool { return n == 0 })
	switch {
	case len(f.violations) > 0:
		slices.SortStableFunc(f.violations, byTime)
		r.Verdict = Invalid
		r.Violations = f.violations[:min(len(f.violations), MaxListed)]
		if r.Summary = say.Count(r.Total, "violation"); r.Total > 1 {
			r.Summary += ", the first"
		}
		r.Summary += ": " + r.Violations[0].Explanation
	case len(f.doubts) > 0:
		r.Verdict = Unknown
		r.Summary = strings.Join(f.doubts[:min(len(f.doubts), maxDoubts)], "; ")
		if n := len(f.doubts) - maxDoubts; n > 0 {
			r.Summary += fmt.Sprintf(" (and %s more)", say.Count(n, "reason"))
		}
	}
	return r
}

// seconds writes t as seconds with the precision of a millisecond, or finer
// where a millisecond would hide that it is not zero.
func seconds(t time.Duration) string {
	if t == history.Never {
		return "the end of the history"
	}
	if t != 0 && t.Abs() < time.Millisecond {
		return strconv.FormatFloat(t.Seconds(), 'f', -1, 64) + " s"
	}
	return fmt.Sprintf("%d.%03d s", t/time.Second, (t%time.Second)/time.Millisecond)
}

// caller names the process and owner of an operation: p3, or p3 (owner a) where the
// owner is another name.
func caller(r *holding.Record, op *holding.Op) string {
	p, owner := "p"+strconv.Itoa(op.Process), r.Name(op.Owner)
	if owner == "" || owner == p {
		return p
	}
	return fmt.Sprintf("%s (owner %s)", p, owner)
}

// holder names who holds a lock.
func holder(l *holding.Lock, h *holding.Grant) string { return caller(l.Record(), h.Acquire) }

// violation is one of a lock, with its explanation.
func violation(kind, lock string, s holding.Span, events []int64, format string, args ...any) Violation {
	return Violation{Kind: kind, Lock: lock, From: s.From, Until: s.Until, Events: events, Explanation: fmt.Sprintf(format, args...)}
}

// instant is a span without a length.
func instant(t time.Duration) holding.Span { return holding.Span{From: t, Until: t} }

// events lists the indices of events in order, without doubles and without
// those that are not in the history.
func events(indices ...int64) []int64 {
	indices = slices.DeleteFunc(indices, func(i int64) bool { return i < 0 })
	slices.Sort(indices)
	return slices.Compact(indices)
}

func byTime(a, b Violation) int {
	return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.Until, b.Until), slices.Compare(a.Events, b.Events))
}

// sorted is a list in order of some time.
func sorted[T any](list []T, at func(T) time.Duration) []T {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b T) int { return cmp.Compare(at(a), at(b)) })
	return list
}

// inTurn looks at each of a list when it begins, in order, and takes before that those whose end was before.
func inTurn[T any](list []T, begin, end func(T) time.Duration, take, look func(T)) {
	ended := sorted(list, end)
	for _, x := range sorted(list, begin) {
		for ; len(ended) > 0 && end(ended[0]) < begin(x); ended = ended[1:] {
			take(ended[0])
		}
		look(x)
	}
}

// A best keeps of what it is given the greatest, and the greatest of what is not the same as that: of all that is not the same
// as some other thing, one of the two is the greatest.
type best[T any] struct {
	at [2]T
	n  int
}

func (b *best[T]) add(x T, greater, same func(x, y T) bool) {
	switch {
	case b.n > 0 && same(x, b.at[0]):
		if greater(x, b.at[0]) {
			b.at[0] = x
		}
	case b.n == 0 || greater(x, b.at[0]):
		b.at, b.n = [2]T{x, b.at[0]}, min(b.n+1, 2)
	case b.n == 1 || greater(x, b.at[1]):
		b.at[1], b.n = x, 2
	}
}

// but is the greatest that is something.
func (b *best[T]) but(is func(T) bool) (greatest T, found bool) {
	for _, x := range b.at[:b.n] {
		if is(x) {
			return x, true
		}
	}
	return greatest, false
}
