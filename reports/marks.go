package reports

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
)

// markWords are those on the flag of a violation.
func (m *model) markWords(v *checker.Violation) string {
	return strings.ReplaceAll(rowOf(v.Kind).mark(), "{for}", m.forHowLong(v.From, m.together(v, m.holdsOf(v))))
}

// mark is the row's Mark, or the name of its kind.
func (r kindRow) mark() string {
	if r.Mark == "" {
		return strings.ReplaceAll(r.Kind, "-", " ")
	}
	return r.Mark
}

// repeats reports whether a violation is the search's finding in the very events
// in which another engine found one: it needs no mark of its own.
func (m *model) repeats(v *checker.Violation) bool {
	return v.Kind == checker.NotLinearizable && slices.ContainsFunc(m.Report.Results, func(r checker.Result) bool {
		return slices.ContainsFunc(r.Violations, func(other checker.Violation) bool {
			return other.Kind != v.Kind && slices.Equal(other.Events, v.Events)
		})
	})
}

// faultTitle is what a pointer that rests on a fault shows.
func faultTitle(f *Fault) string {
	title := fmt.Sprintf("%s, %s to %s", f.detail(), say.Instant(f.Start), say.Instant(f.End))
	if f.Effect != "" {
		title += ": " + adapt(f.Effect)
	}
	if !f.OK {
		title += ": no effect. " + f.Error
	}
	return title
}

// accessLabel is who wrote what: "a: 41 → 42".
func (m *model) accessLabel(op *history.Operation) string {
	value := strings.Replace(op.Complete.Value, ">", " → ", 1)
	if value == "" {
		return ""
	}
	return strings.TrimPrefix(m.whoOf(op.Invoke), "client ") + ": " + value
}

// badAccesses are the accesses that prove a violation.
func (m *model) badAccesses() []int64 {
	var events []int64
	for _, r := range m.Report.Results {
		for _, v := range r.Violations {
			if kind, _ := checker.KindOf(v.Kind); kind.ByAccess {
				events = append(events, v.Events...)
			}
		}
	}
	return events
}
