package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockchaos/lockchaos/campaign"
	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/locks"
	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/reports"
	"github.com/lockchaos/lockchaos/scenarios"
	"github.com/lockchaos/lockchaos/topologies"
)

func (a *app) reproduceCommand() *cobra.Command {
	var all, stores, control, allowExec bool
	var servers serverFlags
	var lockName, expect string
	r := scenarioBatch{app: a}
	cmd := &cobra.Command{
		Use:   "reproduce SCENARIO[/VARIANT]... | FILE.yaml... | --all | --stores",
		Short: "Play scripted failures, and check that each gives its expected verdict",
		Long: `Play scripted failures. Each scenario states the verdict that it must give: the
failure itself is invalid, its cures and controls are valid. The exit code is 0
if each scenario gave its verdict in the required share of its runs.

With --lock another lock plays them, such as one of your own. Its verdict need not be
that of the scenario's own lock: --expect says what it must be, valid unless it is said.
What can't be asked of the lock is left out.

With --stores one split brain is played on Sentinel, Cluster, etcd and ZooKeeper, and for
the last two the fault with which they grant a lock twice, without and with a token.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if stores {
				if all || len(args) > 0 {
					return errors.New("--stores says what is played: name no scenario, and not --all, beside it")
				}
				args = scenarios.Stores()
			}
			chosen, err := a.chooseScenarios(args, all, allowExec)
			if lockName != "" && err == nil {
				chosen, err = a.under(cmd.Context(), chosen, lockName, expect)
			}
			err = errors.Join(err, servers.validate(cmd),
				refuse(lockName == "" && expect != "", "--expect is for a lock that --lock names: each scenario states the verdict of its own lock"),
				refuse(lockName == "" && control, "--control is for a lock that --lock names: the variants of a scenario are the controls of its own lock"),
				refuse(r.repeat < 1, "--repeat must be at least 1, not %d", r.repeat),
				refuse(r.parallel < 1, "--parallel must be at least 1, not %d", r.parallel),
				refuse(r.parallel > 1 && servers.backend == attachBackend, "--parallel: servers that run already have one run at a time"))
			if err != nil {
				return err
			}
			for _, s := range chosen {
				s.servers, s.flags, s.control = &servers, changedFlags(cmd), control
				r.results = append(r.results, &scenarioResult{choice: s})
			}
			if r.single = len(chosen) == 1 && r.repeat == 1; r.single {
				fmt.Fprintf(a.stderr, "%s\n", r.results[0].again())
			} else if r.out == "" {
				if r.out, err = newRunDir("", "reproduce"); err != nil {
					return err
				}
			}
			return r.play(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.BoolVar(&all, "all", false, "play every scenario and variant of the catalogue")
	f.BoolVar(&stores, "stores", false, "play one split brain on each store, and what fools those that it does not, with the cure")
	f.IntVar(&r.repeat, "repeat", 1, "number of runs of each scenario")
	f.IntVar(&r.parallel, "parallel", 1, "number of runs at a time, each on its own servers (3 suit two cores)")
	f.StringVar(&lockName, "lock", "", "play them with this lock (lockchaos list locks), or exec:COMMAND, a driver of a lock of your own")
	f.StringVar(&expect, "expect", "", "with --lock: the verdict that each run must have, valid or invalid (default valid)")
	f.BoolVar(&control, "control", false, "with --lock: if a run is invalid, have the least lock that is correct on these servers (correct-key, redlock) play the script as well")
	f.StringVar(&r.out, "out", "", "the run directory, or with several runs the folder for them (default under reports/runs)")
	f.BoolVar(&allowExec, "allow-exec", false, "run the command that a FILE names as its lock (exec:COMMAND)")
	f.BoolVar(&r.asJSON, "json", false, "print results.json; of several runs, print the table as JSON")
	servers.register(f)
	return cmd
}

// under has another lock play the scenarios. Those that can't be asked of it are
// left out, unless none is left. Where no verdict is expected of it, it must be valid.
func (a *app) under(ctx context.Context, chosen []choice, name, expect string) ([]choice, error) {
	assumed := expect == ""
	expect = cmp.Or(expect, string(checker.Valid))
	if verdicts := []string{string(checker.Valid), string(checker.Invalid)}; !slices.Contains(verdicts, expect) {
		return nil, fmt.Errorf("--expect: %w", names.Unknown("verdict", expect, verdicts))
	}
	l, err := lockNamed(ctx, a.stderr, a.locks, name)
	if err != nil {
		return nil, err
	}
	var left []choice
	var reasons []error
	for _, c := range chosen {
		as, err := c.of.Under(l, c.variant)
		if err != nil {
			reasons = append(reasons, err)
			continue
		}
		c.own, c.ownLock, c.assumed = c.Expect.Verdict, c.LockName, assumed
		as.Expect, as.Cures, as.EveryTime = scenarios.Expectation{Verdict: expect}, nil, true
		c.Scenario = as
		left = append(left, c)
	}
	if len(left) == 0 {
		return nil, errors.Join(reasons...)
	}
	for _, why := range reasons {
		fmt.Fprintf(a.stderr, "left out: %v\n", why)
	}
	return left, nil
}

// chooseScenarios finds what the arguments name.
func (a *app) chooseScenarios(args []string, all, allowExec bool) ([]choice, error) {
	if err := errors.Join(refuse(all && len(args) > 0, "--all plays every scenario: name none beside it"),
		refuse(!all && len(args) == 0, "name the scenarios to reproduce, or say --all (lockchaos list scenarios)")); err != nil {
		return nil, err
	}
	var chosen []choice
	add := func(s scenarios.Scenario, typed string, variants ...string) {
		for _, v := range variants {
			c := choice{Scenario: s.As(v), of: s, variant: v}
			c.typed = cmp.Or(typed, c.Name)
			chosen = append(chosen, c)
		}
	}
	if all {
		catalogue, err := scenarios.Catalogue(a.locks)
		if err != nil {
			return nil, harnessError{err}
		}
		for _, s := range catalogue {
			add(s, "", append([]string{""}, s.VariantNames()...)...)
		}
	}
	for _, arg := range args {
		var s scenarios.Scenario
		var err error
		typed, variants := arg, []string{""}
		if strings.HasSuffix(arg, ".yaml") || strings.HasSuffix(arg, ".yml") {
			s, err = scenarios.Load(arg, a.locks, allowExec)
			variants = append(variants, s.VariantNames()...)
		} else {
			s, variants[0], err = scenarios.Find(arg, a.locks)
			typed = ""
		}
		if err != nil {
			return nil, err
		}
		add(s, typed, variants...)
	}
	for i, c := range chosen {
		if slices.ContainsFunc(chosen[:i], func(other choice) bool { return other.Name == c.Name }) {
			return nil, fmt.Errorf("scenario %s is named twice", c.Name)
		}
	}
	return chosen, nil
}

// A choice is a scenario, where to play it, and what the user has to type to
// have it played.
type choice struct {
	scenarios.Scenario

	of      scenarios.Scenario // with all its variants
	variant string
	typed   string
	servers *serverFlags
	flags   string
	control bool

	// own is the verdict that the scenario's own lock must have, and ownLock its name,
	// where another lock plays it; else empty. assumed says that --expect was left out.
	own, ownLock string
	assumed      bool
}

// outcome says in a sentence whether a run gave the verdict that it must.
func (c choice) outcome(p scriptRun) string {
	by := c.Name
	if c.own != "" {
		by += " with lock " + c.LockName
	}
	switch {
	case p.unsuited():
		return fmt.Sprintf("%s: %v", by, p.unexpected)
	case p.unexpected == nil && p.Run.Spared != "":
		return fmt.Sprintf("%s is %s: it does not have the bug that the scenario is about", by, c.Expect.Verdict)
	case p.unexpected == nil && c.own == "":
		return fmt.Sprintf("%s gave the verdict that it must (%s) in %.1f s", by, c.Expect.Verdict, p.Took.Seconds())
	case p.unexpected == nil && c.assumed:
		return fmt.Sprintf("%s is valid, in %.1f s", by, p.Took.Seconds())
	case p.unexpected == nil:
		return fmt.Sprintf("%s is %s, as --expect says, in %.1f s", by, c.Expect.Verdict, p.Took.Seconds())
	case c.own == "":
		return fmt.Sprintf("%s did not give its verdict: %v", by, p.unexpected)
	case !c.assumed:
		return fmt.Sprintf("%s is not as --expect says: %v", by, p.unexpected)
	case p.Report.Verdict != checker.Invalid || checker.NoAnswer(p.Run) != "":
		return fmt.Sprintf("%s is not valid: %v", by, p.unexpected)
	case c.own == string(checker.Invalid) && strings.HasPrefix(c.ownLock, "broken-"):
		return fmt.Sprintf("%s is invalid, as %s is, which has that bug planted: look for the cause in your lock", by, c.ownLock)
	case c.limit():
		return fmt.Sprintf("%s is invalid. So is the lock that the scenario is about: it shows what such a lock can't prevent here. If that is known of yours, say --expect invalid", by)
	default:
		return fmt.Sprintf("%s is invalid, and the lock that the scenario is about is not: look for the cause in your lock", by)
	}
}

// limit reports whether the scenario shows what a correct lock of its kind can't prevent.
func (c choice) limit() bool {
	return c.own == string(checker.Invalid) && !strings.HasPrefix(c.ownLock, "broken-")
}

// again is the command that plays it again.
func (c choice) again() string { return "lockchaos reproduce " + quoted(c.typed) + c.flags }

// A scriptRun is one run of a scenario.
type scriptRun struct {
	campaign.Played

	run        int   // from 1
	unexpected error // in what its verdict is another than the one that is expected; nil if it is that
}

// unsuited reports whether the scenario can't be asked of the lock, which has violated
// nothing until then.
func (p scriptRun) unsuited() bool {
	return p.Run.Unsuited != "" && p.Report.Verdict == checker.Unknown
}

// playScenario plays a scenario once, in a run directory of its own, and judges it. Nothing is drawn in it, so that its seed is 0.
func (a *app) playScenario(ctx context.Context, s choice, out string) (scriptRun, error) {
	before := campaign.Exists(out)
	dir, err := newRunDir(out, s.Name, "0")
	if err != nil {
		return scriptRun{}, err
	}
	r := campaign.Run{Config: harness.Config{Dir: dir, Command: s.again()}, Make: s.Run, Store: topologies.StoreOf(s.Topology), Title: s.Name, Before: before}
	if s.control {
		r.Control = func(history.Run, string) (campaign.Control, error) { return a.scriptControl(s) }
	}
	p, err := a.player(s.servers).Play(ctx, r)
	if p.History == nil {
		return scriptRun{}, asHarness(err)
	}
	return scriptRun{Played: p, unexpected: s.Expect.Met(p.Run, p.Report)}, asHarness(errors.Join(p.Failed, err, pointLatest(dir)))
}

// scriptControl is the script with the control lock. One that can't be asked of it has no control.
func (a *app) scriptControl(s choice) (campaign.Control, error) {
	l, err := a.locks.ByName(locks.Control(s.Topology))
	if err != nil {
		return campaign.Control{}, err
	}
	l.Foreign = true // faults of commands are aimed at what it sends
	as, err := s.of.Under(l, s.variant)
	if err != nil {
		fmt.Fprintf(a.stderr, "no control: %v\n", err)
		return campaign.Control{}, nil
	}
	return campaign.Control{Lock: l.Name, Command: "lockchaos reproduce " + quoted(s.typed) + " --lock " + l.Name, Make: as.Run}, nil
}

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

	runs       []scriptRun // that were not cut short, in the order in which they ended
	impossible error       // why it can't be played here; nil if it can
}

// play plays all runs, in order as far as each begins, and prints a table, or its
// JSON; of a single run, its summary.
func (r *scenarioBatch) play(ctx context.Context) error {
	began := time.Now()
	runs := make([]int, len(r.results)*r.repeat)
	for i := range runs {
		runs[i] = i
	}
	failed := worst(campaign.Batch(ctx, r.parallel, runs, func(ctx context.Context, i int) error {
		return r.playOne(ctx, r.results[i/r.repeat], i%r.repeat+1)
	}), context.Cause(ctx))
	if err := worst(failed, r.print(time.Since(began))); err != nil { // it was cut short, or has no reader
		return err
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
		slices.SortFunc(t.runs, func(a, b scriptRun) int { return a.run - b.run })
		for _, p := range t.runs {
			runs = append(runs, reports.NewJointRun(reports.Summarize(p.Input), filepath.Base(p.Dir)))
		}
	}
	if len(runs) == 0 {
		return nil
	}
	return reports.WriteJoint(r.out, runs, planned)
}

// playOne plays one run of a scenario. What is cut short counts for nothing.
func (r *scenarioBatch) playOne(ctx context.Context, t *scenarioResult, run int) error {
	dir := r.out
	if !r.single {
		dir = filepath.Join(dir, fmt.Sprintf("%s-%d", strings.ReplaceAll(t.Name, "/", "-"), run))
		fmt.Fprintf(r.stderr, "%s, run %d of %d\n", t.Name, run, r.repeat)
	}
	p, err := r.playScenario(ctx, t.choice, dir)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case errors.Is(err, faults.ErrImpossible) && !r.single: // others may be possible
		t.impossible = err
		fmt.Fprintf(r.stderr, "%s: %v\n", t.Name, err)
		return nil
	case err != nil && p.Dir == "", ctx.Err() != nil:
		return err
	case err != nil: // what was recorded is no answer, and the others go on
		p.unexpected, p.Failed = err, err
	}
	p.run = run
	t.runs = append(t.runs, p)
	switch {
	case r.single:
	case p.unsuited():
		fmt.Fprintf(r.stderr, "left out: %s: %s\n", t.Name, p.Run.Unsuited)
	case p.unexpected != nil:
		fmt.Fprintf(r.stderr, "%s\n", t.missed(p))
	}
	return nil
}

// missed says why a run did not give its verdict, and where its report is.
func (t *scenarioResult) missed(p scriptRun) string {
	why := p.unexpected.Error()
	if t.assumed && t.limit() && p.Failed == nil && p.Report.Verdict == checker.Invalid {
		why = fmt.Sprintf("invalid, and so is the scenario's own lock %s, which can't prevent this here", t.ownLock)
	}
	return fmt.Sprintf("%s, run %d: %s (%s)", t.Name, p.run, why, p.Dir)
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
		line.Got[p.Report.Verdict]++
		times = append(times, p.Took)
		switch {
		case p.unexpected == nil:
			line.Met++
		case t.leftOut():
			line.Unsuited = p.Run.Unsuited
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
			if err := r.app.print(reports.Summarize(p.Input), p.Dir, r.asJSON); err != nil {
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
	return len(t.runs) > 0 && !slices.ContainsFunc(t.runs, func(p scriptRun) bool { return !p.unsuited() })
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
		case p.Failed != nil:
			return fmt.Errorf("%s, run %d: %w", t.Name, p.run, p.Failed)
		case p.unexpected == nil:
			met++
		case p.Report.Verdict == checker.Unknown:
			unknown++
		}
	}
	must := repeat
	if !t.EveryTime {
		must = repeat - repeat/10
	}
	convicted := t.Expect.Verdict == string(checker.Valid) && slices.ContainsFunc(t.runs, func(p scriptRun) bool { return p.Report.Verdict == checker.Invalid })
	return answer(convicted || met < must && unknown < len(t.runs), met < must)
}
