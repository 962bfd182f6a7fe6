package bench

import (
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"
)

const (
	// confidence is how often an interval contains what it estimates.
	confidence = 0.95
	// leastRounds is from how many rounds on there is an interval: the range of five values
	// contains their distribution's median in less than 95 % of all cases.
	leastRounds = 6
	// resamples is how often the rounds are drawn again.
	resamples = 2000
)

// An Interval is where the median of a ratio lies, with a confidence of 95 %.
type Interval struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// A Difference is what an interval says about two figures.
type Difference string

// The differences.
const (
	Better       Difference = "better"
	Worse        Difference = "worse"
	NoneShown    Difference = "no difference shown" // the interval contains 1
	TooFewRounds Difference = "too few rounds"      // to have an interval
	// Violates and Violated are a lock that broke exclusion in the later, or only in the
	// earlier of two results: such figures are not compared.
	Violates Difference = "violates exclusion"
	Violated Difference = "violated exclusion before"
)

// A Ratio is a figure divided by another one of the same round, over all rounds.
type Ratio struct {
	Spread
	// Interval is nil after too few rounds.
	Interval   *Interval  `json:"interval,omitempty"`
	Difference Difference `json:"difference,omitempty"`
}

// ratioOf describes the ratios of some rounds. Less says that a lower one is better.
func ratioOf(ratios []float64, less bool, seed uint64) Ratio {
	if len(ratios) == 0 {
		return Ratio{}
	}
	r := Ratio{Spread: spreadOf(slices.Clone(ratios))}
	if len(ratios) >= leastRounds {
		i := interval(redraw(ratios), len(ratios), seed)
		r.Interval = &i
	}
	r.Difference = difference(r.Interval, less)
	return r
}

func difference(i *Interval, less bool) Difference {
	switch {
	case i == nil:
		return TooFewRounds
	case i.Low <= 1 && 1 <= i.High:
		return NoneShown
	case i.Low > 1 != less:
		return Better
	default:
		return Worse
	}
}

// interval draws the estimate again and again, and takes the expanded percentiles of Hesterberg
// (What Teachers Should Know About the Bootstrap, arXiv:1411.5279): the plain ones are too narrow for few rounds.
func interval(draw func(*rand.Rand) float64, rounds int, seed uint64) Interval {
	rng := rand.New(rand.NewPCG(seed, 0))
	estimates := make([]float64, resamples)
	for i := range estimates {
		estimates[i] = draw(rng)
	}
	slices.Sort(estimates)
	n := float64(rounds)
	t := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: n - 1}.Quantile((1 + confidence) / 2)
	tail := distuv.UnitNormal.CDF(-t * math.Sqrt(n/(n-1)))
	skip := int(tail * resamples)
	return Interval{estimates[skip], estimates[resamples-1-skip]}
}

// redraw returns a function that draws as many of the values as there are, with replacement, and returns
// the median of the draws.
func redraw(values []float64) func(*rand.Rand) float64 {
	values = slices.Sorted(slices.Values(values))
	drawn := make([]int, len(values)) // how often each was drawn
	return func(rng *rand.Rand) float64 {
		clear(drawn)
		for range values {
			drawn[rng.IntN(len(values))]++
		}
		at := func(rank int) float64 {
			i := 0
			for rank -= drawn[0]; rank >= 0; rank -= drawn[i] {
				i++
			}
			return values[i]
		}
		return (at((len(values)-1)/2) + at(len(values)/2)) / 2
	}
}

// narrow says that more rounds would not tell much more: the interval is at most a tenth of
// the ratio wide, or a quarter of its distance from 1.
func (r Ratio) narrow() bool {
	if r.Interval == nil {
		return false
	}
	return r.Interval.High-r.Interval.Low <= max(r.Median/10, math.Abs(r.Median-1)/4)
}
