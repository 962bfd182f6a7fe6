package reports

import (
	"fmt"
	"math"
	"time"
)

// A Rate is how often something was seen in many runs. If they are runs of the same
// kind, Interval has the true share in 95 of 100 cases, from 0 to 1 (Wilson's score
// interval: E. B. Wilson, "Probable inference", JASA 22, 1927). It supposes that runs
// are independent of each other.
type Rate struct {
	Name     string      `json:"name"`
	Seen     int         `json:"seen"`
	Of       int         `json:"of"`
	Interval *[2]float64 `json:"interval,omitempty"`
	// Seeds are those of the first runs that had it. Shortest is the command of the run
	// that came to it first, and After how long that took from its start.
	Seeds    []uint64      `json:"seeds,omitempty"`
	Shortest string        `json:"shortest,omitempty"`
	After    time.Duration `json:"after,omitempty"`
}

func interval(seen, of int) *[2]float64 {
	i := Interval(seen, of)
	return &i
}

// Interval is where the true share lies, in 95 of 100 cases, of what was seen in so many runs.
func Interval(seen, of int) [2]float64 {
	if of <= 0 {
		return [2]float64{0, 1}
	}
	const z = 1.959964 // 95 % of the normal distribution lie between -z and z
	n := float64(of)
	p := float64(seen) / n
	middle := p + z*z/(2*n)
	spread := z * math.Sqrt(p*(1-p)/n+z*z/(4*n*n))
	low, high := (middle-spread)/(1+z*z/n), (middle+spread)/(1+z*z/n)
	if seen == 0 {
		low = 0 // and not what rounding leaves
	}
	if seen == of {
		high = 1
	}
	return [2]float64{low, high}
}

// String says the rate as "29 of 200 (10 to 21 %)", or as "29 of 200".
func (r Rate) String() string {
	s := fmt.Sprintf("%d of %d", r.Seen, r.Of)
	if r.Interval != nil {
		s += " (" + share(*r.Interval) + ")"
	}
	return s
}
