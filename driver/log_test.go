package driver_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/driver"
)

// What drivers of several languages log as they end, and which lines of it are told.
func TestLastWords(t *testing.T) {
	files, err := filepath.Glob("testdata/ended/*.log")
	require.NoError(t, err)
	var got strings.Builder
	for _, file := range files {
		log, err := os.ReadFile(file)
		require.NoError(t, err)
		got.WriteString(strings.TrimSuffix(filepath.Base(file), ".log") + driver.LastWords(string(log)) + "\n")
	}
	golden, err := os.ReadFile("testdata/ended.golden")
	require.NoError(t, err)
	require.Equal(t, string(golden), got.String())
}
