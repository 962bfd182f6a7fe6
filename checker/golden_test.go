package checker_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
)

var update = flag.Bool("update", false, "write the golden files")

// The sentences that people read, of every violation in the corpus.
func TestExplanations(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/invalid/*.jsonl")
	require.NoError(t, err)
	var got bytes.Buffer
	for _, path := range files {
		fmt.Fprintln(&got, filepath.Base(path))
		for _, r := range checker.Check(t.Context(), load(t, path)).Results {
			for _, v := range r.Violations {
				fmt.Fprintf(&got, "  %s %v: %s\n", v.Kind, v.Events, v.Explanation)
			}
		}
	}
	const golden = "testdata/explanations.golden"
	if *update {
		require.NoError(t, os.WriteFile(golden, got.Bytes(), 0o600))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), got.String())
}
