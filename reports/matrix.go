package reports

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/reports/internal/facts"
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
	// Breaks are the faults that may break a promise of a correct lock there, by why they may; none: a correct lock is valid.
	Breaks []string `json:"breaks,omitempty"`
	// Lease is that of its grants, 0: they have none. Keeps is what its servers keep when they are killed: all or nothing.
	Lease   time.Duration `json:"lease_ns"`
	Keeps   string        `json:"killed_servers_keep"`
	Valid   int           `json:"valid"`
	Invalid int           `json:"invalid"`
	Unknown int           `json:"unknown"`
	// Twice are the runs in which a lock was granted twice, of all that were decided, and Kinds how many runs
	// showed each kind of violation.
	Twice Rate           `json:"granted_twice"`
	Kinds map[string]int `json:"kinds,omitempty"`
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
	JointRun

	Twice bool `json:"granted_twice"`
	// Unavailable is the longest time without a grant while clients asked.
	Unavailable time.Duration `json:"unavailable_ns"`
	// Acquires are how long each acquire took that was granted, and NoAnswer counts those whose outcome stayed
	// unknown: a cell has the figures of all its runs, and [NewMatrix] drops these.
	Acquires []time.Duration `json:"acquires_ns,omitempty"`
	NoAnswer int             `json:"acquires_unknown,omitempty"`
}

// NewMatrixRun takes from a judged run what a matrix tells of it. Its directory is that
// beside the page, or empty if there is none.
func NewMatrixRun(in Input, dir string) MatrixRun {
	m := newModel(in)
	r := MatrixRun{
		JointRun: NewJointRun(m.Results, dir), Twice: m.Counts.Kinds[checker.DoubleGrant]+m.Counts.Kinds[checker.OverCapacity] > 0,
		Unavailable: longestWithoutGrant(m.facts.Ops), NoAnswer: m.Operations[string(history.Acquire)].Info,
	}
	for _, d := range m.facts.Requests().Most {
		r.Acquires = append(r.Acquires, d.Took)
	}
	return r
}

