package reports_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports"
)

// pageWithLogs is the page of a run directory with the logs of servers.
func pageWithLogs(t *testing.T, in reports.Input, logs map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	writeRun(t, dir, in)
	require.NoError(t, os.Mkdir(filepath.Join(dir, history.LogsDir), 0o755))
	for name, text := range logs {
		require.NoError(t, os.WriteFile(filepath.Join(dir, history.LogsDir, name), []byte(text), 0o600))
	}
	outside := filepath.Join(t.TempDir(), "passwords.log")
	require.NoError(t, os.WriteFile(outside, []byte(logged(in.Run.Started, "outside")), 0o600))
	require.NoError(t, os.Symlink(outside, filepath.Join(dir, history.LogsDir, "elsewhere.log")))
	require.NoError(t, reports.WriteDir(dir, in))
	page, err := os.ReadFile(filepath.Join(dir, reports.HTMLFile))
	require.NoError(t, err)
	return string(page)
}

// logged is a line of a server's log.
func logged(at time.Time, text string) string {
	return fmt.Sprintf("4711:M %s * %s\n", at.Format("02 Jan 2006 15:04:05.000"), text)
}

// The page has what the servers logged around the violation, also of a server whose log
// is in UTC, and of none whose log is not of this run.
func TestLogLines(t *testing.T) {
	in := failover() // violated at 1.716 s
	in.Run.Started = time.Date(2026, 3, 29, 23, 59, 59, 0, time.FixedZone("", 7200))
	in.Run.Duration = 3 * time.Second
	at := func(after time.Duration) time.Time { return in.Run.Started.Add(after) }
	page := pageWithLogs(t, in, map[string]string{
		"redis-1.log": "no log line\n" + logged(at(-time.Second), "before the run") + logged(at(1700*time.Millisecond), `<script>alert("log")</script>`+"\x1b[31m") +
			logged(at(1713*time.Millisecond), "MASTER MODE enabled"),
		"redis-2.log":     logged(at(time.Second).UTC(), "in UTC"),
		"redis-3.log":     logged(at(-300*time.Hour), "of another run"),
		"sentinel <1.log": strings.Repeat(logged(at(2*time.Second), strings.Repeat("long ", 100)), 500),
		"notes.txt":       logged(at(1700*time.Millisecond), "no log"),
	})
	block := page[strings.Index(page, `<details class="fold logs raw">`):]
	block = block[:strings.Index(block, "</details>")]
	require.Contains(t, block, "What the servers logged around 1.716 s, by their own clocks: 15 lines")
	require.Contains(t, block, "   1.713 s  redis-1     MASTER MODE enabled\n")
	require.Contains(t, block, "   1.700 s  redis-1     &lt;script&gt;alert")
	require.Contains(t, block, "   1.000 s  redis-2     in UTC\n")
	require.NotContains(t, page, "\x1b")
	require.Less(t, len(block), 10_000)
	for _, not := range []string{"before the run", "of another run", "no log line", "no log", "outside"} {
		require.NotContains(t, block, not)
	}
	require.Contains(t, page, `<a href="./logs/redis-3.log">redis-3</a>`)
	require.Contains(t, page, `<a href="./logs/sentinel%20%3C1.log">sentinel &lt;1</a>`)
	require.NotContains(t, page, "elsewhere.log", "a link leads out of the directory")

	// Without a violation there is no moment; the logs are there.
	page = pageWithLogs(t, valid(), map[string]string{"redis-1.log": logged(valid().Run.Started, "ready")})
	require.NotContains(t, page, `class="logs"`)
	require.Contains(t, page, `<a href="./logs/redis-1.log">redis-1</a>`)
}
