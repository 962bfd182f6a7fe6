package reports_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports"
)

// The page says what the run was told and ran on, and leads to the logs where there are some, but to none outside.
func TestEnvironment(t *testing.T) {
	in, dir := failover(), t.TempDir()
	in.Run.Settings, in.Run.Topology.Options = json.RawMessage(`{"clients":8,"new_<one>":3}`), map[string]string{"min-replicas": "1"}
	in.Run.Machine = &history.Machine{OS: "linux", Arch: "amd64", Kernel: "6.1.0-<13>", CPUs: 2, Go: "go1.26"}
	writeRun(t, dir, in)
	logs := filepath.Join(dir, history.LogsDir)
	require.NoError(t, os.Mkdir(logs, 0o755))
	for _, name := range []string{"redis-3.log", "sentinel <1.log", "notes.txt"} {
		require.NoError(t, os.WriteFile(filepath.Join(logs, name), nil, 0o600))
	}
	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(logs, "elsewhere.log")))
	require.NoError(t, reports.WriteDir(dir, in))
	b, err := os.ReadFile(filepath.Join(dir, reports.HTMLFile))
	require.NoError(t, err)
	page := string(b)
	for _, want := range []string{
		"<dt>Options</dt><dd>min-replicas 1</dd>", "&#34;clients&#34;: 8", "<dt>Machine</dt><dd>linux 6.1.0-&lt;13&gt;, amd64, 2 CPUs, built with go1.26</dd>",
		`<a href="./logs/redis-3.log">redis-3</a>`, `<a href="./logs/sentinel%20%3C1.log">sentinel &lt;1</a>`,
	} {
		require.Contains(t, page, want)
	}
	for _, not := range []string{"elsewhere", "notes", "new_<one>"} {
		require.NotContains(t, page, not)
	}
	page = htmlOf(t, valid())
	require.NotContains(t, page, "logs/")
	require.NotContains(t, page, "<dt>Machine", "a run.json of an earlier version")
}
