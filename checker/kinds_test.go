package checker_test

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
)

// Each kind that is declared is described.
func TestKinds(t *testing.T) {
	source, err := os.ReadFile("kinds.go")
	require.NoError(t, err)
	declared := regexp.MustCompile(`(?m)^\t\w+ += "([a-z-]+)"`).FindAllStringSubmatch(string(source), -1)
	require.Len(t, declared, len(checker.Kinds()))
	for _, name := range declared {
		k, place := checker.KindOf(name[1])
		require.Equal(t, checker.Kinds()[place], k)
		require.NotEmpty(t, k.Noun, "%s can't be counted", k.Name)
	}
	k, place := checker.KindOf("of-another-version")
	require.Equal(t, checker.Kind{Name: "of-another-version"}, k)
	require.Len(t, checker.Kinds(), place)
}
