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

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/reports"
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
			golden(t, name+"/story.txt", []byte(r.Story.Headline+"\n\n"+r.Story.String()+"\n"))
			golden(t, name+"/results.json", written(t, func(w io.Writer) error { return reports.WriteJSON(w, r) }))
			golden(t, name+"/junit.xml", written(t, func(w io.Writer) error { return reports.WriteJUnit(w, r) }))
			golden(t, name+"/summary.md", written(t, func(w io.Writer) error { return reports.WriteMarkdown(w, r) }))
			golden(t, name+"/summary.txt", written(t, func(w io.Writer) error {
				return reports.WriteText(w, r, reports.TextOptions{Dir: "reports/runs/latest"})
			}))
		})
	}
}

func TestGoldenRuns(t *testing.T) {
	for _, name := range []string{"failover", "valid", "unknown"} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join("testdata", name)
			in := fixtures()[name]()
			if *update {
				writeRun(t, dir, in)
			}
			stored, err := reports.ReadDir(dir)
			require.NoError(t, err)
			require.Equal(t, in, stored, "the stored run differs from its script: go test ./reports -update")
			require.Equal(t, reports.Summarize(in), reports.Summarize(stored))
		})
	}
}

func TestTextFits(t *testing.T) {
	for name, fixture := range fixtures() {
		r := reports.Summarize(fixture())
		for _, width := range []int{0, 10, 40, 72, 100, 160} {
			out := written(t, func(w io.Writer) error {
				return reports.WriteText(w, r, reports.TextOptions{Width: width, Dir: "d"})
			})
			lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
			if width >= 72 {
				require.LessOrEqual(t, len(lines), 25, "%s at %d columns:\n%s", name, width, out)
			}
			require.NotContains(t, string(out), "\x1b")
			for _, line := range lines[2:] {
				if label := strings.TrimSpace(line); width != 0 && width < 72 || strings.HasPrefix(label, "again ") || strings.HasPrefix(label, "try ") {
					continue // a command is one line, so that it can be copied
				}
				require.LessOrEqual(t, utf8.RuneCountInString(line), cmp.Or(width, 100)+8, "%s: %s", name, line)
			}
			last := lines[len(lines)-1]
			if fixture().Run.Topology.Name == "" {
				require.NotContains(t, string(out), "seed", "there is no record of a run that could be repeated")
			} else {
				require.True(t, strings.Contains(last, "seed") || strings.Contains(strings.Join(lines[len(lines)-6:], " "), "--seed"), last)
			}

			// The proof is whole at any width, and without a terminal all is.
			text := strings.Join(strings.Fields(string(out)), " ")
			for _, m := range r.Story.Events {
				require.Contains(t, text, strings.Join(strings.Fields(m.Text), " "), "%s at %d columns", name, width)
			}
			for _, words := range r.Story.Outcome {
				require.Contains(t, text, words, "%s at %d columns", name, width)
			}
			for _, p := range r.Properties {
				if p.Verdict == checker.Invalid {
					require.Contains(t, text, p.Name+" (", "%s at %d columns", name, width)
				}
			}
			if width == 0 {
				require.NotContains(t, text, "…", name)
			}
		}
	}
}

func TestTextColor(t *testing.T) {
	out := written(t, func(w io.Writer) error {
		return reports.WriteText(w, reports.Summarize(failover()), reports.TextOptions{Color: true})
	})
	require.True(t, strings.HasPrefix(string(out), "\x1b[1;31m✗ INVALID\x1b[0m  Two clients"), string(out))
}

func TestTextKeepsTheTerminal(t *testing.T) {
	in := failover()
	in.Run.Scenario, in.Run.Command = "a\x1b[2Jb", "c\r\nd\u009b31m"
	out := written(t, func(w io.Writer) error {
		return reports.WriteText(w, reports.Summarize(in), reports.TextOptions{})
	})
	require.NotContains(t, string(out), "\x1b")
	require.NotContains(t, string(out), "\u009b")
	require.NotContains(t, string(out), "\r")
}
