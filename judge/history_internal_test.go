package judge

import (
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

// What tells a long history from a short one reads nothing away, and tells a reader that fails.
func TestALongHistoryHasMoreLines(t *testing.T) {
	t.Parallel()
	for lines, long := range map[int]bool{0: false, LongEvents: false, LongEvents + 1: true} {
		text := strings.Repeat("{}\n", lines)
		r, is, err := isLong(strings.NewReader(text))
		require.NoError(t, err)
		require.Equal(t, long, is, lines)
		all, err := io.ReadAll(r)
		require.NoError(t, err)
		require.Equal(t, len(text), len(all))
	}
	_, _, err := isLong(io.MultiReader(strings.NewReader("{}\n"), iotest.ErrReader(os.ErrDeadlineExceeded)))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
}
