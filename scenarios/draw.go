package scenarios

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/faults"
)

// fullPace is the length of a run from which on faults take their full time. In
// a shorter one all times of the plan are shorter in proportion, so that it
// meets faults as well.
const fullPace = 10 * time.Second

// A pace says how dense a plan is.
type pace struct {
	// start and end are quiet, the end so that it can be seen whether the lock is
	// of use again.
	start, end time.Duration
	// least and spread are the pause between two faults: the least, and up to so
	// much longer.
	least, spread time.Duration
	scale         float64
}

func paceOf(length time.Duration) pace {
	scale := min(1, max(0, float64(length)/float64(fullPace)))
	p := pace{scale: scale}
	p.start, p.end = p.of(time.Second), p.of(3*time.Second)
	p.least, p.spread = max(p.of(500*time.Millisecond), time.Millisecond), p.of(time.Second)
	return p
}

// of is a time at this pace.
func (p pace) of(d time.Duration) time.Duration {
	return time.Duration(float64(d) * p.scale).Round(time.Millisecond)
}

// draw makes a plan for a run of that length, in which no two faults overlap.
// The picks are shuffled like a deck of cards, in which those of more weight tend
// to lie further up, and each is drawn once before any is drawn again. The same
// generator state gives the same plan.
//
// The order is that of weighted sampling without replacement by Efraimidis and
// Spirakis (2006): each has an exponential variate divided by its weight.
func draw(rng *rand.Rand, picks []pick, length time.Duration) faults.Schedule {
	if len(picks) == 0 {
		return nil
	}
	pace := paceOf(length)
	var plan faults.Schedule
	var deck []pick
	for at := pace.start; ; {
		if len(deck) == 0 {
			deck = shuffled(rng, picks)
		}
		p := deck[0]
		deck = deck[1:]
		step := faults.Step{
			At: at, For: between(rng, pace.of(p.least), pace.of(p.most)), Fault: p.fault,
			Target: oneOf(rng, p.target), Params: drawParams(rng, p.params),
		}
		if step.At+step.For > length-pace.end {
			return plan
		}
		plan = append(plan, step)
		at += step.For + between(rng, pace.least, pace.least+pace.spread)
	}
}

func shuffled(rng *rand.Rand, picks []pick) []pick {
	type card struct {
		pick

		place float64
	}
	var deck []card
	for _, p := range picks {
		deck = append(deck, card{p, rng.ExpFloat64() / float64(p.weight)})
	}
	slices.SortStableFunc(deck, func(a, b card) int { return cmp.Compare(a.place, b.place) })
	var order []pick
	for _, c := range deck {
		order = append(order, c.pick)
	}
	return order
}

func between(rng *rand.Rand, least, most time.Duration) time.Duration {
	if most <= least {
		return least
	}
	return (least + time.Duration(rng.Int64N(int64(most-least)))).Round(time.Millisecond)
}

// oneOf draws one of the choices "a|b".
func oneOf(rng *rand.Rand, choices string) string {
	all := strings.Split(choices, "|")
	return all[rng.IntN(len(all))]
}

func drawParams(rng *rand.Rand, params map[string]string) map[string]string {
	drawn := maps.Clone(params)
	for _, key := range slices.Sorted(maps.Keys(params)) { // in a fixed order, for the generator's sake
		if least, most, ok := numbers(params[key]); ok {
			drawn[key] = strconv.Itoa(least + rng.IntN(most-least+1))
		} else {
			drawn[key] = oneOf(rng, params[key])
		}
	}
	return drawn
}

// numbers reads a range of whole numbers, "10-50".
func numbers(s string) (least, most int, ok bool) {
	from, to, ranged := strings.Cut(s, "-")
	least, errFrom := strconv.Atoi(from)
	most, errTo := strconv.Atoi(to)
	return least, most, ranged && errFrom == nil && errTo == nil && most >= least
}
