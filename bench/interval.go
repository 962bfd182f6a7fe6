package bench

import (
	"math"
	"slices"

	"golang.org/x/perf/benchmath"
)

const (
	// confidence is how often an interval contains what it estimates.
	confidence = 0.95
	// leastRounds is from how many rounds on there is an interval: the range of five values
	// contains their distribution's median in less than 95 % of all cases.
	leastRounds = 6
)

// An Interval is where the median of a ratio lies, with a confidence of 95 % at least,
// whatever the distribution of the rounds.
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
)

// A Ratio is a figure divided by another one of the same round, over all rounds.
type Ratio struct {
	Spread
	// Interval is nil after too few rounds.
	Interval   *Interval  `json:"interval,omitempty"`
	Difference Difference `json:"difference,omitempty"`
}

// ratioOf describes the ratios of some rounds. Less says that a lower one is better.
func ratioOf(ratios []float64, less bool) Ratio {
	if len(ratios) == 0 {
		return Ratio{}
	}
	r := Ratio{Spread: spreadOf(slices.Clone(ratios))}
	if len(ratios) >= leastRounds {
		s := benchmath.AssumeNothing.Summary(benchmath.NewSample(slices.Clone(ratios), &benchmath.DefaultThresholds), confidence)
		r.Interval = &Interval{s.Lo, s.Hi}
	}
	switch i := r.Interval; {
	case i == nil:
		r.Difference = TooFewRounds
	case i.Low <= 1 && 1 <= i.High:
		r.Difference = NoneShown
	case i.Low > 1 != less:
		r.Difference = Better
	default:
		r.Difference = Worse
	}
	return r
}

// narrow says that more rounds would not tell much more: the interval is at most a tenth of
// the ratio wide, or a quarter of its distance from 1.
func (r Ratio) narrow() bool {
	if r.Interval == nil {
		return false
	}
	return r.Interval.High-r.Interval.Low <= max(r.Median/10, math.Abs(r.Median-1)/4)
}
