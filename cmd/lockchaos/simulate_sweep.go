package main

import (
	"context"

	"github.com/lockchaos/lockchaos/simulation"
)

// A sweepCoverage is how much of a sweep was played.
type sweepCoverage struct {
	Singles    int `json:"single_faults"`
	AllSingles int `json:"all_single_faults"`
	Pairs      int `json:"pairs"`
	AllPairs   int `json:"all_pairs"`
	// Shapes is how many shapes the runs had: see [simulation.Shape].
	Shapes int `json:"shapes"`
}

// sweep plays the case without a fault, with each fault by itself, and with pairs.
func (o *simulateOptions) sweep(ctx context.Context, pool *simulation.Pool, s *simulatedSearch,
	play func([]simulationJob, func(simulationJob, simulation.Result) error) error,
) error {
	seeds, err := parseSeeds(o.seeds)
	if err != nil {
		return err
	}
	base := simulation.SweepBase(o.lock, o.Campaign, seeds[0])
	quiet, err := pool.Do(ctx, simulation.Job{Lock: o.lock.Name, Case: &base, Seed: base.Seed, Again: 2})
	if err != nil {
		return asHarness(err)
	}
	w := simulation.NewSweep(base, quiet.Links)
	n := w.Faults()
	s.Sweep = &sweepCoverage{AllSingles: n, AllPairs: n * (n - 1) / 2}
	shapes, failed, seen := make([]string, n), make([]bool, n), map[string]bool{}
	run := func(lists [][]int) error {
		var jobs []simulationJob
		for _, faults := range lists {
			c := w.Case(faults...)
			jobs = append(jobs, simulationJob{simulation.Job{Lock: o.lock.Name, Case: &c, Seed: c.Seed}, s.Of + len(jobs), faults})
		}
		s.Of += len(jobs)
		return play(jobs, func(j simulationJob, r simulation.Result) error {
			seen[r.Shape] = true
			s.Sweep.Shapes = len(seen)
			if len(j.faults) == 1 {
				shapes[j.faults[0]], failed[j.faults[0]] = r.Shape, len(r.Findings) > 0
				s.Sweep.Singles++
			} else {
				s.Sweep.Pairs++
			}
			return nil
		})
	}
	var singles, pairs [][]int
	for i := range n {
		singles = append(singles, []int{i})
	}
	if err := run(singles); err != nil || ctx.Err() != nil || o.pairs == 0 {
		return err
	}
	for _, p := range w.Pairs(shapes, failed, quiet.Shape, o.pairs) {
		pairs = append(pairs, p[:])
	}
	return run(pairs)
}
