package checker

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/internal/say"
)

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
