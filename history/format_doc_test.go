package history_test

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
)

var update = flag.Bool("update", false, "write the tables of docs/history-format.md again")

const formatDoc = "../docs/history-format.md"

// The tables of the document are the list of fields and that of operations.
func TestDocumentHasTheTablesOfTheFormat(t *testing.T) {
	doc, err := os.ReadFile(formatDoc)
	require.NoError(t, err)
	text := string(doc)
	var fields, operations strings.Builder
	fields.WriteString("| field | type | on | meaning |\n|---|---|---|---|\n")
	for _, f := range history.Fields() {
		fmt.Fprintf(&fields, "| `%s` | %s | %s | %s |\n", f.Name, f.Kind(), cmp.Or(f.Where, "all"), f.Meaning)
	}
	operations.WriteString("| op | events | meaning |\n|---|---|---|\n")
	for _, o := range history.Operators() {
		events := "invoke, then ok / fail / info"
		if len(o.Types) == 1 {
			events = "a single " + string(o.Types[0])
		}
		if o.Unmade {
			events += ", process -1"
		}
		fmt.Fprintf(&operations, "| `%s` | %s | %s |\n", o.Op, events, o.Meaning)
	}
	for name, table := range map[string]string{"fields": fields.String(), "operations": operations.String()} {
		begin, end := "<!-- "+name+" -->\n", "<!-- /"+name+" -->"
		before, rest, ok := strings.Cut(text, begin)
		require.True(t, ok, name)
		was, after, ok := strings.Cut(rest, end)
		require.True(t, ok, name)
		if *update {
			text = before + begin + table + end + after
			continue
		}
		require.Equal(t, table, was, "go test ./history -update writes the tables again")
	}
	if *update {
		require.NoError(t, os.WriteFile(formatDoc, []byte(text), 0o644))
	}
}

// Each example of what is refused is, with the error that is beside it.
func TestDocumentSaysWhatIsRefused(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile(formatDoc)
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(doc), "## What is refused\n")
	section, _, _ = strings.Cut(section, "\n## ")
	examples := regexp.MustCompile("(?m)((?:^    \\{.*\n)+)\n`(.*)`$").FindAllStringSubmatch(section, -1)
	require.Len(t, examples, strings.Count(section, "`line "), "an example without its error")
	require.GreaterOrEqual(t, len(examples), 12)
	for _, example := range examples {
		lines := strings.ReplaceAll(example[1], "    {", "{")
		_, err := history.ReadAll(strings.NewReader(lines))
		require.EqualError(t, err, example[2], lines)
		last := strings.LastIndex(strings.TrimSpace(lines), "\n") + 1
		_, err = history.ReadAll(strings.NewReader(lines[:last]))
		require.NoError(t, err, "what is before the wrong line is right")
	}
}

// The example of a capacity that changes is a history, of which is judged what the document says.
func TestDocumentSaysHowACapacityChanges(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile(formatDoc)
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(doc), "A second `declare` of a semaphore")
	section, _, _ = strings.Cut(section, "\n## ")
	example := regexp.MustCompile(`(?m)^    \{.*\n`).FindAllString(section, -1)
	h, err := history.ReadAll(strings.NewReader(strings.ReplaceAll(strings.Join(example, ""), "    {", "{")))
	require.NoError(t, err)
	require.Len(t, h.Events, 8)
	require.Equal(t, history.Event{
		Index: 3, Time: 100, Process: history.NoProcess, Type: history.OK, Op: history.Declare,
		Lock: "k", Kind: history.KindSemaphore, Capacity: 1, From: 200,
	}, h.Events[3])
	for _, r := range checker.Check(t.Context(), h, checker.Standard()...).Results {
		if r.Name == "capacity" || r.Name == "linearizability" {
			require.Equal(t, checker.Valid, r.Verdict, "%+v", r)
		} else {
			require.NotEqual(t, checker.Invalid, r.Verdict, "%+v", r)
		}
	}
}
