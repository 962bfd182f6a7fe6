package history

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
)

// lineSchema returns the schema, compiled.
func lineSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema()))
	require.NoError(t, err)
	compiler := jsonschema.NewCompiler()
	require.NoError(t, compiler.AddResource("schema.json", document))
	compiled, err := compiler.Compile("schema.json")
	require.NoError(t, err)
	return compiled
}

// agrees holds the schema against the decoder on one line.
func agrees(t *testing.T, schema *jsonschema.Schema, line []byte) (accepted bool) {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(line))
	require.NoError(t, err)
	refused := schema.Validate(value)
	err = newDecoder().decode(line)
	require.Equal(t, err == nil, refused == nil, "%s\nthe decoder says %v, the schema says %v", line, err, refused)
	return err == nil
}

// corpus returns every line of the histories that the checker is tested with.
func corpus(t *testing.T) [][]byte {
	t.Helper()
	files, err := filepath.Glob("../checker/testdata/*/*.jsonl")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	var lines [][]byte
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		for line := range bytes.Lines(content) {
			if json.Valid(line) { // a last line may be cut short
				lines = append(lines, line)
			}
		}
	}
	return lines
}

func TestSchemaAcceptsTheCorpus(t *testing.T) {
	schema := lineSchema(t)
	for _, line := range corpus(t) {
		require.True(t, agrees(t, schema, line), "%s", line)
	}
}

// Each field of each kind of event is given each of these values, or is left out, and the
// schema says what the decoder says. A change tries a sixth of them, at random, a night all.
func TestSchemaRefusesWhatTheDecoderRefuses_NoRace(t *testing.T) {
	t.Parallel()
	values := []string{
		`null`, `""`, `"x"`, `"p1"`, `-2`, `-1`, `0`, `1`, `0.5`, `2147483647`, `2147483648`, `2305843009213693951`, `2305843009213693952`,
		`9223372036854775807`, `9223372036854775808`, `-9223372036854775808`, `-9223372036854775809`, `true`, `false`, `[]`, `{}`, `["x",null]`, `[1]`, `{"a":"b"}`, `{"a":1}`, `{"a":null}`,
		`"invoke"`, `"ok"`, `"fail"`, `"info"`, `"exclusive"`, `"permit"`, `"PERMIT"`,
		`"acquire"`, `"release"`, `"extend"`, `"lost"`, `"access"`, `"crash"`, `"inject"`, `"heal"`, `"observe"`, `"declare"`,
	}
	var keys []string
	for _, f := range Fields() {
		keys = append(keys, f.Name)
	}
	keys = append(keys, "unknown", "times")
	schema := lineSchema(t)
	seen := map[string]bool{}
	accepted, refused := 0, 0
	all, seed := os.Getenv("LOCKCHAOS_TEST_NIGHTLY") == "1", rand.Uint64()
	t.Logf("seed %d", seed)
	drawn := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // it is no secret
	for _, line := range corpus(t) {
		var event map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(line, &event))
		kind := fmt.Sprintf("%s %s", event["op"], event["type"])
		if seen[kind] {
			continue
		}
		seen[kind] = true
		for _, key := range keys {
			was, had := event[key]
			for _, value := range append(values, "") {
				if !all && drawn.IntN(6) != 0 {
					continue
				}
				if value == "" {
					delete(event, key)
				} else {
					event[key] = json.RawMessage(value)
				}
				changed, err := json.Marshal(event)
				require.NoError(t, err)
				if agrees(t, schema, changed) {
					accepted++
				} else {
					refused++
				}
			}
			if delete(event, key); had {
				event[key] = was
			}
		}
	}
	require.Greater(t, accepted, 1000)
	require.Greater(t, refused, 1000)
	for _, line := range []string{`[]`, `1`, `null`, `"x"`, `{}`} {
		require.False(t, agrees(t, schema, []byte(line)), "%s", line)
	}
}
