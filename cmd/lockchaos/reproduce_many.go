package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/reports"
)

// A scenarioBatch plays several scenarios, each several times.
type scenarioBatch struct {
	*app

	repeat, parallel int
	out              string // the folder of the run directories; of a single run, its directory
	single, asJSON   bool

	mu      sync.Mutex        // for what the players share
	results []*scenarioResult // in the order in which they were asked for
}

// A scenarioResult is what came of the runs of one scenario.
type scenarioResult struct {
	choice

	runs       []played // that were not cut short, in the order in which they ended
	impossible error    // why it can't be played here; nil if it can
}

// A scenarioJob is one run of one scenario.
type scenarioJob struct {
	of  *scenarioResult
	run int // from 1
}

// play plays all runs, in order as far as each begins, and prints a table, or its
// JSON; of a single run, its summary.
func (r *scenarioBatch) play(ctx context.Context) error {
	began := time.Now()
	var jobs []scenarioJob
	for _, t := range r.results {
		for run := range r.repeat {
			jobs = append(jobs, scenarioJob{t, run + 1})
		}
	}
	failed := mostSevere(batch(ctx, r.parallel, jobs, r.runJob), context.Cause(ctx))
	if err := r.print(time.Since(began)); err != nil {
		return worst(failed, err)
	}
	if failed != nil { // it was cut short
		return failed
	}
	var result error
	asked := false
	for _, t := range r.results {
		asked = asked || !t.leftOut()
		result = worst(result, t.exit(r.repeat))
	}
	if !asked {
		return worst(result, verdictError(exitUnknown))
	}
	return result
}

// writeJoint writes the files of all runs together beside their directories.
func (r *scenarioBatch) writeJoint() error {
	var runs []reports.JointRun
	planned := 0
	for _, t := range r.results {
		if t.impossible == nil {
			planned += r.repeat
		}
		slices.SortFunc(t.runs, func(a, b played) int { return a.run - b.run })
		for _, p := range t.runs {
			runs = append(runs, reports.NewJointRun(reports.Summarize(p.in), filepath.Base(p.dir)))
		}
	}
	if len(runs) == 0 {
		return nil
	}
	return reports.WriteJoint(r.out, runs, planned)
}

// runJob plays one run. What is cut short counts for nothing.
func (r *scenarioBatch) runJob(ctx context.Context, t scenarioJob) error {
	dir := r.out
	if !r.single {
		dir = filepath.Join(dir, fmt.Sprintf("%s-%d", strings.ReplaceAll(t.of.Name, "/", "-"), t.run))
		fmt.Fprintf(r.stderr, "%s, run %d of %d\n", t.of.Name, t.run, r.repeat)
	}
	p, err := r.playScenario(ctx, t.of.choice, dir, t.of.Name)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case errors.Is(err, harness.ErrImpossible) && !r.single: // others may be possible
		t.of.impossible = err
		fmt.Fprintf(r.stderr, "%s: %v\n", t.of.Name, err)
		return nil
	case err != nil && p.dir == "", ctx.Err() != nil:
		return err
	case err != nil: // what was recorded is no answer, and the others go on
		p.unexpected, p.failed = err, err
	}
	p.run = t.run
	t.of.runs = append(t.of.runs, p)
	switch {
	case r.single:
	case p.unsuited():
		fmt.Fprintf(r.stderr, "left out: %s: %s\n", t.of.Name, p.in.Run.Unsuited)
	case p.unexpected != nil:
		fmt.Fprintf(r.stderr, "%s\n", t.of.missed(p))
	}
	return nil
}

// missed says why a run did not give its verdict, and where its report is.
func (t *scenarioResult) missed(p played) string {
	why := p.unexpected.Error()
	if t.assumed && t.limit() && p.failed == nil && p.in.Report.Verdict == checker.Invalid {
		why = fmt.Sprintf("invalid, and so is the scenario's own lock %s, which can't prevent this here", t.ownLock)
	}
	return fmt.Sprintf("%s, run %d: %s (%s)", t.Name, p.run, why, p.dir)
}

// A row is a line of the table.
type row struct {
	Scenario  string                  `json:"scenario"`
	Expect    string                  `json:"expect"`
	Violation string                  `json:"violation,omitempty"`
	Holds     []string                `json:"holds,omitempty"` // in spite of the violation
	Got       map[checker.Verdict]int `json:"got"`
	Met       int                     `json:"met"` // how many runs gave the verdict that they must
	Runs      int                     `json:"runs"`
	OK        bool                    `json:"ok"` // in as many as must
	Median    float64                 `json:"median_seconds"`
	Longest   float64                 `json:"longest_seconds"`
	// Missed are the runs that gave another verdict, and Impossible is why there
	// are none.
	Missed     []string `json:"missed,omitempty"`
	Impossible string   `json:"impossible,omitempty"`
	// Unsuited is why it can't be asked of the lock that --lock names.
	Unsuited string `json:"left_out,omitempty"`
}

// rows are those of the scenarios that were played to their end.
func (r *scenarioBatch) rows() []row {
	rows := []row{}
	for _, t := range r.results {
		if len(t.runs) == r.repeat || t.impossible != nil {
			rows = append(rows, t.row(r.repeat))
		}
	}
	return rows
}

