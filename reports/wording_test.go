package reports_test

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports"
)

// Holds beside another are what a lock that several may hold is for, and of any other its
// violations: the words fit both.
func TestCoveredSaysWhatWasMet(t *testing.T) {
	r := reports.Summarize(failover())
	r.Properties[0].Met = map[string]int{history.MetContention: 9, history.MetShared: 3}
	text := string(written(t, func(w io.Writer) error { return reports.WriteMarkdown(w, r) }))
	require.Contains(t, text, "contention 9 · holds beside another 3")
	require.NotContains(t, text, "shared")
}
