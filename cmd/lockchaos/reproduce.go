package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/reports"
	"github.com/lockchaos/lockchaos/scenarios"
)

func (a *app) reproduceCommand() *cobra.Command {
	var all, asJSON bool
	var servers serverFlags
	var repeat int
	var out string
	cmd := &cobra.Command{
		Use:   "reproduce SCENARIO[/VARIANT]... | FILE.yaml... | --all",
		Short: "Play scripted failures, and see whether each gives the verdict that it must",
		Long: `Play scripted failures. Each scenario says which verdict it must give: the
failure itself is invalid, its cures and controls are valid. The exit code is 0
if each gave its verdict in as many of its runs as it must.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			chosen, err := chooseScenarios(args, all)
			if err := errors.Join(err, servers.validate(cmd)); err != nil {
				return err
			}
			for i := range chosen {
				chosen[i].servers, chosen[i].flags = &servers, changedFlags(cmd)
			}
			if repeat < 1 {
				return fmt.Errorf("--repeat must be at least 1, not %d", repeat)
			}
			if len(chosen) == 1 && repeat == 1 {
				fmt.Fprintf(a.stderr, "%s\n", chosen[0].again())
				return a.reproduceOnce(cmd.Context(), chosen[0], out, asJSON)
			}
			if asJSON {
				return errors.New("--json prints the results of one run: name one scenario, without --repeat")
			}
			return a.reproduceMany(cmd.Context(), chosen, repeat, out)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&all, "all", false, "play every scenario and variant of the catalogue")
	f.IntVar(&repeat, "repeat", 1, "play each so many times")
	f.StringVar(&out, "out", "", "the run directory, or with several runs the folder for them (default under reports/runs)")
	f.BoolVar(&asJSON, "json", false, "print results.json instead of the summary")
	servers.register(f)
	return cmd
}

// chooseScenarios finds what the arguments name.
func chooseScenarios(args []string, all bool) ([]choice, error) {
	switch {
	case all && len(args) > 0:
		return nil, errors.New("--all plays every scenario: name none beside it")
	case !all && len(args) == 0:
		return nil, errors.New("name the scenarios to reproduce, or say --all (lockchaos list scenarios)")
	}
	if all {
		catalogue, err := scenarios.Catalogue()
		if err != nil {
			return nil, harnessError{err}
		}
		for _, s := range catalogue {
			args = append(args, s.Names()...)
		}
	}
	var chosen []choice
	add := func(c choice) error {
		if slices.ContainsFunc(chosen, func(other choice) bool { return other.Name == c.Name }) {
			return fmt.Errorf("scenario %s is named twice", c.Name)
		}
		chosen = append(chosen, c)
		return nil
	}
	for _, arg := range args {
		if strings.HasSuffix(arg, ".yaml") || strings.HasSuffix(arg, ".yml") {
			s, err := scenarios.Load(arg)
			if err != nil {
				return nil, err
			}
			for _, v := range append([]string{""}, s.VariantNames()...) {
				if err := add(choice{Scenario: s.As(v), typed: arg}); err != nil {
					return nil, err
				}
			}
			continue
		}
		s, variant, err := scenarios.Find(arg)
		if err != nil {
			return nil, err
		}
		as := s.As(variant)
		if err := add(choice{Scenario: as, typed: as.Name}); err != nil {
			return nil, err
		}
	}
	return chosen, nil
}

// A choice is a scenario, where to play it, and what the user has to type to
// have it played.
type choice struct {
	scenarios.Scenario

	typed   string
	servers *serverFlags
	flags   string
}

// again is the command that plays it again.
func (c choice) again() string { return "lockchaos reproduce " + quoted(c.typed) + c.flags }

// played is what came of one run of a scenario.
type played struct {
	in   reports.Input
	dir  string
	took time.Duration
	met  error // nil: it gave its verdict
}

// play plays a scenario once, in a run directory of its own, and judges it.
func (a *app) play(ctx context.Context, s choice, out string, what ...string) (played, error) {
	before := exists(out)
	dir, err := newRunDir(out, seedOfScripts, what...)
	if err != nil {
		return played{}, err
	}
	log, err := createLog(dir)
	if err != nil {
		return played{}, err
	}
	defer log.Close()
	backend, backendName, err := s.servers.open(ctx, a.log(log))
	if err != nil {
		return played{}, errors.Join(err, removeEmpty(dir, before))
	}
	start := time.Now()
	err = s.Run(ctx, scenarios.Setup{
		Dir: dir, Backend: backend, BackendName: backendName, Seed: seedOfScripts, Program: version(),
		Command: s.again(), Log: a.log(log),
	})
	if err != nil && !exists(filepath.Join(dir, reports.RunFile)) {
		return played{}, harnessError{errors.Join(err, removeEmpty(dir, before))}
	}
	p := played{dir: dir, took: time.Since(start)}
	var judged error
	p.in, judged = judge(dir)
	p.met = s.Expect.Met(p.in.Run, p.in.Report)
	return p, asHarness(errors.Join(err, pointLatest(dir), judged))
}

// seedOfScripts is recorded for scripts, in which nothing is drawn.
const seedOfScripts = 0

func (a *app) reproduceOnce(ctx context.Context, s choice, out string, asJSON bool) error {
	p, err := a.play(ctx, s, out, s.Name)
	if err != nil {
		return err
	}
	if err := a.print(p.in, p.dir, asJSON); err != nil {
		return err
	}
	if asJSON {
		return p.exit()
	}
	if p.met != nil {
		a.printf("\n%s did not give its verdict: %v\n", s.Name, p.met)
		return p.exit()
	}
	a.printf("\n%s gave the verdict that it must (%s) in %.1f s\n", s.Name, s.Expect.Verdict, p.took.Seconds())
	return nil
}

// unknown reports whether the run shows nothing, one way or the other.
func (p played) unknown() bool {
	return p.in.Report.Verdict == checker.Unknown || p.in.Run.Unmet != ""
}

// exit is the answer of a single run.
func (p played) exit() error {
	switch {
	case p.met == nil:
		return nil
	case p.unknown():
		return verdictError(exitUnknown)
	default:
		return verdictError(exitInvalid)
	}
}

// reproduceMany plays several scenarios, each several times, and prints a
// table.
func (a *app) reproduceMany(ctx context.Context, chosen []choice, repeat int, out string) error {
	if out == "" {
		dir, err := newRunDir("", seedOfScripts, "reproduce")
		if err != nil {
			return err
		}
		out = dir
	}
	var result error
	table := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SCENARIO\tEXPECTED\tGOT\tRATE\tMEDIAN\tMAX")
	for _, s := range chosen {
		var runs []played
		for i := range repeat {
			dir := filepath.Join(out, fmt.Sprintf("%s-%d", strings.ReplaceAll(s.Name, "/", "-"), i+1))
			fmt.Fprintf(a.stderr, "%s, run %d of %d\n", s.Name, i+1, repeat)
			p, err := a.play(ctx, s, dir)
			if errors.Is(err, scenarios.ErrImpossible) { // others may be possible
				fmt.Fprintf(a.stderr, "%s: %v\n", s.Name, err)
				result = worst(result, fmt.Errorf("%s: %w", s.Name, err))
				break
			}
			if err != nil {
				return worst(err, table.Flush())
			}
			if ctx.Err() != nil { // what was cut short counts for nothing
				return worst(context.Cause(ctx), table.Flush())
			}
			if p.met != nil {
				fmt.Fprintf(a.stderr, "%s, run %d: %v (%s)\n", s.Name, i+1, p.met, dir)
			}
			runs = append(runs, p)
		}
		a.row(table, s, runs, repeat)
		result = worst(result, exitOf(s, runs, repeat))
	}
	if err := table.Flush(); err != nil {
		return harnessError{err}
	}
	a.printf("\nreports in %s\n", out)
	return result
}

func (*app) row(table *tabwriter.Writer, s choice, runs []played, repeat int) {
	got := map[checker.Verdict]int{}
	var times []time.Duration
	met := 0
	for _, p := range runs {
		got[p.in.Report.Verdict]++
		times = append(times, p.took)
		if p.met == nil {
			met++
		}
	}
	var verdicts []string
	for _, v := range []checker.Verdict{checker.Valid, checker.Invalid, checker.Unknown} {
		if got[v] > 0 {
			verdicts = append(verdicts, fmt.Sprintf("%s ×%d", v, got[v]))
		}
	}
	median, longest := time.Duration(0), time.Duration(0)
	if len(times) > 0 {
		slices.Sort(times)
		median, longest = times[len(times)/2], times[len(times)-1]
	}
	expected := s.Expect.Verdict
	if s.Expect.Violation != "" {
		expected += " (" + s.Expect.Violation + ")"
	}
	fmt.Fprintf(table, "%s\t%s\t%s\t%d/%d\t%.1fs\t%.1fs\n", s.Name, expected, strings.Join(verdicts, ", "),
		met, repeat, median.Seconds(), longest.Seconds())
}

// exitOf is valid if the scenario gave its verdict as often as it must: always,
// or in nine of ten runs. What must be valid may never be found invalid.
func exitOf(s choice, runs []played, repeat int) error {
	met, unknown := 0, 0
	for _, p := range runs {
		if s.Expect.Verdict == string(checker.Valid) && p.in.Report.Verdict == checker.Invalid {
			return verdictError(exitInvalid)
		}
		switch {
		case p.met == nil:
			met++
		case p.unknown():
			unknown++
		}
	}
	must := repeat
	if !s.EveryTime {
		must = repeat - repeat/10
	}
	switch {
	case met >= must:
		return nil
	case unknown == len(runs):
		return verdictError(exitUnknown)
	default:
		return verdictError(exitInvalid)
	}
}
