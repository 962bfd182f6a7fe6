package reports

import (
	"maps"
	"slices"
	"strings"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
)

// covered says in one line what a history met, as far as a property counted it:
// "contention 93 · refusals 12". What was met most comes first; what was not met
// is left out.
func covered(met map[string]int) string {
	names := slices.SortedFunc(maps.Keys(met), func(a, b string) int {
		if met[a] != met[b] {
			return met[b] - met[a]
		}
		return strings.Compare(a, b)
	})
	var parts []string
	for _, name := range names {
		if met[name] > 0 {
			parts = append(parts, metName(name)+" "+say.Thousands(int64(met[name])))
		}
	}
	return strings.Join(parts, " · ")
}

// metName names what was met: holds beside another are shared only of a lock that
// several may hold, and of any other they are its violations.
func metName(name string) string {
	if name == history.MetShared {
		return "holds beside another"
	}
	return say.OneLine(name)
}

// coverage is the line of the property that counted; empty if none did.
func coverage(properties []checker.Result) string {
	for i := range properties {
		if line := covered(properties[i].Met); line != "" {
			return line
		}
	}
	return ""
}

// met is how often the record met something, by its name; false if that was not counted.
func (m *model) met(name string) (n int, counted bool) {
	for i := range m.Report.Results {
		if met := m.Report.Results[i].Met; len(met) > 0 {
			return met[name], true
		}
	}
	return 0, false
}
