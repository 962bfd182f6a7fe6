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

// seldomSeeds is how many seeds there are for one that draws a [Candidate] that is Seldom, and
// planStream keeps the plan's choices apart from those of the workload.
const (
	seldomSeeds = 4
	planStream  = 1 << 32
)

// Generate makes the plan of a seed for a run of that length, in which no two faults overlap.
// Seeds that follow each other begin with other candidates. After the first, the candidates are
// shuffled like a deck of cards, in which those of more weight tend to lie further up, and each
// is drawn once before any is drawn again. The brief ones and the others have a deck each.
//
// The order of a deck is that of weighted sampling without replacement by Efraimidis and
// Spirakis (2006): each has an exponential variate divided by its weight.
func Generate(seed uint64, candidates []Candidate, length time.Duration) Plan {
	candidates, first := begin(seed, candidates)
	if len(candidates) == 0 {
		return nil
	}
	rng := rand.New(rand.NewPCG(seed, planStream))
	brief, others := &deck{first: first}, &deck{first: first}
	for _, c := range candidates {
		if c.Brief {
			brief.all = append(brief.all, c)
		} else {
			others.all = append(others.all, c)
		}
	}
	turn := 0
	if !first.Brief {
		turn = othersTurn
	}
	pace := PaceOf(length)
	var plan Plan
	for at := pace.Start; ; turn++ {
		from := brief
		if len(others.all) > 0 && turn%turns == othersTurn || len(brief.all) == 0 {
			from = others
		}
		c := from.draw(rng)
		step := Step{
			At: at, For: between(rng, pace.of(c.Least), pace.of(c.Most)), Fault: c.Spec.Name,
			Target: oneOf(rng, c.Target), Params: drawParams(rng, c.Params),
		}
		if step.At+step.For > length-pace.End {
			return plan
		}
		plan = append(plan, Planned{step, c.Spec})
		spread := pace.Spread
		if c.Brief {
			spread /= 2
		}
		at += max(step.For, millis(step, "for")) + between(rng, pace.Least, pace.Least+spread)
	}
}

// Of each so many faults one is none of the brief ones: that which comes in that turn.
const turns, othersTurn = 3, 2

// begin is what a seed draws from, and what it draws first: a seldom one in its seeds, and else
// the one at the seed's place in a sequence that visits all in proportion to their weights, with
// those of neighbours far apart (multiples of the golden ratio).
func begin(seed uint64, candidates []Candidate) (from []Candidate, first Candidate) {
	seldom := func(c Candidate) bool { return c.Seldom }
	from = slices.DeleteFunc(slices.Clone(candidates), seldom)
	if at := slices.IndexFunc(candidates, seldom); at >= 0 && (seed%seldomSeeds == 1 || len(from) == 0) {
		return append(from, candidates[at]), candidates[at]
	}
	total := 0
	for _, c := range from {
		total += c.Weight
	}
	const golden = 0x9e3779b97f4a7c15 // 2^64 divided by it
	at := int(seed * golden >> 32 * uint64(total) >> 32)
	for _, c := range from {
		if at -= c.Weight; at < 0 {
			return from, c
		}
	}
	return from, first // there are none
}

// A deck is candidates in the order in which they are drawn, each once before any comes again.
type deck struct {
	all, left []Candidate
	first     Candidate // lies on top, if it is one of them
}

func (d *deck) draw(rng *rand.Rand) Candidate {
	if len(d.left) == 0 {
		d.left = shuffled(rng, d.all)
		if at := slices.IndexFunc(d.left, d.first.same); at > 0 {
			d.left = slices.Concat(d.left[at:at+1], d.left[:at], d.left[at+1:])
		}
		d.first = Candidate{}
	}
	c := d.left[0]
	d.left = d.left[1:]
	return c
}

func shuffled(rng *rand.Rand, candidates []Candidate) []Candidate {
	deck := slices.Clone(candidates)
	for i := range deck {
		deck[i].place = rng.ExpFloat64() / float64(deck[i].Weight)
	}
	slices.SortStableFunc(deck, func(a, b Candidate) int { return cmp.Compare(a.place, b.place) })
	return deck
}

func between(rng *rand.Rand, least, most time.Duration) time.Duration {
	if most <= least {
		return least
	}
	return (least + time.Duration(rng.Int64N(int64(most-least)))).Round(time.Millisecond)
}

// oneOf draws one of the choices "a|b", and of a range among them, "10-50", a whole number.
func oneOf(rng *rand.Rand, choices string) string {
	all := strings.Split(choices, "|")
	one := all[rng.IntN(len(all))]
	if least, most, ok := numbers(one); ok {
		return strconv.Itoa(least + rng.IntN(most-least+1))
	}
	return one
}

func drawParams(rng *rand.Rand, params map[string]string) map[string]string {
	if len(params) == 0 {
		return nil
	}
	drawn := maps.Clone(params)
	for _, key := range slices.Sorted(maps.Keys(params)) { // in a fixed order, for the generator's sake
		drawn[key] = oneOf(rng, params[key])
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
