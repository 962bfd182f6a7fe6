package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"
)

// What the program says without a server is in testdata/says.list: for each command its exit code, its words, and patterns
// of what it prints, or of its complaint where the code is not a verdict (!: has not). A line that begins with a tab goes
// on with the one before. They are played in this process, one after another, in a folder that has the files.
func TestSays(t *testing.T) {
	archive, err := txtar.ParseFile("testdata/says.list")
	require.NoError(t, err)
	t.Chdir(t.TempDir())
	for _, f := range archive.Files {
		require.NoError(t, os.MkdirAll(filepath.Dir(f.Name), 0o755))
		require.NoError(t, os.WriteFile(f.Name, f.Data, 0o600))
	}
	for line := range strings.Lines(strings.ReplaceAll(string(archive.Comment), "\n\t", " ")) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		parts := strings.Split(line, " :: ")
		words := shellWords(parts[0])
		var stdout, stderr bytes.Buffer
		code := run(words[1:], &stdout, &stderr)
		require.Equal(t, words[0], strconv.Itoa(code), "%s\n%s%s", line, &stdout, &stderr)
		said := stdout.String()
		if code > exitUnknown {
			said = stderr.String()
		}
		for _, pattern := range parts[1:] {
			pattern, not := strings.CutPrefix(pattern, "! ")
			require.Equal(t, !not, regexp.MustCompile("(?m)"+pattern).MatchString(said), "%s\n%s", line, said)
		}
		require.NoDirExists(t, "reports", line)
		require.NoDirExists(t, "cached", line)
	}
}
