//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/internal/runtest"
)

// What docs/logs.md shows is what comes of its files: the exit codes, and the first line of each answer.
func TestLogsOfTheDocument(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"jq", "sqlite3"} {
		if _, err := exec.LookPath(program); err != nil {
			runtest.Lacks(t, err)
		}
	}
	doc, err := os.ReadFile(filepath.Join(root, "docs", "logs.md"))
	require.NoError(t, err)
	dir, script, files, runs := t.TempDir(), "", "", 0
	for _, part := range regexp.MustCompile("(?s)<!-- (file|run) (\\S+) -->\n```[a-z]*\n(.*?)```").FindAllStringSubmatch(string(doc), -1) {
		if part[1] == "file" {
			files += "-- " + part[2] + " --\n" + part[3]
			continue
		}
		command, want, _ := strings.Cut(strings.TrimPrefix(part[3], "$ "), "\n")
		script += fmt.Sprintf("exits %s bash -o pipefail -c '%s'\nstdout '%s'\n", part[2], command, strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(want)), "'", "."))
		runs++
	}
	require.Equal(t, 4, runs)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "logs.txtar"), []byte(script+files), 0o600))
	scripts(t, dir)
}
