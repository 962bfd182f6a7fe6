package reports

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/reports/internal/facts"
	"github.com/lockchaos/lockchaos/reports/internal/story"
)

// ResultsVersion is the version of the results.json format.
const ResultsVersion = 1

// What results are made of.
type (
	// A Fault is one fault of a run, from its injection to its heal.
	Fault = facts.Fault
	// Outcomes counts how the operations of one kind ended.
	Outcomes = facts.Outcomes
	// A Latency is the distribution of how long the operations of one kind took.
	Latency = facts.Latency
	// Counts says how many violations there are.
	Counts = facts.Counts
	// A Story is what happened in plain words.
	Story = story.Story
	// A StoryEvent is one thing that happened.
	StoryEvent = story.Event
)

// EventViolation is the kind of the event at which the promise was broken.
const EventViolation = story.EventViolation

// An Input is everything that a report is made of.
type Input struct {
	Run     history.Run
	History *history.History
	Report  checker.Report
	// Missing says of each part of a stored run that could not be read what is
	// wrong with it. Empty: nothing. Pending says that the results alone are missing, as of a run that is
	// under way.
	Missing []string
	Pending bool
}

// Results are the verdicts and figures of a run: what results.json holds, and
// all that the text and JUnit reports need. All times are nanoseconds.
type Results struct {
	Version  int             `json:"version"`
	Verdict  checker.Verdict `json:"verdict"`
	Scenario string          `json:"scenario,omitempty"` // empty for a random run
	Expect   string          `json:"expect,omitempty"`   // the verdict that the scenario expects
	Seed     uint64          `json:"seed"`
	Topology string          `json:"topology,omitempty"`
	// Simulated says that the servers were, and that the run was in virtual time.
	Simulated bool `json:"simulated,omitempty"`
	// Simulation says whether real servers were asked for the same, and what they showed.
	Simulation string        `json:"simulation,omitempty"`
	Lock       string        `json:"lock,omitempty"`
	Workload   string        `json:"workload,omitempty"`
	Command    string        `json:"command,omitempty"` // repeats the run
	Program    string        `json:"program,omitempty"` // the version of lockchaos that ran
	Started    time.Time     `json:"started,omitzero"`
	Duration   time.Duration `json:"duration"` // of the record
	// AbortReason says which step of a scenario could not be done, and why: then it was
	// cut short, and its verdict is unknown.
	AbortReason string `json:"unmet,omitempty"`
	// SkippedFaults says which faults of a random run did not come, and why.
	SkippedFaults []string `json:"left_out,omitempty"`
	// Interrupted is set if the run was stopped early, Truncated if the last
	// line of the history was cut short and dropped.
	Interrupted bool `json:"interrupted,omitempty"`
	Truncated   int  `json:"truncated,omitempty"`
	Events      int  `json:"events"`
	// Missing says what could not be read of the run that this was made of.
	Missing []string `json:"missing,omitempty"`

	// Counts are the violations by kind; Story tells the first of them with damage.
	Counts Counts `json:"counts"`
	Story  Story  `json:"story"`
	// Causes are what came of playing the run again with and without its faults; empty: it was not.
	Causes []history.Cause `json:"causes,omitempty"`
	// Next is the command that says more about an invalid run; empty where there is none.
	Next       string              `json:"next,omitempty"`
	Properties []checker.Result    `json:"properties"`
	Operations map[string]Outcomes `json:"operations"` // nil where they were not counted
	Latency    map[string]Latency  `json:"latency"`
	Faults     []Fault             `json:"faults"`
}

// EventWords says an event of a history in words, as stories do.
func EventWords(h *history.History) func(*history.Event) string {
	f := facts.Of(history.Run{}, h, checker.Report{}, true)
	return func(e *history.Event) string { return story.Line(f, e) }
}

// A model is an input with what all of its reports are made of.
type model struct {
	Results

	in    Input
	facts *facts.Facts
}

