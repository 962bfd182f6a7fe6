package reports_test

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports"
	"github.com/lockchaos/lockchaos/reports/internal/facts"
	"github.com/lockchaos/lockchaos/reports/internal/story"
)

// The guide explains every sign and word of the page, and every field of
// results.json.
func TestGuideIsComplete(t *testing.T) {
	b, err := os.ReadFile("../docs/reading-a-report.md")
	require.NoError(t, err)
	guide := strings.Join(strings.Fields(string(b)), " ")
	says := func(words string) {
		t.Helper()
		require.True(t, regexp.MustCompile(`(?i)\b`+regexp.QuoteMeta(words)+`\b`).MatchString(guide), "the guide does not explain %q", words)
	}
	legends := regexp.MustCompile(`</svg>([a-z ]+)</li>`).FindAllStringSubmatch(htmlOf(t, failover()), -1)
	require.Greater(t, len(legends), 15)
	for _, m := range legends {
		says(m[1])
	}
	for _, words := range []string{"released", "ended by its lease, or lost", "end unknown", "granted", "refused", "outcome unknown", "p50", "p99"} {
		says(words)
	}
	for _, kind := range checker.Kinds() {
		require.True(t, strings.Contains(guide, "`"+kind.Name+"`"), "the guide does not name %s", kind.Name)
		flag := story.Mark(facts.Of(history.Run{}, nil, checker.Report{}, true), &checker.Violation{Kind: kind.Name})
		says(flag)
	}
	for _, of := range []reflect.Type{
		reflect.TypeFor[reports.Results](), reflect.TypeFor[story.Story](),
		reflect.TypeFor[history.Cause](), reflect.TypeFor[history.Suspect](), reflect.TypeFor[history.Arm](), reflect.TypeFor[facts.Counts](),
		reflect.TypeFor[story.Cure](),
		reflect.TypeFor[story.Event](), reflect.TypeFor[facts.Latency](), reflect.TypeFor[facts.Fault](), reflect.TypeFor[checker.Result](), reflect.TypeFor[checker.Violation](),
	} {
		for field := range of.Fields() {
			if !field.IsExported() {
				continue
			}
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			require.True(t, strings.Contains(guide, "`"+name+"`"), "the guide does not explain %s of results.json", name)
		}
	}
}
