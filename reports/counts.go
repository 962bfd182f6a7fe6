package reports

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/internal/say"
)

// Counts says how many violations there are: the one figure that all reports have.
type Counts struct {
	// Total is the sum of Kinds. What two engines found in the same events counts once.
	Total int            `json:"total"`
	Kinds map[string]int `json:"kinds,omitempty"`
	// First and Last are when the first and the last of them were there.
	First time.Duration `json:"first,omitempty"`
	Last  time.Duration `json:"last,omitempty"`
	// More is set where a property has more violations than are listed, and counted here.
	More bool `json:"more,omitempty"`
}

func (m *model) counts() Counts {
	c := Counts{}
	for i, v := range m.distinct() {
		if i == 0 {
			c.Kinds, c.First = map[string]int{}, m.since(v)
		}
		c.Total++
		c.Kinds[v.Kind]++
		c.Last = max(c.Last, m.since(v))
	}
	for i := range m.Report.Results {
		r := &m.Report.Results[i]
		c.More = c.More || r.Verdict == checker.Invalid && r.Total > len(r.Violations)
	}
	return c
}

// String says the counts and the time: "28 lost updates and 3 double grants, from 27.7 s to 29.9 s".
func (c Counts) String() string {
	if c.Total == 0 {
		return ""
	}
	words := kindCounts(c.Kinds)
	if c.More {
		words = "at least " + words
	}
	if say.Instant(c.First) == say.Instant(c.Last) {
		return words + ", at " + say.Instant(c.First)
	}
	return words + ", from " + say.Instant(c.First) + " to " + say.Instant(c.Last)
}

// kindCounts are numbers of violations, the kinds that explain most first: "87 double grants and 33
// lost updates".
func kindCounts(counts map[string]int) string {
	var kinds []string
	for kind := range counts {
		kinds = append(kinds, kind)
	}
	slices.SortFunc(kinds, func(a, b string) int {
		return cmp.Or(cmp.Compare(severity(a), severity(b)), strings.Compare(a, b))
	})
	for i, kind := range kinds {
		kinds[i] = say.Count(counts[kind], kindNoun(kind))
	}
	return say.List(kinds)
}
