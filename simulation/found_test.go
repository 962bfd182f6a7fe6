package simulation_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/simulation"
)

// Which case says how requests ended does not depend on which is done first.
func TestSearch_DenialIsOfTheFirstCase(t *testing.T) {
	t.Parallel()
	var s simulation.Search
	for _, order := range []int{2, 0, 1} {
		s.Add(order, simulation.Result{Denied: []string{"a", "b", "c"}[order]})
	}
	require.Equal(t, "a", s.Denied)
}
