package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The changes fit the Go that is installed.
func TestWrite(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, write(dir))
	b, err := os.ReadFile(filepath.Join(dir, "overlay.json"))
	require.NoError(t, err)
	var overlay struct{ Replace map[string]string }
	require.NoError(t, json.Unmarshal(b, &overlay))
	require.Len(t, overlay.Replace, 5)
	for was, is := range overlay.Replace {
		old, err := os.ReadFile(was)
		require.NoError(t, err)
		replaced, err := os.ReadFile(is)
		require.NoError(t, err)
		require.NotEqual(t, string(old), string(replaced))
	}
}

// Of another Go it says what does not fit.
func TestAnotherRuntime(t *testing.T) {
	_, err := changed(func(name string) ([]byte, error) {
		var b strings.Builder
		for _, c := range changes() {
			if c.file == name && name != "select.go" {
				b.WriteString(c.old)
			}
		}
		return []byte(b.String()), nil
	})
	require.EqualError(t, err, "runtime/select.go: want one place, and there are 0, for: which ready case of a select is taken")
}
