package scenarios_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/internal/locks"
	"github.com/lockchaos/lockchaos/scenarios"
)

const boundedScript = "name: x\ntitle: X.\ntopology: single\nlock: mutex\nclients: {a: zone-a}\nexpect: {verdict: valid}\n"

// What a file may have is bounded before it is decoded.
func TestAFileOfAScenarioIsBounded(t *testing.T) {
	t.Parallel()
	const steps = "steps:\n  - {client: a, acquire: l}\n"
	for _, tt := range []struct{ name, give, want string }{
		{"empty", "", "it is empty; want a scenario"},
		{"only a comment", "# nothing\n\n", "it is empty; want a scenario"},
		{"an alias", "a: &x {b: c}\nd: *x\n", "line 1: &: anchors, aliases and merge keys can't be used here"},
		{"a merge key", boundedScript + steps + "<<: {}\n", "anchors, aliases and merge keys can't be used here"},
		{"brackets within brackets", strings.Repeat("{a: ", 20_000), "line 1: nested deeper than 10"},
		{"lists within lists", "a:\n  " + strings.Repeat("- ", 20_000) + "x\n", "line 2: nested deeper than 10"},
		{"indented", "a:\n" + strings.Repeat(" ", 41) + "b: c\n", "line 2: indented by more than 40"},
		{"too long", boundedScript + "# " + strings.Repeat("x", 1<<20), "longer than 1048576 bytes"},
		{"not text", "\x00\x01", "there are NUL bytes; want YAML"},
		{"a lease of centuries", boundedScript + "steps:\n  - {client: a, acquire: l, lease: 9223372036854775807ns}\n", "steps[0].lease is 2562047h47m16.854775807s: want 24h0m0s at the most"},
		{"a command", strings.Replace(boundedScript, "lock: mutex", `lock: "exec:touch x"`, 1) + steps, `its lock is a command, "touch x": what a file names is run only with --allow-exec`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := scenarios.Parse("x.yaml", []byte(tt.give), locks.All())
			require.ErrorContains(t, err, tt.want)
		})
	}
	_, err := scenarios.Parse("x.yaml", []byte(boundedScript+steps), locks.All())
	require.NoError(t, err, "what the others are a little different from")
}

// The command that a file names as its lock is run only where that is allowed.
func TestALoadedFileRunsNoCommand(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	made, file := filepath.Join(dir, "made"), filepath.Join(dir, "x.yaml")
	script := strings.Replace(boundedScript, "lock: mutex", `lock: "exec:touch `+made+`"`, 1) + "steps:\n  - {client: a, acquire: l}\n"
	require.NoError(t, os.WriteFile(file, []byte(script), 0o600))
	_, err := scenarios.Load(file, locks.All(), false)
	require.ErrorContains(t, err, "touch "+made)
	require.NoFileExists(t, made)
	_, err = scenarios.Load(file, locks.All(), true)
	require.Error(t, err, "it is no driver")
	require.FileExists(t, made)
}

// A pipe without a writer, and a device without an end, are refused at once.
func TestALoadedFileIsARegularFile(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "x.yaml")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	for _, file := range []string{pipe, "/dev/zero"} {
		_, err := scenarios.Load(file, locks.All(), false)
		require.ErrorContains(t, err, "it is no regular file")
	}
}
