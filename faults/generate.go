package faults

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// fullPace is the length of a run from which on faults take their full time. In
// a shorter one all times of the plan are shorter in proportion, so that it
// meets faults as well.
const fullPace = 10 * time.Second

// A Pace says how dense the plan of a run is.
type Pace struct {
	// Start and End are quiet, the end so that it can be seen whether the lock is
	// of use again.
	Start, End time.Duration
	// Least and Spread are the pause between two faults: the least, and up to so
	// much longer.
	Least, Spread time.Duration
	scale         float64
}

// PaceOf is the pace of a run of that length.
func PaceOf(length time.Duration) Pace {
	scale := min(1, max(0, float64(length)/float64(fullPace)))
	p := Pace{scale: scale}
	p.Start, p.End = p.of(time.Second), p.of(3*time.Second)
	p.Least, p.Spread = max(p.of(500*time.Millisecond), time.Millisecond), p.of(time.Second)
	return p
}

// of is a time at this pace.
func (p Pace) of(d time.Duration) time.Duration {
	return time.Duration(float64(d) * p.scale).Round(time.Millisecond)
}

// Generate makes a plan for a run of that length, in which no two faults overlap.
// The candidates are shuffled like a deck of cards, in which those of more weight
// tend to lie further up, and each is drawn once before any is drawn again. The same
// generator state gives the same plan.
//
// The order is that of weighted sampling without replacement by Efraimidis and
// Spirakis (2006): each has an exponential variate divided by its weight.
func Generate(rng *rand.Rand, candidates []Candidate, length time.Duration) Schedule {
	if len(candidates) == 0 {
		return nil
	}
	pace := PaceOf(length)
	var plan Schedule
	var deck []Candidate
	for at := pace.Start; ; {
		if len(deck) == 0 {
			deck = shuffled(rng, candidates)
		}
		c := deck[0]
		deck = deck[1:]
		step := Step{
			At: at, For: between(rng, pace.of(c.Least), pace.of(c.Most)), Fault: c.Fault,
			Target: oneOf(rng, c.Target), Params: drawParams(rng, c.Params),
		}
		if step.At+step.For > length-pace.End {
			return plan
		}
		plan = append(plan, step)
		at += step.For + between(rng, pace.Least, pace.Least+pace.Spread)
	}
}

func shuffled(rng *rand.Rand, candidates []Candidate) []Candidate {
	type card struct {
		Candidate

		place float64
	}
	var deck []card
	for _, c := range candidates {
		deck = append(deck, card{c, rng.ExpFloat64() / float64(c.Weight)})
	}
	slices.SortStableFunc(deck, func(a, b card) int { return cmp.Compare(a.place, b.place) })
	var order []Candidate
	for _, c := range deck {
		order = append(order, c.Candidate)
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
	if len(params) == 0 {
		return nil
	}
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
