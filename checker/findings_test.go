package checker_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
)

// A summary gives each reason why a property could not be decided, unless there are very many.
func TestSummaryGivesAllReasons(t *testing.T) {
	require.Equal(t, "a; b; c", checker.Doubted("a", "b", "a", "c").Summary)
	require.Equal(t, "1; 2; 3; 4; 5; 6; 7; 8 (and 2 reasons more)", checker.Doubted("1", "2", "3", "4", "5", "6", "7", "8", "9", "10").Summary)
}