// longestWithoutGrant is the longest time in which no acquire was granted, from the first
// request on until the last, or until the last grant.
func longestWithoutGrant(ops []*holding.Op) time.Duration {
	var granted []time.Duration
	first, last := time.Duration(-1), time.Duration(0)
	for _, op := range ops {
		if op.Verb != holding.Acquire {
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
	r.Lock = c.Lock // and not the command of its driver
	c.Runs = append(c.Runs, r)
	slices.SortFunc(c.Runs, func(a, b MatrixRun) int { return cmp.Compare(a.Seed, b.Seed) })
}

// count fills in the figures of the runs.
func (c *MatrixCell) count() {
	counts := map[checker.Verdict]int{}
	twice, decided := 0, 0
	var gaps, acquires []time.Duration
	c.NoAnswer, c.Kinds = 0, map[string]int{}
	for i := range c.Runs {
		r := &c.Runs[i]
		counts[r.Verdict]++
		for _, kind := range r.Kinds {
			c.Kinds[kind]++
		}
		if r.Twice {
			twice++
		}
		if r.Verdict != checker.Unknown || r.Twice {
			decided++
		}
		gaps, acquires = append(gaps, r.Unavailable), append(acquires, r.Acquires...)
		c.NoAnswer += r.NoAnswer
		r.Acquires, r.NoAnswer = nil, 0
	}
	c.Valid, c.Invalid, c.Unknown = counts[checker.Valid], counts[checker.Invalid], counts[checker.Unknown]
	c.Twice = rateOf(checker.DoubleGrant, twice, decided)
	if len(gaps) > 0 {
		slices.Sort(gaps)
		c.LongestMedian, c.Longest = gaps[(len(gaps)-1)/2], gaps[len(gaps)-1]
	}
	if len(acquires) > 0 {
		c.Acquire = facts.LatencyOf(acquires)
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

// WriteMatrix writes the page of a matrix, and its junit.xml, summary.md and results.json,
// into the folder of its run directories, and the index of that.
func WriteMatrix(dir string, m Matrix) error {
	return writeMany(dir, map[string]func(io.Writer) error{
		MatrixFile:   func(w io.Writer) error { return writePage(w, "matrix.html", m.table()) },
		JUnitFile:    m.writeJUnit,
		MarkdownFile: func(w io.Writer) error { return writeMarkdown(w, "matrix", m.table()) },
		ResultsFile:  func(w io.Writer) error { return WriteJSON(w, m) },
	})
}

// columns are those of the table: before and behind those of the kinds of violation that were found anywhere.
func (m *Matrix) columns() []string {
	return slices.Concat([]string{"lock", "topology", "faults", "of a correct lock", "runs", "granted twice (95 %)"}, m.kinds(),
		[]string{"grants", "lease", "killed servers keep", "unavailable, median / most", "acquire p50 / p99", "acquires unanswered"})
}

// kinds are the kinds of violation that were found, in their order.
func (m *Matrix) kinds() (found []string) {
	for _, k := range checker.Kinds() {
		if slices.ContainsFunc(m.Cells, func(c MatrixCell) bool { return c.Kinds[k.Name] > 0 }) {
			found = append(found, k.Name)
		}
	}
	return found
}

// words are the columns of a cell.
func (m *Matrix) words(c *MatrixCell) []string {
	words := []string{c.Lock, c.Topology, c.Faults, "valid"}
	if len(c.Breaks) > 0 {
		words[3] = "may be invalid"
	}
	switch {
	case c.Impossible != "":
		words[3] = "not possible"
	case len(c.Runs) == 0:
		words = append(words, "no run")
	default:
		twice, acquire, lease := "not decided", "none granted", "none"
		if c.Twice.Of > 0 {
			twice = c.Twice.String()
		}
		if c.Acquire.Count > 0 {
			acquire = c.Acquire.Cells()[2] + " / " + c.Acquire.Cells()[4]
		}
		if c.Lease > 0 {
			lease = say.Span(c.Lease)
		}
		var verdicts []string
		for i, n := range []int{c.Valid, c.Invalid, c.Unknown} {
			if n > 0 {
				verdicts = append(verdicts, fmt.Sprintf("%d %s", n, []checker.Verdict{checker.Valid, checker.Invalid, checker.Unknown}[i]))
			}
		}
		words = append(words, strings.Join(verdicts, ", "), twice)
		for _, kind := range m.kinds() {
			words = append(words, fmt.Sprintf("%d of %d", c.Kinds[kind], len(c.Runs)))
		}
		words = append(words, say.Thousands(int64(c.Acquire.Count)), lease, c.Keeps, say.Span(c.LongestMedian)+" / "+say.Span(c.Longest), acquire, say.Thousands(int64(c.NoAnswer)))
	}
	return append(words, slices.Repeat([]string{""}, len(m.columns())-len(words))...)
}

// grid has a line for each lock on its topology, and in it a word for each family of faults: what became of the runs, and how
// many grants they had.
func (m *Matrix) grid() (lines [][]string) {
	for at := 0; at < len(m.Cells); at += len(m.Faults) {
		line, grants := []string{m.Cells[at].Lock + " on " + m.Cells[at].Topology}, 0
		for _, c := range m.Cells[at:min(at+len(m.Faults), len(m.Cells))] {
			line = append(line, c.inShort())
			grants += c.Acquire.Count
		}
		lines = append(lines, append(line, say.Thousands(int64(grants))))
	}
	return lines
}

// inShort is what became of the runs of a cell.
func (c *MatrixCell) inShort() string {
	limit := ""
	if len(c.Breaks) > 0 {
		limit = " †"
	}
	switch {
	case c.Impossible != "":
		return "not possible"
	case len(c.Runs) == 0:
		return "no run"
	case c.Invalid > 0:
		return fmt.Sprintf("✗ %d of %d: %s%s", c.Invalid, len(c.Runs), strings.Join(slices.Sorted(maps.Keys(c.Kinds)), ", "), limit)
	case c.Valid == 0:
		return fmt.Sprintf("? %d of %d: %s%s", c.Unknown, len(c.Runs), c.Runs[0].Headline, limit)
	default:
		return fmt.Sprintf("✓ %d of %d%s", c.Valid, len(c.Runs), limit)
	}
}

// gridNote says how to read the grid.
const gridNote = "✓: valid, in so many of the runs; the others are unknown. ✗: invalid, with what was violated. ?: none was decided. †: under some of these faults a correct lock may be invalid there, too."

// why are the reasons for which a cell has no run, or a correct lock may be invalid.
func (m *Matrix) why() (all []string) {
	for i := range m.Cells {
		c := &m.Cells[i]
		where := fmt.Sprintf("%s on %s under %s: ", c.Lock, c.Topology, c.Faults)
		if c.Impossible != "" {
			all = append(all, where+"not possible: "+c.Impossible)
		}
		for _, breaks := range c.Breaks {
			all = append(all, where+"a correct lock may be invalid: "+breaks)
		}
	}
	return all
}

// matrixNote says how to read the columns.
const matrixNote = "Of a correct lock: what its runs are under these faults. Granted twice: of the runs that were decided, those in which more clients held a lock than it admits, with Wilson's interval; then the runs that show each kind of violation that was found. " +
	"Unavailable: the longest time of a run in which no client was granted any lock while clients asked. " +
	"Acquire: from the request to the grant, with the time that other clients held the lock. " +
	"A seed fixes the plan of faults and the choices of the clients, not how processes interleave; topologies differ, so that the same seed draws other targets on each."

// table is what all formats of a matrix show.
func (m *Matrix) table() map[string]any {
	var rows [][]string
	for i := range m.Cells {
		rows = append(rows, m.words(&m.Cells[i]))
	}
	return map[string]any{
		"About": fmt.Sprintf("Seeds %s, %s each; faults: %s.", m.Seeds, say.Length(m.Length), strings.Join(m.Faults, ", ")),
		"Grid":  m.grid(), "Families": m.Faults, "GridNote": gridNote,
		"Columns": m.columns(), "Rows": rows, "Cells": m.Cells, "Note": matrixNote, "Why": m.why(), "Joint": m.byTone(), "Command": m.Command,
	}
}

// WriteMatrixText writes a matrix as a table for a terminal.
func WriteMatrixText(w io.Writer, m Matrix) error {
	rows := [][]string{strings.Split(strings.ToUpper(strings.Join(m.columns(), "\t")), "\t")}
	for i := range m.Cells {
		rows = append(rows, m.words(&m.Cells[i]))
	}
	return write(w, "matrix", say.Aligned(rows)+strings.Join(append(m.why(), ""), "\n"), nil)
}
