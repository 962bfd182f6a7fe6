package say_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/internal/say"
)

func TestTables(t *testing.T) {
	t.Parallel()
	require.Equal(t, "A     B\nlong  b\nc\n", say.Aligned([][]string{{"A", "B"}, {"long", "b"}, {"c", ""}}))
	require.Equal(t, "| a | b\\|c |\n", say.Row("a", "b|c"))
}
