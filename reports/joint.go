package reports

import (
	"cmp"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
)

// A Joint is what came of many runs: its verdict is the worst that is not expected. In
// results.json it is the [Results] of all runs together, with a line for each.
type Joint struct {
	Results

	// Planned is how many runs there were to be. With fewer, which the user or the machine cut short, the
	// verdict is never valid.
	Planned     int  `json:"planned"`
	Interrupted bool `json:"interrupted"`

	Runs []JointRun `json:"runs"`
	// Rates are in how many runs each cause was found, the most frequent first.
	Rates []Rate `json:"rates,omitempty"`
}

// A Rate is how often something was seen in many runs. If they are runs of the same
// kind, Interval has the true share in 95 of 100 cases, from 0 to 1 (see [Interval]).
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

// rateOf is a rate of runs of one kind.
func rateOf(name string, seen, of int) Rate {
	i := Interval(seen, of)
	return Rate{Name: name, Seen: seen, Of: of, Interval: &i}
}

// String says the rate as "29 of 200 (10 to 21 %)", or as "29 of 200".
func (r Rate) String() string {
	s := fmt.Sprintf("%d of %d", r.Seen, r.Of)
	if r.Interval != nil {
		s += " (" + share(*r.Interval) + ")"
	}
	return s
}

// A JointRun is one of many runs.
type JointRun struct {
	Verdict  checker.Verdict `json:"verdict"`
	Expect   string          `json:"expect,omitempty"`
	Scenario string          `json:"scenario,omitempty"`
	Topology string          `json:"topology,omitempty"`
	Lock     string          `json:"lock,omitempty"`
	Seed     uint64          `json:"seed"`
	// Faults names the mix that those of a random run were drawn from.
	Faults   string   `json:"faults,omitempty"`
	Headline string   `json:"headline"`
	Kinds    []string `json:"kinds,omitempty"` // of the violations
	Command  string   `json:"command,omitempty"`
	// Dir is its run directory, beside the joint files; empty if it was removed.
	Dir string `json:"dir,omitempty"`

	suite junitSuite
	after map[string]time.Duration // by kind, when it was there
}

// NewJointRun takes from the results of a run what is told of it among others. Its
// directory is that beside the joint files, or empty if there is none.
func NewJointRun(r Results, dir string) JointRun {
	run := JointRun{
		Verdict: r.Verdict, Expect: r.Expect, Scenario: r.Scenario, Topology: r.Topology, Lock: r.Lock, Seed: r.Seed,
		Headline: r.Story.Headline, Command: r.Command, Dir: dir, suite: junitSuiteOf(&r), after: r.After(),
	}
	run.Kinds = slices.Sorted(maps.Keys(r.Counts.Kinds))
	return run
}

// After is when the first violation of each kind was there.
func (r Results) After() map[string]time.Duration {
	first := map[string]time.Duration{}
	for i := range r.Properties {
		for _, v := range r.Properties[i].Violations {
			if at, known := first[v.Kind]; !known || v.From < at {
				first[v.Kind] = v.From
			}
		}
	}
	return first
}

// met reports whether a run gave the verdict that it must: valid, unless its scenario
// expects another.
func (r JointRun) met() bool {
	if r.Expect != "" {
		return r.Expect == string(r.Verdict)
	}
	return r.Verdict == checker.Valid
}

// kind is what runs have in common that differ by their seed and by chance alone.
func (r JointRun) kind() [4]string { return [4]string{r.Scenario, r.Topology, r.Lock, r.Faults} }

// seeded reports whether a seed was set, or drew something.
func (r JointRun) seeded() bool { return r.Scenario == "" || r.Seed != 0 }

// name tells a run from the others.
func (r JointRun) name() string {
	parts := []string{cmp.Or(r.Scenario, strings.TrimSpace(r.Topology+" "+r.Lock))}
	if r.Faults != "" {
		parts = append(parts, "faults "+r.Faults)
	}
	if r.seeded() {
		parts = append(parts, fmt.Sprintf("seed %d", r.Seed))
	}
	return strings.Join(parts, ", ")
}

// newJoint joins the runs of so many that were planned.
func newJoint(runs []JointRun, planned int) Joint {
	j := Joint{Planned: planned, Interrupted: len(runs) < planned, Runs: runs, Results: Results{
		Version: ResultsVersion, Verdict: checker.Valid, Properties: []checker.Result{}, Faults: []Fault{},
	}}
	counts, missed := map[checker.Verdict]int{}, 0
	for i := range runs {
		r := &runs[i]
		counts[r.Verdict]++
		if !r.met() {
			missed++
			j.Verdict = checker.Worst(j.Verdict, r.Tone())
		}
	}
	if len(runs) == 0 || j.Interrupted {
		j.Verdict = checker.Worst(j.Verdict, checker.Unknown)
	}
	j.Rates = ratesOf(runs)
	j.Story.Headline = fmt.Sprintf("%s: %d valid, %d invalid, %d unknown; %d not as they must be", say.Count(len(runs), "run"),
		counts[checker.Valid], counts[checker.Invalid], counts[checker.Unknown], missed)
	if j.Interrupted {
		j.Story.Headline = fmt.Sprintf("Interrupted: %d of %d planned runs were played. ", len(runs), planned) + j.Story.Headline
	}
	return j
}

