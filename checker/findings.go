package checker

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/internal/say"
)

// findings are what a judge has found so far.
type findings struct {
	violations []Violation // the first of them, in order of time once they are listed
	total      int
	doubts     []string // why it may not say Valid
	needs      []need
	counts     map[string]int
	met        map[string]int  // what the history covers
	leased     map[string]bool // locks with a lease, asked for or granted
	valid      string          // the summary if there is neither
	cut        bool            // it was not judged to the end
	memory     int64
	memo       any // what a judge remembers from one window to the next

	// A violation may be found again in the next window, with more of its
	// consequences known: the later version counts.
	before, now map[key]int // where it is listed; -1 if it is not
	listed      map[key]int // those of all windows that are listed
}

// A need is something without which the history shows nothing.
type need struct {
	met bool
	why string // what to say where it is not met
}

// A key tells violations apart.
type key struct {
	kind, lock, resource string
	from                 time.Duration
}

func newFindings() *findings {
	return &findings{counts: map[string]int{}, before: map[key]int{}, now: map[key]int{}, listed: map[key]int{}}
}

func (f *findings) add(v Violation) {
	k := key{v.Kind, v.Lock, v.Resource, v.From}
	at, again := f.listed[k]
	if !again {
		at, again = f.before[k]
	}
	if again {
		if at >= 0 {
			f.violations[at] = v
		}
		f.now[k] = at
		return
	}
	f.total++
	at = -1
	if len(f.violations) < 2*MaxListed {
		at = len(f.violations)
		f.violations = append(f.violations, v)
	}
	f.now[k] = at
}

// nextWindow forgets which violations were found in the window before, but for
// those that are listed.
func (f *findings) nextWindow() {
	for k, at := range f.now {
		if at >= 0 {
			f.listed[k] = at
		}
	}
	f.before, f.now = f.now, f.before
	clear(f.now)
}

func (f *findings) doubt(format string, args ...any) {
	if d := fmt.Sprintf(format, args...); !slices.Contains(f.doubts, d) {
		f.doubts = append(f.doubts, d)
	}
}

// need says that some window must show something.
func (f *findings) need(met bool, why string) {
	for i := range f.needs {
		if f.needs[i].why == why {
			f.needs[i].met = f.needs[i].met || met
			return
		}
	}
	f.needs = append(f.needs, need{met: met, why: why})
}

// used notes how much memory the judge had in use, in bytes.
func (f *findings) used(bytes int) { f.memory = max(f.memory, int64(bytes)) }

// violated says how many violations there are, and what the first one is.
func violated(list []Violation, total int) string {
	if total > 1 {
		return say.Count(total, "violation") + ", the first: " + list[0].Explanation
	}
	return say.Count(total, "violation") + ": " + list[0].Explanation
}

// maxDoubts is how many reasons a summary gives. Most properties have one or two; a run without
// its workload may lack all that this was there for.
const maxDoubts = 8

func (f *findings) result() Result {
	for _, n := range f.needs {
		if !n.met && !f.cut {
			f.doubt("%s", n.why)
		}
	}
	r := Result{Verdict: Valid, Summary: f.valid, Total: f.total, Memory: f.memory, Met: f.met}
	switch {
	case f.total > 0:
		slices.SortStableFunc(f.violations, byTime)
		r.Verdict = Invalid
		r.Violations = f.violations[:min(len(f.violations), MaxListed)]
		r.Summary = violated(r.Violations, r.Total)
	case len(f.doubts) > 0:
		r.Verdict = Unknown
		r.Summary = strings.Join(f.doubts[:min(len(f.doubts), maxDoubts)], "; ")
		if n := len(f.doubts) - maxDoubts; n > 0 {
			r.Summary += fmt.Sprintf(" (and %s more)", say.Count(n, "reason"))
		}
	}
	return r
}
