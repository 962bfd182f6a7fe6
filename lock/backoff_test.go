package lock

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/lockchaos/lockchaos/lock/chance"
)

// Pauses double until they reach the longest, and no number of tries makes them
// overflow.
func TestPauses(t *testing.T) {
	draws(t, func(t *testing.T, rng *rand.Rand) {
		t.Helper()
		// Of each order of magnitude as many, and none.
		length := func() time.Duration { return time.Duration(rng.Int64N(2 << rng.IntN(54))) }
		b := Backoff{Min: length() * time.Duration(rng.IntN(2)), Max: length() * time.Duration(rng.IntN(2))}
		if b.Validate() != nil {
			b.Min, b.Max = b.Max, b.Min
		}
		b = b.withDefaults()
		if b.Min <= 0 || b.Max < b.Min {
			t.Fatalf("pauses of %v to %v", b.Min, b.Max)
		}
		longest := b.Min
		for tries := range 200 {
			got := chance.Pause(b.Min, b.Max, tries)
			if got < longest-longest/2 || got > longest {
				t.Fatalf("try %d of %+v comes after %v; want %v to %v", tries, b, got, longest-longest/2, longest)
			}
			if longest > b.Max/2 {
				longest = b.Max
			} else {
				longest *= 2
			}
		}
	})
}
