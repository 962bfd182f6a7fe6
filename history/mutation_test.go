package history_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/checker/oracle"
	"github.com/lockchaos/lockchaos/history"
)

// A line is the fields of an event, in any order.
type line map[string]any

// randomLines are a history of the oracle's generator, with a stamp of its own for each line.
func randomLines(t *testing.T, g *oracle.Generator) []line {
	t.Helper()
	var lines []line
	for text := range strings.Lines(oracle.Lines(g.Next())) {
		var l line
		require.NoError(t, json.Unmarshal([]byte(text), &l))
		l["time"] = int(l["time"].(float64)) + len(lines)
		if from, changes := l["from"]; changes && l["op"] == "declare" {
			l["from"] = int(from.(float64)) + 1000
		}
		lines = append(lines, l)
	}
	return lines
}

func written(t *testing.T, lines []line) []byte {
	t.Helper()
	var b bytes.Buffer
	for _, l := range lines {
		require.NoError(t, json.NewEncoder(&b).Encode(l))
	}
	return b.Bytes()
}

// judged is the verdict of each property, and how many violations there are.
func judged(t *testing.T, h *history.History) string {
	t.Helper()
	var text strings.Builder
	report := checker.Check(t.Context(), h, checker.Standard()...)
	for _, r := range report.Results {
		fmt.Fprint(&text, r.Name, " ", r.Verdict)
		for _, v := range r.Violations {
			fmt.Fprint(&text, " ", v.Kind)
		}
		text.WriteByte('\n')
	}
	return text.String()
}

// A field or a line in another place, or twice, is refused, with the number of a line, or makes no difference.
func TestMutatedHistoriesAreRefusedOrJudgedAlike_NoRace(t *testing.T) {
	t.Parallel()
	const seed = 41
	rnd, g := rand.New(rand.NewPCG(seed, 1)), oracle.NewGenerator(seed)
	refused, alike := map[string]int{}, map[string]int{}
	for n := range 400 {
		lines := randomLines(t, g)
		h, err := history.ReadAll(bytes.NewReader(written(t, lines)))
		require.NoError(t, err, "seed %d, history %d:\n%s", seed, n, written(t, lines))
		verdict := judged(t, h)
		for range 20 {
			kind, mutated := mutate(rnd, lines)
			if mutated == nil {
				continue
			}
			text := written(t, mutated)
			if kind == "duplicate field" { // which no map has
				name, _ := anyField(rnd, lines[0])
				text = bytes.Replace(text, []byte(`"`+name+`":`), []byte(`"`+name+`":null,"`+name+`":`), 1)
			}
			again, err := history.ReadAll(bytes.NewReader(text))
			if err != nil {
				require.Regexp(t, `^line [1-9]`, err)
				refused[kind]++
				continue
			}
			require.Equal(t, verdict, judged(t, again), "seed %d, history %d, %s:\n%s\nwas\n%s", seed, n, kind, text, written(t, lines))
			alike[kind]++
		}
	}
	t.Log("refused", refused, "judged alike", alike)
	for _, kind := range []string{"duplicate field", "duplicate line", "move line", "move field", "drop field", "other value"} {
		require.Positive(t, refused[kind], kind)
	}
	require.Zero(t, alike["duplicate field"])
	require.Zero(t, alike["move line"])
	require.Positive(t, alike["drop field"], "a completion need not repeat what its invocation says")
}

func anyField(rnd *rand.Rand, l line) (string, any) {
	names := slices.Sorted(maps.Keys(l))
	name := names[rnd.IntN(len(names))]
	return name, l[name]
}

// endOf is the line of the other end of an operation; -1 if it has none.
func endOf(lines []line, at int) int {
	step := 1
	if lines[at]["type"] != "invoke" {
		step = -1
	}
	for i := at + step; i >= 0 && i < len(lines); i += step {
		if single := lines[i]["op"] == "lost" || lines[i]["op"] == "crash"; lines[i]["process"] == lines[at]["process"] && !single {
			return i
		}
	}
	return -1
}

// mutate changes one thing of the lines; nil if there is nothing to change.
func mutate(rnd *rand.Rand, lines []line) (kind string, mutated []line) {
	for _, l := range lines {
		mutated = append(mutated, maps.Clone(l))
	}
	at := rnd.IntN(len(lines))
	l := mutated[at]
	single := l["op"] == "lost" || l["op"] == "crash" || l["op"] == "declare"
	switch rnd.IntN(6) {
	case 0:
		return "duplicate field", mutated
	case 1:
		if l["op"] == "crash" { // which changes nothing the second time
			return "", nil
		}
		return "duplicate line", slices.Insert(mutated, at, l)
	case 2:
		to := rnd.IntN(len(lines))
		if to == at {
			return "", nil
		}
		return "move line", slices.Insert(slices.Delete(mutated, at, at+1), to, l)
	case 3: // to the other end
		name, value := anyField(rnd, l)
		other := endOf(lines, at)
		if single || other < 0 || slices.Contains([]string{"index", "holds", "node", "error", "type", "time"}, name) {
			return "", nil
		}
		if _, had := mutated[other][name]; had {
			return "", nil
		}
		delete(l, name)
		mutated[other][name] = value
		return "move field", mutated
	case 4: // of a completion, what it repeats, or what no line is without
		name, _ := anyField(rnd, l)
		if slices.Contains([]string{"expires", "token", "queued", "value", "capacity", "reentrant", "fair", "fenced", "drift", "from", "mode", "owner", "lease", "permits", "lock", "resource"}, name) && (single || l["type"] == "invoke" || !slices.Contains([]string{"owner", "mode", "lease", "permits", "resource"}, name)) {
			return "", nil // its loss says something else, which is right as well
		}
		delete(l, name)
		return "drop field", mutated
	default:
		name, _ := anyField(rnd, l)
		if other := endOf(lines, at); single || other < 0 || l["type"] == "invoke" || !slices.Contains([]string{"lock", "owner", "mode", "permits", "lease", "resource", "op"}, name) {
			return "", nil
		}
		l[name] = map[string]any{"lock": "other", "owner": "x", "mode": "shared", "permits": 7, "lease": 3, "resource": "s", "op": "heal"}[name]
		return "other value", mutated
	}
}