// WriteJoint writes the joint junit.xml, summary.md and results.json of many runs, of so many that
// were planned, into the folder of their directories, and its index.
func WriteJoint(dir string, runs []JointRun, planned int) error {
	j := newJoint(runs, planned)
	return writeMany(dir, map[string]func(io.Writer) error{
		JUnitFile:    j.writeJUnit,
		MarkdownFile: func(w io.Writer) error { return writeMarkdown(w, "joint", j.byTone()) },
		ResultsFile:  func(w io.Writer) error { return WriteJSON(w, j) },
	})
}

// writeMany writes files of many runs into the folder of their directories, and its index.
func writeMany(dir string, files map[string]func(io.Writer) error) error {
	var errs []error
	for name, write := range files {
		errs = append(errs, history.WriteFile(filepath.Join(dir, name), write))
	}
	return errors.Join(append(errs, UpdateIndex(dir))...)
}

// ratesOf are in how many runs each kind of violation was found.
func ratesOf(runs []JointRun) []Rate {
	const maxSeeds = 20
	rates := map[string]*Rate{}
	alike := !slices.ContainsFunc(runs, func(run JointRun) bool { return run.kind() != runs[0].kind() })
	for i := range runs {
		run := &runs[i]
		for _, kind := range run.Kinds {
			r := rates[kind]
			if r == nil {
				r = &Rate{Name: kind, Of: len(runs)}
				rates[kind] = r
			}
			r.Seen++
			if run.seeded() && len(r.Seeds) < maxSeeds {
				r.Seeds = append(r.Seeds, run.Seed)
			}
			if at, known := run.after[kind]; known && run.Command != "" && (r.Shortest == "" || at < r.After) {
				r.Shortest, r.After = run.Command, at
			}
		}
	}
	var all []Rate
	for _, r := range rates {
		if alike {
			r.Interval = rateOf("", r.Seen, r.Of).Interval
		}
		all = append(all, *r)
	}
	slices.SortFunc(all, func(a, b Rate) int { return cmp.Or(b.Seen-a.Seen, strings.Compare(a.Name, b.Name)) })
	return all
}

// readJoint reads the results of many runs from a folder; nil if it has none.
func readJoint(dir string) *Joint {
	j, err := history.Load(history.Open, filepath.Join(dir, ResultsFile), func(r io.Reader) (*Joint, error) {
		j := new(Joint)
		return j, json.NewDecoder(r).Decode(j)
	})
	if err != nil || j.Version != ResultsVersion || len(j.Runs) == 0 {
		return nil // the list of runs is all there is
	}
	return j
}

// Mark is the sign of the run's verdict, for the strip of an index.
func (r JointRun) Mark() string { return sign(r.Verdict) }

// Tone is the verdict by which a run is coloured: one that is as it must be is in order.
func (r JointRun) Tone() checker.Verdict {
	switch {
	case r.met():
		return checker.Valid
	case r.Verdict == checker.Valid:
		return checker.Invalid
	default:
		return r.Verdict
	}
}

// Title is what a pointer on its sign shows.
func (r JointRun) Title() string {
	return fmt.Sprintf("%s: %s. %s", r.name(), r.Verdict, r.Headline)
}

func (j *Joint) writeJUnit(w io.Writer) error {
	var all junitSuites
	mixes, names := map[string]map[string]bool{}, map[string]int{}
	for i := range j.Runs {
		r := &j.Runs[i]
		if mixes[r.suite.Name] == nil {
			mixes[r.suite.Name] = map[string]bool{}
		}
		mixes[r.suite.Name][r.Faults] = true
	}
	for i := range j.Runs {
		r := &j.Runs[i]
		s := r.suite
		if len(mixes[s.Name]) > 1 {
			s = s.named("faults-" + cmp.Or(r.Faults, "unnamed"))
		}
		if names[s.Name]++; names[s.Name] > 1 { // the same run again
			s = s.named(fmt.Sprintf("run-%d", names[s.Name]))
		}
		s.ID = i
		all.Suites = append(all.Suites, s)
	}
	if j.Interrupted {
		all.Suites = append(all.Suites, junitSuite{ID: len(all.Suites), Name: "interrupted", Tests: 1, Errors: 1, Cases: []junitCase{{
			Name: "all planned runs", Class: "lockchaos", Error: &junitResult{Type: "interrupted", Message: j.Story.Headline},
		}}})
	}
	return writeJUnit(w, all)
}

// byTone is the same with the runs that are not in order first.
func (j *Joint) byTone() *Joint {
	sorted := *j
	sorted.Runs = slices.Clone(j.Runs)
	slices.SortStableFunc(sorted.Runs, func(a, b JointRun) int { return cmp.Compare(a.Tone(), b.Tone()) })
	return &sorted
}

// writeJUnit writes suites.
func writeJUnit(w io.Writer, all junitSuites) error {
	out, err := xml.MarshalIndent(all, "", "  ")
	return write(w, "junit", xml.Header+string(out)+"\n", err)
}
