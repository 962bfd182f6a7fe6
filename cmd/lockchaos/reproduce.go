package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/locks"
	"github.com/lockchaos/lockchaos/internal/names"
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
				chosen, err = a.under(chosen, lockName, expect)
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
				if r.out, err = newRunDir("", seedOfScripts, "reproduce"); err != nil {
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
func (a *app) under(chosen []choice, name, expect string) ([]choice, error) {
	assumed := expect == ""
	expect = cmp.Or(expect, string(checker.Valid))
	if verdicts := []string{string(checker.Valid), string(checker.Invalid)}; !slices.Contains(verdicts, expect) {
		return nil, fmt.Errorf("--expect: %w", names.Unknown("verdict", expect, verdicts))
	}
	l, err := lockNamed(a.stderr, a.locks, name)
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
	add := func(s scenarios.Scenario, typed string, variants ...string) error {
		for _, v := range variants {
			c := choice{Scenario: s.As(v), of: s, variant: v}
			if slices.ContainsFunc(chosen, func(other choice) bool { return other.Name == c.Name }) {
				return fmt.Errorf("scenario %s is named twice", c.Name)
			}
			c.typed = cmp.Or(typed, c.Name)
			chosen = append(chosen, c)
		}
		return nil
	}
	if all {
		catalogue, err := scenarios.Catalogue(a.locks)
		if err != nil {
			return nil, harnessError{err}
		}
		for _, s := range catalogue {
			err = errors.Join(err, add(s, "", append([]string{""}, s.VariantNames()...)...))
		}
		return chosen, err
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
		if err == nil {
			err = add(s, typed, variants...)
		}
		if err != nil {
			return nil, err
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
func (c choice) outcome(p played) string {
	by := c.Name
	if c.own != "" {
		by += " with lock " + c.LockName
	}
	switch {
	case p.unsuited():
		return fmt.Sprintf("%s: %v", by, p.unexpected)
	case p.unexpected == nil && p.in.Run.Spared != "":
		return fmt.Sprintf("%s is %s: it does not have the bug that the scenario is about", by, c.Expect.Verdict)
	case p.unexpected == nil && c.own == "":
		return fmt.Sprintf("%s gave the verdict that it must (%s) in %.1f s", by, c.Expect.Verdict, p.took.Seconds())
	case p.unexpected == nil && c.assumed:
		return fmt.Sprintf("%s is valid, in %.1f s", by, p.took.Seconds())
	case p.unexpected == nil:
		return fmt.Sprintf("%s is %s, as --expect says, in %.1f s", by, c.Expect.Verdict, p.took.Seconds())
	case c.own == "":
		return fmt.Sprintf("%s did not give its verdict: %v", by, p.unexpected)
	case !c.assumed:
		return fmt.Sprintf("%s is not as --expect says: %v", by, p.unexpected)
	case p.in.Report.Verdict != checker.Invalid || checker.NoAnswer(p.in.Run) != "":
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

// seedOfScripts is recorded for scripts, in which nothing is drawn.
const seedOfScripts = 0

// playScenario plays a scenario once, in a run directory of its own, and judges it.
func (a *app) playScenario(ctx context.Context, s choice, out string, what ...string) (played, error) {
	before := exists(out)
	dir, err := newRunDir(out, seedOfScripts, what...)
	if err != nil {
		return played{}, err
	}
	p := play{
		name: s.Name, run: s.Run, servers: s.servers, store: topologies.StoreOf(s.Topology), before: before,
		Config: harness.Config{Dir: dir, Seed: seedOfScripts, Command: s.again()},
	}
	if s.control {
		p.control = func(history.Run) (control, error) { return a.scriptControl(s) }
	}
	r, err := a.play(ctx, p)
	if r.in.History == nil {
		return played{}, err
	}
	r.unexpected = s.Expect.Met(r.in.Run, r.in.Report)
	return r, asHarness(errors.Join(r.failed, err, pointLatest(dir)))
}

// scriptControl is the script with the control lock. One that can't be asked of it has no control.
func (a *app) scriptControl(s choice) (control, error) {
	l, err := a.locks.ByName(locks.Control(s.Topology))
	if err != nil {
		return control{}, err
	}
	l.Foreign = true // faults of commands are aimed at what it sends
	as, err := s.of.Under(l, s.variant)
	if err != nil {
		fmt.Fprintf(a.stderr, "no control: %v\n", err)
		return control{}, nil
	}
	return control{l.Name, "lockchaos reproduce " + quoted(s.typed) + " --lock " + l.Name, as.Run}, nil
}

// unknown reports whether the run shows nothing, one way or the other.
func (p played) unknown() bool { return p.in.Report.Verdict == checker.Unknown }

// unsuited reports whether the scenario can't be asked of the lock, which has violated
// nothing until then.
func (p played) unsuited() bool { return p.in.Run.Unsuited != "" && p.unknown() }