// leftOut says which faults did not come, and why.
func leftOut(run *history.Run) []string {
	if late := run.Late(); late != "" {
		return append(slices.Clone(run.SkippedFaults), late)
	}
	return run.SkippedFaults
}

// Summarize derives the results of a run.
func Summarize(in Input) Results { return newModel(in).Results }

func newModel(in Input) *model {
	f := facts.Of(in.Run, in.History, in.Report, len(in.Missing) == 0)
	in.History = f.History
	m := &model{in: in, facts: f, Results: Results{
		Version: ResultsVersion, Verdict: f.Verdict, Scenario: in.Run.Scenario, Expect: in.Run.Expect, Seed: in.Run.Seed,
		Topology: in.Run.Topology.Name, Simulated: in.Run.Backend == history.Simulated, Simulation: in.Run.Simulation(),
		Lock: in.Run.Lock, Workload: in.Run.Workload, Command: in.Run.Command, Program: in.Run.Program,
		Started: in.Run.Started, Duration: f.End, AbortReason: in.Run.AbortReason, SkippedFaults: leftOut(&in.Run),
		Interrupted: in.Run.Interrupted, Truncated: f.History.Truncated, Events: len(f.History.Events), Missing: in.Missing,
		Counts: f.Counts(), Story: story.Of(f, in.Missing, in.Pending), Causes: f.CausesFrom(f.Told),
		Properties: append([]checker.Result{}, f.Results...), Operations: f.Operations, Latency: f.Latency, Faults: append([]Fault{}, f.Faults...),
	}}
	if m.Verdict == "" {
		m.Verdict = checker.Unknown
	}
	if f.Told != nil {
		m.Next = m.next()
	}
	return m
}

// next is the command that says more about an invalid run: one that measures its causes, which tells a limit of
// the servers from a defect of the lock.
func (m *model) next() string {
	run := m.in.Run
	if run.AbortReason != "" || run.ClaimLostTo != "" || len(run.Causes) > 0 || m.Simulated || run.Backend == "attach" {
		return ""
	}
	return story.With(run, "--causes")
}

// recorded reports whether there is a record of the run beside its history.
func (r *Results) recorded() bool { return r.Command != "" || r.Seed != 0 || r.Topology != "" }

// met reports whether a scenario gave the verdict that it must.
func (r *Results) met() bool {
	return r.Expect != "" && r.Expect == string(r.Verdict) && r.AbortReason == ""
}

// about names what was run.
func (r *Results) about() []string {
	var parts []string
	for _, s := range []string{r.Scenario, r.Topology, r.Lock, r.Workload} {
		if s != "" {
			parts = append(parts, say.OneLine(s))
		}
	}
	if r.recorded() {
		parts = append(parts, fmt.Sprintf("seed %d", r.Seed))
	}
	if r.Simulated {
		parts = append(parts, r.Simulation)
	}
	switch {
	case r.met():
		parts = append(parts, "as expected")
	case r.Expect != "":
		parts = append(parts, "expected "+say.OneLine(r.Expect))
	}
	return parts
}

// blamed is what was measured to be to blame, where all measurements say the same; else empty.
func (r *Results) blamed() string {
	for _, c := range r.Causes {
		if c.Verdict != r.Causes[0].Verdict {
			return ""
		}
	}
	if len(r.Causes) == 0 {
		return ""
	}
	return Blame(r.Causes[0])
}

// Blame is what a measurement says to be to blame; empty where it decides nothing. What happens to clients that stand still, or whose
// clocks are wrong, is no matter of the servers.
func Blame(c history.Cause) string {
	ofServers := func(s history.Suspect) bool { return !(&Fault{Name: s.Fault}).OfClient() }
	switch {
	case c.Verdict == history.CauseLock:
		return "a defect of the lock"
	case c.Verdict != history.CauseDeployment:
		return ""
	case len(c.Faults) > 0 && !slices.ContainsFunc(c.Faults, ofServers):
		return "a limit of any such lock"
	default:
		return "a limit of this deployment"
	}
}

