package lock

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Pauses double until they reach the longest, and no number of tries makes them
// overflow.
func TestPauses(t *testing.T) {
	durations := rapid.Int64Range(0, int64(365*24*time.Hour))
	rapid.Check(t, func(t *rapid.T) {
		b := Backoff{Min: time.Duration(durations.Draw(t, "min")), Max: time.Duration(durations.Draw(t, "max"))}
		if b.Validate() != nil {
			b.Min, b.Max = b.Max, b.Min
		}
		b = b.withDefaults()
		if b.Min <= 0 || b.Max < b.Min {
			t.Fatalf("pauses of %v to %v", b.Min, b.Max)
		}
		longest := b.Min
		for tries := range 200 {
			got := b.pause(tries)
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
