package reports

import (
	"cmp"
	"slices"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
)

// MatrixFile is the page of a matrix.
const MatrixFile = "matrix.html"

// A Matrix compares locks, each on a topology of its own, under the same seeds and
// families of faults. In results.json it is a [Joint] with cells.
type Matrix struct {
	Joint

	// Seeds is the list of seeds, Length how long the clients worked in each run, and
	// Faults are the families, in the order of the columns.
	Seeds  string        `json:"seeds"`
	Length time.Duration `json:"length_ns"`
	Faults []string      `json:"families"`
	Cells  []MatrixCell  `json:"cells"` // lock by lock, a family each
}

// A MatrixCell is what came of a lock under one family of faults.
type MatrixCell struct {
	Lock     string `json:"lock"`
	Topology string `json:"topology"`
	Faults   string `json:"faults"`
	// Impossible says why there is no run; empty if there are runs.
	Impossible string `json:"impossible,omitempty"`
	Valid      int    `json:"valid"`
	Invalid    int    `json:"invalid"`
	Unknown    int    `json:"unknown"`
	// Twice are the runs in which a lock was granted twice, of all that were decided.
	Twice Rate `json:"granted_twice"`
	// Longest is for how long no client was granted any lock while clients asked, at
	// most: the median of the runs, and the longest of all.
	LongestMedian time.Duration `json:"unavailable_median_ns"`
	Longest       time.Duration `json:"unavailable_max_ns"`
	// Acquire is the latency of the acquires of all runs that were granted, and NoAnswer
	// counts those whose outcome stayed unknown.
	Acquire  Latency `json:"acquire"`
	NoAnswer int     `json:"acquires_unknown"`
	// Runs are those that the cell counts, in order of their seeds.
	Runs []MatrixRun `json:"runs"`
}

// A MatrixRun is one run of a cell.
type MatrixRun struct {
	Seed    uint64          `json:"seed"`
	Verdict checker.Verdict `json:"verdict"`
	Twice   bool            `json:"granted_twice"`
	// Unavailable is the longest time without a grant while clients asked.
	Unavailable time.Duration `json:"unavailable_ns"`
	Headline    string        `json:"headline"`
	Command     string        `json:"command"`
	// Dir is its run directory, beside the page; empty if it was removed.
	Dir string `json:"dir,omitempty"`

	acquires []time.Duration
	noAnswer int
}

// NewMatrixRun takes from a judged run what a matrix tells of it. Its directory is that
// beside the page, or empty if there is none.
func NewMatrixRun(in Input, dir string) MatrixRun {
	m := newModel(in)
	results := m.results()
	r := MatrixRun{
		Seed: results.Seed, Verdict: results.Verdict, Headline: results.Story.Headline, Command: results.Command, Dir: dir,
		Unavailable: longestWithoutGrant(m.ops),
	}
	for _, p := range results.Properties {
		for i := range p.Violations {
			r.Twice = r.Twice || grantsTwice(p.Violations[i].Kind)
		}
	}
	for i := range m.ops {
		switch op := &m.ops[i]; {
		case op.Invoke.Op != history.Acquire:
		case op.OK():
			r.acquires = append(r.acquires, took(op))
		case op.Unknown():
			r.noAnswer++
		}
	}
	return r
}

// grantsTwice reports whether a violation is that more clients hold a lock than it admits.
func grantsTwice(kind string) bool {
	return kind == checker.DoubleGrant || kind == checker.OverCapacity
}

// longestWithoutGrant is the longest time in which no acquire was granted, from the first
// request on until the last, or until the last grant.
func longestWithoutGrant(ops []history.Operation) time.Duration {
	var granted []time.Duration
	first, last := time.Duration(-1), time.Duration(0)
	for i := range ops {
		op := &ops[i]
		if op.Invoke.Op != history.Acquire {
			continue
		}
		if first < 0 || op.Invoke.Time < first {
			first = op.Invoke.Time
		}
		last = max(last, op.Invoke.Time)
		if op.OK() {
			granted = append(granted, op.Complete.Time)
			last = max(last, op.Complete.Time)
		}
	}
	if first < 0 {
		return 0
	}
	slices.Sort(granted)
	longest, before := time.Duration(0), first
	for _, at := range append(granted, last) {
		longest, before = max(longest, at-before), at
	}
	return longest
}

// Add counts a run.
func (c *MatrixCell) Add(r MatrixRun) {
	c.Runs = append(c.Runs, r)
	slices.SortFunc(c.Runs, func(a, b MatrixRun) int { return cmp.Compare(a.Seed, b.Seed) })
}

// count fills in the figures of the runs.
func (c *MatrixCell) count() {
	c.Valid, c.Invalid, c.Unknown, c.NoAnswer, c.Longest, c.LongestMedian, c.Acquire = 0, 0, 0, 0, 0, 0, Latency{}
	twice := 0
	var gaps, acquires []time.Duration
	for i := range c.Runs {
		r := &c.Runs[i]
		switch r.Verdict {
		case checker.Valid:
			c.Valid++
		case checker.Invalid:
			c.Invalid++
		default:
			c.Unknown++
		}
		if r.Twice {
			twice++
		}
		gaps = append(gaps, r.Unavailable)
		acquires = append(acquires, r.acquires...)
		c.NoAnswer += r.noAnswer
	}
	decided := 0
	for i := range c.Runs {
		if c.Runs[i].Verdict != checker.Unknown || c.Runs[i].Twice {
			decided++
		}
	}
	c.Twice = Rate{Name: checker.DoubleGrant, Seen: twice, Of: decided, Interval: interval(twice, decided)}
	if len(gaps) > 0 {
		slices.Sort(gaps)
		c.LongestMedian, c.Longest = gaps[(len(gaps)-1)/2], gaps[len(gaps)-1]
	}
	if len(acquires) > 0 {
		c.Acquire = latencyOf(acquires)
	}
}

// NewMatrix joins cells, and all their runs, of so many that were planned.
func NewMatrix(runs []JointRun, planned int, seeds string, length time.Duration, families []string, cells []MatrixCell) Matrix {
	m := Matrix{Joint: newJoint(runs, planned), Seeds: seeds, Length: length, Faults: families, Cells: cells}
	for i := range m.Cells {
		m.Cells[i].count()
	}
	return m
}