func (t *scenarioResult) row(repeat int) row {
	line := row{
		Scenario: t.Name, Expect: t.Expect.Verdict, Violation: t.Expect.Violation, Holds: t.Expect.Holds, Runs: len(t.runs),
		Got: map[checker.Verdict]int{}, OK: t.exit(repeat) == nil,
	}
	if t.impossible != nil {
		line.Impossible = t.impossible.Error()
	}
	var times []time.Duration
	for _, p := range t.runs { // which writeJoint has sorted
		line.Got[p.in.Report.Verdict]++
		times = append(times, p.took)
		switch {
		case p.unexpected == nil:
			line.Met++
		case t.leftOut():
			line.Unsuited = p.in.Run.Unsuited
		default:
			line.Missed = append(line.Missed, t.missed(p))
		}
	}
	if len(times) > 0 {
		slices.Sort(times)
		middle := (times[(len(times)-1)/2] + times[len(times)/2]) / 2
		line.Median, line.Longest = middle.Seconds(), times[len(times)-1].Seconds()
	}
	return line
}

// print prints the table, and what was missed once more below it.
func (r *scenarioBatch) print(took time.Duration) error {
	if r.single {
		for _, p := range r.results[0].runs {
			if err := r.app.print(p.in, p.dir, r.asJSON); err != nil {
				return err
			}
			if !r.asJSON {
				r.printf("\n%s\n", r.results[0].outcome(p))
			}
		}
		return nil
	}
	if err := r.writeJoint(); err != nil {
		return asHarness(err)
	}
	if r.asJSON {
		return r.json(struct {
			Version int     `json:"version"`
			Reports string  `json:"reports"`
			Seconds float64 `json:"seconds"`
			Rows    []row   `json:"scenarios"`
		}{1, r.out, took.Seconds(), r.rows()})
	}
	shown := table{columns: []string{"scenario", "expected", "got", "rate", "median", "max"}}
	var below []string
	ok, leftOut := 0, 0
	for _, line := range r.rows() {
		if below = append(below, line.Missed...); line.Unsuited != "" {
			leftOut++
			below = append(below, fmt.Sprintf("left out: %s: %s", line.Scenario, line.Unsuited))
			continue
		}
		shown.add(line.Scenario, line.expected(), line.got(), fmt.Sprintf("%d/%d", line.Met, r.repeat),
			fmt.Sprintf("%.1fs", line.Median), fmt.Sprintf("%.1fs", line.Longest))
		if line.OK {
			ok++
		}
	}
	if err := shown.text(r.stdout); err != nil {
		return err
	}
	also := ""
	if leftOut > 0 {
		also = fmt.Sprintf(", %d left out", leftOut)
	}
	below = append(below, fmt.Sprintf("%d of %d gave the verdict that they must%s, in %.0f s; reports in %s", ok, len(r.results)-leftOut, also, took.Seconds(), r.out))
	r.printf("\n%s\n", strings.Join(below, "\n"))
	return nil
}

func (line row) expected() string {
	if line.Violation == "" {
		return line.Expect
	}
	harmless := ""
	if slices.Contains(line.Holds, "protected-resource") {
		harmless = ", no update lost"
	}
	return fmt.Sprintf("%s (%s%s)", line.Expect, line.Violation, harmless)
}

func (line row) got() string {
	var verdicts []string
	for _, v := range []checker.Verdict{checker.Valid, checker.Invalid, checker.Unknown} {
		if n := line.Got[v]; n > 0 {
			verdicts = append(verdicts, fmt.Sprintf("%s ×%d", v, n))
		}
	}
	return strings.Join(verdicts, ", ")
}

// leftOut reports whether the scenario can't be asked of the lock, as every run found.
func (t *scenarioResult) leftOut() bool {
	return len(t.runs) > 0 && !slices.ContainsFunc(t.runs, func(p played) bool { return !p.unsuited() })
}

// exit is valid if the scenario gave its verdict as often as it must: always,
// or in nine of ten runs. What must be valid may never be found invalid, and the
// harness may not fail.
func (t *scenarioResult) exit(repeat int) error {
	if t.impossible != nil {
		return fmt.Errorf("%s: %w", t.Name, t.impossible)
	}
	if t.leftOut() {
		return nil
	}
	met, unknown := 0, 0
	for _, p := range t.runs {
		switch {
		case p.failed != nil:
			return fmt.Errorf("%s, run %d: %w", t.Name, p.run, p.failed)
		case p.unexpected == nil:
			met++
		case p.unknown():
			unknown++
		}
	}
	must := repeat
	switch {
	case t.Expect.Verdict == string(checker.Valid) && slices.ContainsFunc(t.runs, func(p played) bool { return p.in.Report.Verdict == checker.Invalid }):
		return verdictError(exitInvalid)
	case !t.EveryTime:
		must = repeat - repeat/10
	}
	switch {
	case met >= must:
		return nil
	case unknown == len(t.runs):
		return verdictError(exitUnknown)
	default:
		return verdictError(exitInvalid)
	}
}
