package bench

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/gonum/stat"
)

const (
	// busyLoad is the load average of each core from which on a machine counts as busy.
	busyLoad = 0.5
	// unsteady is how many times the lower quartile of a baseline's rounds the upper one may be.
	unsteady = 1.5
)

// warnings say by which signs the machine did something else as well.
func (r Results) warnings() []string {
	var all []string
	minute, _, _ := strings.Cut(r.Machine.Load, " ")
	if load, err := strconv.ParseFloat(minute, 64); err == nil && load >= busyLoad*float64(r.Machine.Cores) {
		all = append(all, fmt.Sprintf("the machine was busy when the run began (load average %s on %d cores): measure again when it is not", minute, r.Machine.Cores))
	}
	var names []string
	for _, w := range r.Workloads {
		if times := w.baselineSwing(); times > unsteady {
			names = append(names, fmt.Sprintf("%s (%.1f times)", w.Name, times))
		}
	}
	if len(names) > 0 {
		all = append(all, "the baseline's rounds differ much, by the upper quartile over the lower one: "+strings.Join(names, ", "))
	}
	return all
}

// baselineSwing is the upper quartile of the baseline's rounds over the lower one; 0 if there is none.
func (w WorkloadResult) baselineSwing() float64 {
	var scores []float64
	for _, s := range w.baselineRounds() {
		if score := s.metric(w.Metric); score > 0 {
			scores = append(scores, score)
		}
	}
	if len(scores) == 0 {
		return 0
	}
	slices.Sort(scores)
	return stat.Quantile(0.75, stat.Empirical, scores, nil) / stat.Quantile(0.25, stat.Empirical, scores, nil)
}
