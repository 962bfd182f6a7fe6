package reports

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
)

// ResultsVersion is the version of the results.json format.
const ResultsVersion = 1

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

	// Counts are the violations by kind; Story tells the first of them with damage, and Sequence has the
	// messages until then (nil where no two parties are known).
	Counts   Counts    `json:"counts"`
	Story    Story     `json:"story"`
	Sequence *Sequence `json:"sequence,omitempty"`
	// Causes are what came of playing the run again with and without its faults; empty: it was not.
	Causes []history.Cause `json:"causes,omitempty"`
	// Next is the command that says more about an invalid run; empty where there is none.
	Next       string              `json:"next,omitempty"`
	Properties []checker.Result    `json:"properties"`
	Operations map[string]Outcomes `json:"operations"` // nil where they were not counted
	Latency    map[string]Latency  `json:"latency"`
	Faults     []Fault             `json:"faults"`
}

// leftOut says which faults did not come, and why.
func leftOut(run *history.Run) []string {
	if late := run.Late(); late != "" {
		return append(slices.Clone(run.SkippedFaults), late)
	}
	return run.SkippedFaults
}

// Summarize derives the results of a run.
func Summarize(in Input) Results { return newModel(in).results() }

func (m *model) results() Results {
	r := Results{
		Version: ResultsVersion, Verdict: m.Report.Verdict,
		Scenario: m.Run.Scenario, Expect: m.Run.Expect, Seed: m.Run.Seed,
		Topology: m.Run.Topology.Name, Simulated: m.Run.Backend == history.Simulated, Simulation: m.Run.Simulation(), Lock: m.Run.Lock, Workload: m.Run.Workload,
		Command: m.Run.Command, Program: m.Run.Program,
		Started: m.Run.Started, Duration: m.end,
		AbortReason: m.Run.AbortReason, SkippedFaults: leftOut(&m.Run), Interrupted: m.Run.Interrupted, Truncated: m.History.Truncated, Events: len(m.History.Events), Missing: m.Missing,
		Counts: m.counts(), Story: m.story(), Causes: m.Run.Causes, Next: m.next(), Properties: m.Report.Results,
		Operations: outcomes(m.ops), Latency: latencies(m.ops), Faults: m.faults,
	}
	if v := m.violation(); v != nil {
		r.Sequence = m.sequence(v)
	}
	if r.Verdict == "" {
		r.Verdict = checker.Unknown
	}
	if r.Properties == nil {
		r.Properties = []checker.Result{}
	}
	if r.Faults == nil {
		r.Faults = []Fault{}
	}
	return r
}

// next is the command that says more about an invalid run: one that measures its causes, which tells a limit of
// the servers from a defect of the lock, or the variant of a scenario that prevents the violation.
func (m *model) next() string {
	if m.violation() == nil || m.Run.AbortReason != "" || m.Run.ClaimLostTo != "" {
		return ""
	}
	for _, c := range m.story().Cures {
		if c.Prevents {
			return c.Try
		}
	}
	if len(m.Run.Causes) > 0 || m.Run.Backend == history.Simulated || m.Run.Backend == "attach" {
		return ""
	}
	return m.with("--causes")
}

// sign is the mark that goes with a verdict, so that no colour is needed.
func sign(v checker.Verdict) string {
	switch v {
	case checker.Valid:
		return "✓"
	case checker.Invalid:
		return "✗"
	default:
		return "?"
	}
}

// effective counts the faults whose effect was observed, and that a request met.
func effective(faults []Fault) int {
	n := 0
	for i := range faults {
		if faults[i].counts() {
			n++
		}
	}
	return n
}

// WriteJSON writes results.json: the [Results] of a run, or a [Joint] or a [Matrix].
func WriteJSON[T Results | Joint | Matrix](w io.Writer, r T) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(r); err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	if _, err := io.WriteString(w, say.Plain(b.String())); err != nil {
		return fmt.Errorf("write results: %w", err)
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

// opNames are the operations of clients, in the order in which reports list
// them.
func opNames() []string {
	return []string{
		string(history.Acquire), string(history.Extend), string(history.Release), string(history.Access),
	}
}
