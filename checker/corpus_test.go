package checker_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
)

func load(t *testing.T, path string) *history.History {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	h, err := history.ReadAll(f)
	require.NoError(t, err, path)
	return h
}

// named are the kinds or properties before the "--" of a file's name.
func named(path string) []string {
	before, _, ok := strings.Cut(filepath.Base(path), "--")
	if !ok {
		return nil
	}
	names := strings.Split(before, "+")
	slices.Sort(names)
	return names
}

func kinds(r checker.Report) []string {
	var found []string
	for _, result := range r.Results {
		for _, v := range result.Violations {
			found = append(found, v.Kind)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

func unknown(r checker.Report) []string {
	var found []string
	for _, result := range r.Results {
		if result.Verdict == checker.Unknown {
			found = append(found, result.Name)
		}
	}
	slices.Sort(found)
	return found
}

// Every history says in a line why its verdict is what it is, and the list says
// the same.
func TestCorpusSaysWhy(t *testing.T) {
	t.Parallel()
	list, err := os.ReadFile("testdata/README.md")
	require.NoError(t, err)
	files, err := filepath.Glob("testdata/*/*.jsonl")
	require.NoError(t, err)
	for _, path := range files {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		var first struct{ Why string }
		line, _, _ := strings.Cut(string(text), "\n")
		if line != "" {
			require.NoError(t, json.Unmarshal([]byte(line), &first), path)
			require.NotEmpty(t, first.Why, path)
		}
		name := strings.TrimSuffix(strings.TrimPrefix(path, "testdata/"), ".jsonl")
		require.Contains(t, string(list), "| `"+name+"` | "+first.Why, path)
	}
	require.Equal(t, len(files)+1, strings.Count(string(list), "\n| "), "a row a history, and the head")
}

// Each example that a document names is a history of the corpus.
func TestDocumentsNameHistoriesOfTheCorpus(t *testing.T) {
	t.Parallel()
	named := 0
	for _, document := range []string{"what-is-checked.md", "history-format.md"} {
		text, err := os.ReadFile("../docs/" + document)
		require.NoError(t, err)
		for _, name := range regexp.MustCompile("`((?:valid|invalid|unknown)/[^`]+)`").FindAllStringSubmatch(string(text), -1) {
			require.FileExists(t, "testdata/"+name[1]+".jsonl")
			named++
		}
	}
	require.Greater(t, named, 30)
}

func TestCorpus(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*/*.jsonl")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 120)
	for _, path := range files {
		t.Run(strings.TrimSuffix(strings.TrimPrefix(path, "testdata/"), ".jsonl"), func(t *testing.T) {
			t.Parallel()
			h := load(t, path)
			r := checker.Check(t.Context(), h)
			want := checker.Verdict(filepath.Base(filepath.Dir(path)))
			require.Equal(t, want, r.Verdict, "%+v", r.Results)
			for _, result := range r.Results {
				require.NotEqual(t, "engines-agree", result.Name, result.Summary)
				require.NotEmpty(t, result.Summary, result.Name)
				require.NotEmpty(t, result.Engine, result.Name)
				require.Equal(t, result.Verdict == checker.Invalid, result.Total > 0, result.Name)
				checkProofs(t, h, result)
			}
			switch want {
			case checker.Invalid:
				found := slices.DeleteFunc(kinds(r), func(k string) bool { return k == checker.NotLinearizable })
				require.Equal(t, named(path), found)
			case checker.Unknown:
				require.Equal(t, named(path), unknown(r), "%+v", r.Results)
			default:
				require.Empty(t, named(path))
			}
		})
	}
}

// checkProofs checks what every violation owes its reader.
func checkProofs(t *testing.T, h *history.History, result checker.Result) {
	t.Helper()
	for i, v := range result.Violations {
		require.NotEmpty(t, v.Kind)
		require.NotEmpty(t, v.Explanation)
		require.LessOrEqual(t, v.From, v.Until, v.Explanation)
		require.NotEmpty(t, v.Events, v.Explanation)
		require.LessOrEqual(t, len(v.Events), 3)
		require.True(t, slices.IsSorted(v.Events))
		for _, e := range v.Events {
			require.GreaterOrEqual(t, e, int64(0))
			require.Less(t, e, int64(len(h.Events)))
		}
		if i > 0 {
			require.GreaterOrEqual(t, v.From, result.Violations[i-1].From, "in order of time")
		}
	}
}
