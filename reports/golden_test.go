package reports_test

import (
	"bytes"
	"cmp"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/reports"
	_ "github.com/lockchaos/lockchaos/reports/plots"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares what was written with a file of testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, got, 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "run go test ./reports -update")
	require.Equal(t, string(want), string(got), "if this is meant: go test ./reports -update")
}

func written(tb testing.TB, write func(io.Writer) error) []byte {
	tb.Helper()
	var b bytes.Buffer
	require.NoError(tb, write(&b))
	return b.Bytes()
}

func TestGolden(t *testing.T) {
	for name, fixture := range fixtures() {
		t.Run(name, func(t *testing.T) {
			in := fixture()
			r := reports.Summarize(in)
			golden(t, name+"/story.txt", []byte(r.Story.Headline+"\n\n"+paragraph(r)+"\n"))
			golden(t, name+"/results.json", written(t, func(w io.Writer) error { return reports.WriteJSON(w, r) }))
			golden(t, name+"/junit.xml", written(t, func(w io.Writer) error { return reports.WriteJUnit(w, r) }))
			golden(t, name+"/summary.md", written(t, func(w io.Writer) error { return reports.WriteMarkdown(w, r) }))
			golden(t, name+"/summary.txt", written(t, func(w io.Writer) error {
				return reports.WriteText(w, r, reports.TextOptions{Dir: "reports/runs/latest"})
			}))
		})
	}
}

// A summary fits into 14 lines of a terminal, with the violation, and without a terminal nothing is cut.
func TestTextFits(t *testing.T) {
	var colored strings.Builder
	require.NoError(t, reports.WriteText(&colored, reports.Summarize(failover()), reports.TextOptions{Color: true}))
	require.Contains(t, colored.String(), "\x1b[1;31m✗ INVALID\x1b[0m  Two clients")
	for name, fixture := range fixtures() {
		r := reports.Summarize(fixture())
		for _, width := range []int{0, 10, 40, 72, 100, 160} {
			out := written(t, func(w io.Writer) error {
				return reports.WriteText(w, r, reports.TextOptions{Width: width, Dir: "d"})
			})
			lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
			require.NotContains(t, string(out), "\x1b")
			require.Equal(t, "  report     d/report.html", lines[len(lines)-1])
			for _, line := range lines[2:] {
				if label := strings.TrimSpace(line); !strings.HasPrefix(label, "again ") && !strings.HasPrefix(label, "next ") { // a command is one line, so that it can be copied
					require.LessOrEqual(t, utf8.RuneCountInString(line), max(cmp.Or(width, 100), 40)+8, "%s: %s", name, line)
				}
			}
			text := strings.Join(strings.Fields(string(out)), " ")
			if width > 0 {
				require.LessOrEqual(t, len(lines), 14, "%s at %d columns:\n%s", name, width, out)
				for _, m := range r.Story.Events {
					require.True(t, m.Kind != reports.EventViolation || strings.Contains(string(out), "  ✗ "), "%s at %d columns", name, width)
				}
				continue
			}
			require.NotContains(t, text, "…", name)
			for _, m := range r.Story.Events {
				require.Contains(t, text, strings.Join(strings.Fields(m.Text), " "), name)
			}
			for _, words := range r.Story.Outcome {
				require.Contains(t, text, words, name)
			}
		}
	}
}
