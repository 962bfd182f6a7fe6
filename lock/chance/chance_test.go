package chance_test

import (
	"slices"
	"testing"
	"time"

	"github.com/lockchaos/lockchaos/lock/chance"
	"github.com/lockchaos/lockchaos/lock/internal/require"
)

func draws(n int) []time.Duration {
	all := make([]time.Duration, n)
	for i := range all {
		all[i] = chance.N(time.Hour)
	}
	return all
}

func TestSeed(t *testing.T) {
	restore := chance.Seed(7)
	first := draws(20)
	restore()
	unseeded := draws(20)
	restore = chance.Seed(7)
	defer restore()
	require.Equal(t, first, draws(20), "the same seed")
	require.False(t, slices.Equal(first, unseeded), "no seed any more")
}

func TestSeedWithinAnother(t *testing.T) {
	restore := chance.Seed(1)
	defer restore()
	first := chance.N(time.Hour)
	chance.Seed(2)()
	after := chance.N(time.Hour)
	chance.Seed(1)
	require.Equal(t, []time.Duration{first, after}, draws(2), "the first source goes on")
}

func TestNStaysBelow(t *testing.T) {
	for range 1000 {
		n := chance.N(3)
		require.True(t, n >= 0 && n < 3, "%d", n)
	}
}
