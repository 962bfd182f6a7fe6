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
		for _, of := range []struct {
			name  string
			value time.Duration
		}{{"lease", k.lease}, {"wait", k.wait}} {
			m := regexp.MustCompile(of.name + ` (\d+) (ms|s)`).FindStringSubmatch(cells[4])
			if of.value == 0 {
				require.Empty(t, m, "%s: %s", k.Name, of.name)
				continue
			}
			require.Len(t, m, 3, "%s: no %s", k.Name, of.name)
			documented, err := time.ParseDuration(m[1] + m[2])
			require.NoError(t, err)
			require.Equal(t, of.value, documented, k.Name)
		}
		if k.locks > 0 {
			require.Regexp(t, `^`+strconv.Itoa(k.locks)+` (locks?|semaphore)`, cells[4], k.Name)
		}
	}
}
