package faults

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Choice is a fault that a schedule may be drawn from.
type Choice struct {
	Fault  string
	Target string
	// Params are the fault's parameters. A value "10-50" is drawn from that
	// range of whole numbers, each time anew.
	Params map[string]string
	// Min and Max bound how long it lasts; both zero for a fault without
	// duration.
	Min, Max time.Duration
}

// The pauses of a drawn schedule: nothing happens for a moment at the start,
// between two faults, and at the end, where everything has healed.
const (
	quietStart  = time.Second
	quietSpread = time.Second
	// QuietLeast is the shortest pause between two faults.
	QuietLeast = 500 * time.Millisecond
	// QuietEnd is the pause at the end.
	QuietEnd = 3 * time.Second
)

// Draw makes a schedule for a run of that length. Like a deck of cards, the
// choices are shuffled and each is drawn once before any is drawn again. The
// same generator state gives the same schedule.
func Draw(rng *rand.Rand, choices []Choice, length time.Duration) Schedule {
	if len(choices) == 0 {
		return nil
	}
	var s Schedule
	var deck []int
	at := quietStart
	for {
		if len(deck) == 0 {
			deck = rng.Perm(len(choices))
		}
		c := choices[deck[0]]
		deck = deck[1:]
		step := Step{At: at, For: between(rng, c.Min, c.Max), Fault: c.Fault, Target: c.Target, Params: drawParams(rng, c.Params)}
		at += step.For + QuietLeast + time.Duration(rng.Int64N(int64(quietSpread)))
		if step.At+step.For > length-QuietEnd {
			return s
		}
		s = append(s, step)
	}
}

func between(rng *rand.Rand, least, most time.Duration) time.Duration {
	if most <= least {
		return least
	}
	return (least + time.Duration(rng.Int64N(int64(most-least)))).Round(time.Millisecond)
}

func drawParams(rng *rand.Rand, params map[string]string) map[string]string {
	drawn := maps.Clone(params)
	for _, key := range slices.Sorted(maps.Keys(params)) { // in a fixed order, for the generator's sake
		from, to, ranged := strings.Cut(params[key], "-")
		least, errFrom := strconv.Atoi(from)
		most, errTo := strconv.Atoi(to)
		if ranged && errFrom == nil && errTo == nil && most > least {
			drawn[key] = strconv.Itoa(least + rng.IntN(most-least+1))
		}
	}
	return drawn
}
