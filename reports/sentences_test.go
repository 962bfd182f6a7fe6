package reports_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"html"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports"
)

// storyFiles are those that the sentences of a story are written in.
func storyFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("story*.go")
	require.NoError(t, err)
	files = slices.DeleteFunc(files, func(f string) bool { return strings.HasSuffix(f, "_test.go") })
	require.NotEmpty(t, files)
	return append(files, "causes.go", "cures.go", "keys.go", "dominant_error.go", "faults.go", "why.go", "sequence.go", "recovery.go")
}

// sentencePatterns are the words of the stories as they stand in the source: every text
// of at least two words.
func sentencePatterns(t *testing.T) []string {
	t.Helper()
	var patterns []string
	for _, name := range storyFiles(t) {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok { // what is only looked for is not said
				if f, ok := call.Fun.(*ast.SelectorExpr); ok && slices.Contains([]string{"Contains", "Cut", "TrimPrefix", "TrimSuffix", "HasPrefix", "MustCompile"}, f.Sel.Name) {
					return false
				}
			}
			if cmp, ok := n.(*ast.BinaryExpr); ok && cmp.Op == token.EQL {
				return false
			}
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING || strings.HasPrefix(lit.Value, "`") {
				return true
			}
			words, err := strconv.Unquote(lit.Value)
			require.NoError(t, err)
			if len(strings.Fields(regexp.MustCompile(`%[a-z]`).ReplaceAllString(words, ""))) >= 2 {
				patterns = append(patterns, words)
			}
			return true
		})
	}
	slices.Sort(patterns)
	return slices.Compact(patterns)
}

// verb is what stands for something else in a pattern.
var verb = regexp.MustCompile(`%[+.0-9]*[a-z]|\{[a-z]+\}`)

// says reports whether a text has a pattern: its words in this order.
func says(text, pattern string) bool {
	pattern = strings.ReplaceAll(strings.ToLower(strings.TrimSuffix(pattern, ".")), "%%", "\x00")
	for i, words := range verb.Split(pattern, -1) {
		words = strings.ReplaceAll(words, "\x00", "%")
		if i == 0 {
			words = strings.TrimLeft(words, " ")
		}
		_, rest, found := strings.Cut(text, words)
		if !found {
			return false
		}
		text = rest
	}
	return true
}

// said is all that the stories of a run say, with what they follow from and the table of
// faults.
func said(t *testing.T, in reports.Input) string {
	t.Helper()
	r := reports.Summarize(in)
	all := []string{r.Story.Headline, r.Story.String()}
	var leaves func(w *reports.Why)
	leaves = func(w *reports.Why) {
		if w != nil {
			all = append(all, w.Text)
			for _, of := range w.Because {
				leaves(of)
			}
		}
	}
	r.Story = reports.Story{} // only what is beside it
	if len(r.Faults) > 0 {
		causes := r.Causes
		r.Causes = nil
		all = append(all, html.UnescapeString(string(written(t, func(w io.Writer) error { return reports.WriteMarkdown(w, r) }))))
		text := string(written(t, func(w io.Writer) error { return reports.WriteText(w, r, reports.TextOptions{}) }))
		all = append(all, strings.Join(strings.Fields(text), " "))
		r.Causes = causes
	}
	for _, c := range r.Causes {
		leaves(c.Why)
		if c.Sequence != nil {
			for _, step := range c.Sequence.Steps {
				all = append(all, step.Text)
			}
			for _, actor := range c.Sequence.Actors {
				all = append(all, actor.Kind)
			}
		}
		all = append(all, c.Title, c.Impact, c.Story.Headline, c.Story.String())
		for _, cure := range c.Cures {
			all = append(all, cure.Text, cure.Config, cure.Try, cure.Cost)
		}
	}
	return strings.ToLower(strings.ReplaceAll(strings.Join(all, "\n"), "requests for a lock", "request for a lock"))
}

// tellable are histories by name: all that the tests of stories have.
func tellable(t *testing.T) map[string]func() reports.Input {
	t.Helper()
	all := maps.Clone(fixtures())
	maps.Copy(all, rare())
	files, err := filepath.Glob("../checker/testdata/*/*.jsonl")
	require.NoError(t, err)
	for _, file := range files {
		all["corpus/"+strings.TrimSuffix(filepath.Base(file), ".jsonl")] = func() reports.Input {
			f, err := os.Open(file)
			require.NoError(t, err)
			defer f.Close()
			h, err := history.ReadAll(f)
			require.NoError(t, err)
			return judged(run(), h)
		}
	}
	for seed := range uint64(60) {
		all[fmt.Sprintf("random/%d", seed)] = func() reports.Input { return randomRun(seed) }
	}
	return all
}

// Every sentence pattern of the stories, as the source has them, is said of a history and
// not of another. The golden file has of which, so that a sentence that turns up where it
// did not, or no more, is seen.
func TestEverySentence_NoRace(t *testing.T) {
	told := map[string]string{}
	for name, in := range tellable(t) {
		told[name] = said(t, in())
	}
	var out strings.Builder
	for _, pattern := range sentencePatterns(t) {
		by, elsewhere := []string{}, 0
		for _, name := range slices.Sorted(maps.Keys(told)) {
			switch {
			case !says(told[name], pattern):
			case strings.Contains(name, "/"):
				elsewhere++
			default:
				by = append(by, name)
			}
		}
		assert.NotZero(t, len(by)+elsewhere, "no history has %q: add one to rare()", pattern)
		assert.NotEqual(t, len(told), len(by)+elsewhere, "every history has %q", pattern)
		if len(by) == 0 {
			by = append(by, "(corpus)")
		}
		fmt.Fprintf(&out, "%s\n\t%s\n", strconv.Quote(pattern), strings.Join(by, " "))
	}
	golden(t, "sentences.txt", []byte(out.String()))
}