// An operationRow is a row of the table of operations.
type operationRow struct {
	Op string
	Outcomes
	Latency
}

// rows are the operations in the order in which reports list them.
func (r *Results) rows() []operationRow {
	var rows []operationRow
	for _, op := range facts.Operations() {
		if o, ok := r.Operations[op]; ok {
			rows = append(rows, operationRow{op, o, r.Latency[op]})
		}
	}
	return rows
}

// sign is the mark that goes with a verdict, so that no colour is needed.
func sign(v checker.Verdict) string {
	return cmp.Or(map[checker.Verdict]string{checker.Valid: "✓", checker.Invalid: "✗"}[v], "?")
}

// recoveryCell is a recovery in a table, where one was due at all.
func recoveryCell(due bool, took time.Duration) string {
	switch {
	case !due:
		return facts.None
	case took == 0:
		return "none"
	default:
		return say.Span(took)
	}
}

// Interval is where the true share lies, in 95 of 100 cases, of what was seen in so many runs: Wilson's score interval
// (E. B. Wilson, "Probable inference", JASA 22, 1927). It supposes that runs are independent of each other.
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

// share is an interval in percent.
func share(interval [2]float64) string {
	return fmt.Sprintf("%.0f to %.0f %%", math.Floor(100*interval[0]), math.Ceil(100*interval[1]))
}

// SuspectLabel names a fault that was measured, with its time where another has the same name and target.
func SuspectLabel(c history.Cause, i int) string {
	if i < 0 || i >= len(c.Faults) {
		return ""
	}
	s := c.Faults[i]
	f := Fault{Name: s.Fault, Target: s.Target}
	if slices.ContainsFunc(slices.Delete(slices.Clone(c.Faults), i, i+1), func(o history.Suspect) bool { return o.Fault == s.Fault && o.Target == s.Target }) {
		return f.Label() + " at " + say.Instant(s.Start)
	}
	return f.Label()
}

// armLabel is an arm of a measurement in words.
func armLabel(c history.Cause, a history.Arm) string {
	label := SuspectLabel(c, a.Fault)
	switch a.Arm {
	case history.ArmAll:
		if len(c.Faults) == 0 {
			return "without any fault, as it was"
		}
		return "with the faults of the run"
	case history.ArmWithout:
		return "without " + label
	case history.ArmOnly:
		return "with " + label + " alone"
	case history.ArmNone:
		return "without any fault"
	case history.ArmControl:
		return "with " + c.Control + ", a correct lock, in its place"
	case history.ArmFrom:
		return "with the faults, and otherwise from " + say.Instant(a.From) + " on"
	default:
		return a.Arm
	}
}

// WriteJSON writes results.json: the [Results] of a run, or a [Joint] or a [Matrix].
func WriteJSON[T Results | Joint | Matrix](w io.Writer, r T) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	err := enc.Encode(r)
	return write(w, "results", b.String(), err)
}

// write writes a report whose text was made, with what does not print by its number.
func write(w io.Writer, what, text string, err error) error {
	if err == nil {
		_, err = io.WriteString(w, say.Plain(text))
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", what, err)
	}
	return nil
}

// ReadJSON reads what [WriteJSON] wrote. It refuses a version that it does not
// know.
func ReadJSON(r io.Reader) (Results, error) {
	var results Results
	if err := json.NewDecoder(r).Decode(&results); err != nil {
		return Results{}, fmt.Errorf("read results: %w", err)
	}
	if results.Version != ResultsVersion {
		return Results{}, fmt.Errorf("read results: version %d, want %d", results.Version, ResultsVersion)
	}
	switch results.Verdict {
	case checker.Valid, checker.Invalid, checker.Unknown:
		return results, nil
	default:
		return Results{}, fmt.Errorf("read results: unknown verdict %q (want valid, invalid or unknown)", results.Verdict)
	}
}
