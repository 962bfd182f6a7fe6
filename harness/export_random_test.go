package harness

import (
	"time"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/topologies"
)

// A Drawn is a fault that a random run can be drawn from, as tests see it.
type Drawn struct {
	Mix, Fault, Cant, Breaks string
	Weight                   int
}

// Picks lists the faults that a random run knows, on a topology as it is made by
// default but for its options.
func Picks(r RandomRun) ([]Drawn, error) {
	r.Length = time.Second
	x, err := r.resolve()
	if err != nil {
		return nil, err
	}
	var all []Drawn
	for _, p := range x.draws.Candidates() {
		all = append(all, Drawn{p.Mix, p.Fault, p.Cant, p.Breaks, p.Weight})
	}
	return all, nil
}

// Persistent is the option of servers that keep what they granted.
func Persistent() topologies.Options {
	return topologies.Options{Persistence: topologies.PersistAlways}
}

// QuietEnd is how long a plan for a run of that length is quiet at its end.
var QuietEnd = func(r RandomRun) int64 { return int64(faults.PaceOf(r.Length).End) }

// Schedule is the plan of the run on servers of ours: the same seed gives the same one.
func (r RandomRun) Schedule(seed uint64) (faults.Schedule, error) {
	x, err := r.resolve()
	if err != nil || r.Plan != nil {
		return r.Plan, err
	}
	return faults.Generate(seed, x.chosen, r.Length), nil
}
