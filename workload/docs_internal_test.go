package workload

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
)

// The table of workloads in the documents has what a run of each must have met,
// and its own defaults.
func TestDocumentedWorkloadsAreThose(t *testing.T) {
	b, err := os.ReadFile("../docs/workloads.md")
	require.NoError(t, err)
	rows := map[string][]string{}
	for line := range strings.Lines(string(b)) {
		if cells := strings.Split(line, " | "); len(cells) == 5 {
			rows[strings.Trim(cells[0], "| `")] = cells
		}
	}
	for _, k := range Kinds() {
		cells := rows[k.Name]
		require.Len(t, cells, 5, "docs/workloads.md has no row for %s", k.Name)
		// Contention is asked of every workload, and named where it is all that is asked.
		met := func(names []string) []string {
			all := append([]string{history.MetContention}, names...)
			slices.Sort(all)
			return slices.Compact(all)
		}
		require.Equal(t, met(k.Meets), met(strings.Split(cells[3], ", ")), k.Name)
		for name, value := range map[string]time.Duration{"lease": k.lease, "wait": k.wait} {
			documented := regexp.MustCompile(name + ` (\d+ m?s)`).FindString(cells[4])
			require.Equal(t, value > 0, documented != "", "%s: %s", k.Name, name)
			require.True(t, value == 0 || documented == name+" "+say.Length(value), "%s: %s", k.Name, documented)
		}
		if k.locks > 0 {
			require.Regexp(t, `^`+strconv.Itoa(k.locks)+` (locks?|semaphore)`, cells[4], k.Name)
		}
	}
}
