package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockchaos/lockchaos/campaign"
	"github.com/lockchaos/lockchaos/causes"
	"github.com/lockchaos/lockchaos/fleet"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/locks"
	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/judge"
	"github.com/lockchaos/lockchaos/simulation"
	"github.com/lockchaos/lockchaos/topologies"
)

// simulationWorker is the subcommand by which the program becomes a worker of a
// simulation.
const simulationWorker = "simulation-worker"

// simulateOptions are what a user can say of a simulation.
type simulateOptions struct {
	simulation.Campaign
	division

	lock     harness.LockSpec
	lockName string
	search   string
	shrink   int
	pairs    int
	replay   string
	again    int
	asJSON   bool
	confirm  bool
	limit    time.Duration
}

func (a *app) simulateCommand() *cobra.Command {
	var o simulateOptions
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Drive a lock on simulated servers in virtual time: many runs a second, each of which can be repeated",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.replay != "" {
				return a.replaySimulation(cmd, &o)
			}
			if err := o.complete(cmd, a.locks); err != nil {
				return err
			}
			return a.simulate(cmd, &o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.lockName, "lock", "", "the lock under test (lockchaos list locks) (default mutex, on independent servers redlock)")
	f.StringVar(&o.Topology, "topology", topologies.Single, "the simulated servers that store the lock: "+strings.Join(simulation.Topologies(), ", "))
	f.IntVar(&o.Servers, "nodes", 0, "independent: number of servers (default 3)")
	f.IntVar(&o.ReplicaAcks, "replica-acks", 0, "number of replicas that must acknowledge a grant (lockchaos' own locks but redlock)")
	f.StringVar(&o.Faults, "faults", "", "a comma list of the mixes "+strings.Join(simulation.Mixes(), ", ")+" (default safe: what a correct lock withstands on the topology, which is network,process, and on sentinel and cluster network, with failover if --replica-acks are enough)")
	f.StringVar(&o.seeds, "seeds", "1-1000", "the seeds to try, such as 1-200 or 3,7,20-29")
	f.StringVar(&o.search, "search", simulation.SearchRandom, "random: each seed draws what the clients do and some faults; sweep: of the first seed's schedule, every request is lost, late, repeated or sent by a client that is killed, or meets a server that is, one at a time, and then pairs of these (--pairs)")
	f.IntVar(&o.pairs, "pairs", 0, "sweep: how many pairs of faults to play after the single ones, the most promising first")
	f.IntVar(&o.parallel, "parallel", runtime.NumCPU(), "number of processes that simulate at a time")
	f.IntVar(&o.shrink, "shrink", 300, "how many runs it may take to make a plan small that shows a violation")
	f.StringVar(&o.replay, "replay", "", "a run directory of a simulated run, or its run.json: run the same again, and say whether it is the same")
	f.IntVar(&o.again, "again", 0, "how many more times to run each case (of a random search, or of --replay), to count how many runs are the same")
	f.StringVar(&o.out, "out", "", "the run directory of the first violation (default reports/runs/TIME-simulated-TOPOLOGY-LOCK-SEED); with --shard or --resume the folder of the campaign")
	o.register(cmd)
	f.BoolVar(&o.asJSON, "json", false, "print what was found as JSON")
	f.BoolVar(&o.confirm, "confirm", false, "write each violation's smallest run as a scenario, and play it on real servers until one shows the violation, at most three times each of up to four scripts")
	f.DurationVar(&o.limit, "confirm-limit", 10*time.Minute, "--confirm: begin no attempt after so long, of all violations together")
	return cmd
}

// complete fills in what was not said, and joins everything that is wrong.
func (o *simulateOptions) complete(cmd *cobra.Command, known harness.Locks) error {
	sweep, random := o.search == simulation.SearchSweep, o.search == simulation.SearchRandom
	wrong := errors.Join(aboveZero(cmd, "nodes", "pairs", "again"), o.check(),
		refuse(o.shrink < 1, "--shrink must be at least 1, not %d", o.shrink),
		refuse(!sweep && !random, "%w", names.Unknown("search", o.search, []string{simulation.SearchRandom, simulation.SearchSweep})),
		refuse(!sweep && o.pairs != 0, "--pairs is of --search sweep"),
		refuse(sweep && o.noted(), "--shard and --resume are of --search random"),
		refuse(sweep && o.again != 0, "--again is of --search random and of --replay"))
	var err error
	if o.lock, err = known.ByName(cmp.Or(o.lockName, locks.Default(o.Topology))); err != nil {
		return errors.Join(wrong, err)
	}
	return errors.Join(wrong, o.Validate(o.lock))
}

// newSimulationPool makes the workers, which are this program.
func newSimulationPool(workers int) (*simulation.Pool, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, harnessError{fmt.Errorf("start worker: %w", err)}
	}
	return simulation.NewPool(workers, path, simulationWorker), nil
}

// simulate searches, makes what it found small, and shows it.
func (a *app) simulate(cmd *cobra.Command, o *simulateOptions) error {
	ctx := cmd.Context()
	pool, err := newSimulationPool(o.parallel)
	if err != nil {
		return err
	}
	defer pool.Close()
	begun := time.Now()
	s := &simulation.Search{Topology: o.Topology, Lock: o.lock.Name, Search: o.search, Exact: simulation.Exact(), Kinds: []*simulation.Kind{}}
	progress := newProgress(a.stderr)
	var mu sync.Mutex
	play := func(jobs []simulation.Numbered, done func(simulation.Numbered, simulation.Result) error) error {
		return campaign.Batch(ctx, o.parallel, jobs, func(ctx context.Context, j simulation.Numbered) error {
			r, err := pool.Do(ctx, j.Job)
			if err != nil {
				return asHarness(err)
			}
			mu.Lock()
			defer mu.Unlock()
			s.Add(j.Order, r)
			progress.show("", fmt.Sprintf("simulated %s · %s · %d of %d cases · %.0f a second · %d invalid",
				s.Topology, s.Lock, s.Cases, s.Of, float64(s.Cases)/time.Since(begun).Seconds(), s.Convicts))
			return asHarness(done(j, r))
		})
	}
	if o.search == simulation.SearchSweep {
		err = asHarness(s.PlaySweep(ctx, pool, o.lock, o.Campaign, o.all[0], o.pairs, play))
	} else {
		err = o.random(cmd, s, play)
	}
	progress.end()
	s.Seconds, s.Repeated = time.Since(begun).Seconds(), s.Cases*o.again
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s.Sort()
	if o.noted() { // that of a process before, which may be killed now and leave run directories in part
		if err := os.RemoveAll(filepath.Join(o.out, campaign.SearchFile)); err != nil {
			return harnessError{fmt.Errorf("make the search's result: %w", err)}
		}
	}
	until, find := time.Now().Add(o.limit), causes.InPool(pool)
	for i, k := range s.Kinds {
		fmt.Fprintf(a.stderr, "%s: %d of %d cases, first seed %d; making its plan small\n", k.Kind, k.Cases, s.Cases, k.Seed)
		r, err := a.shrinkSimulation(ctx, o, pool, k, i == 0)
		if err != nil {
			return err
		}
		if k.Causes, err = causes.NoteCase(ctx, k.Dir, r.Case, a.control, find, k.Kind); err != nil {
			return asHarness(err)
		}
		if o.confirm {
			found, err := a.confirm(ctx, k.Dir, o.lock, r, k.Kind, until)
			if err != nil {
				return asHarness(err)
			}
			k.Confirmation = &found
		}
	}
	if o.noted() {
		if err := history.WriteFile(filepath.Join(o.out, campaign.SearchFile), s.Write); err != nil {
			return asHarness(err)
		}
	}
	if o.asJSON {
		err = a.json(s)
	} else {
		a.printSimulation(s, o)
	}
	return errors.Join(err, o.verdict(searched(s)))
}

// noted reports whether the search is one of a campaign, which has a journal.
func (o *simulateOptions) noted() bool { return o.shard != "" || o.resume }

// random plays the cases of a random search; of a campaign, those that its journal does not have.
func (o *simulateOptions) random(cmd *cobra.Command, s *simulation.Search, play simulation.Player) error {
	var jobs []simulation.Numbered
	for i, seed := range fleet.Part(o.part, o.all) {
		jobs = append(jobs, simulation.Numbered{Job: simulation.Job{Lock: o.lock.Name, Campaign: o.Campaign, Seed: seed, Again: o.again}, Order: i})
	}
	s.Of = len(jobs)
	if !o.noted() {
		return play(jobs, func(simulation.Numbered, simulation.Result) error { return nil })
	}
	if err := o.makeDir(); err != nil {
		return err
	}
	j, err := o.open(fleet.Header{Command: "lockchaos simulate" + changedFlags(cmd), Seeds: o.seeds, Same: true}, o.lock.Name)
	if err != nil {
		return err
	}
	defer j.Close()
	return campaign.Resume(s, j, jobs, play)
}

// shrinkSimulation makes the first case of a violation small, and writes its run.
func (a *app) shrinkSimulation(ctx context.Context, o *simulateOptions, pool *simulation.Pool, k *simulation.Kind, first bool) (simulation.Result, error) {
	r, err := pool.Do(ctx, simulation.Job{Lock: o.lock.Name, Case: &k.First, Seed: k.Seed, Shrink: k.Kind, Budget: o.shrink, Again: 2, Keep: true})
	if err != nil {
		return r, asHarness(err)
	}
	k.Runs, k.Same = r.Runs, r.Same == 2
	for _, f := range r.Case.Plan {
		k.Plan = append(k.Plan, f.String())
	}
	out := ""
	if o.noted() {
		out = filepath.Join(o.out, k.Kind)
		err = os.RemoveAll(out) // which a process left that was killed
	} else if first {
		out = o.out
	}
	if err != nil {
		return r, harnessError{fmt.Errorf("make run directory: %w", err)}
	}
	k.Dir, err = a.writeSimulation(out, o.lock, r)
	return r, err
}

// writeSimulation writes a run directory.
func (a *app) writeSimulation(out string, l harness.LockSpec, r simulation.Result) (string, error) {
	dir, err := newRunDir(out, "simulated", r.Case.Topology, l.Name, fmt.Sprint(r.Case.Seed))
	if err != nil {
		return "", err
	}
	if err := r.Case.Write(history.Dir(dir), l, *r.Outcome, version(), replayOf(dir)); err != nil {
		return "", harnessError{err}
	}
	_, err = judge.Run(context.Background(), dir)
	return dir, asHarness(errors.Join(err, pointLatest(dir)))
}

// replayOf is the command that replays the run in a directory.
func replayOf(dir string) string { return "lockchaos simulate --replay " + quoted(dir) }

func (a *app) printSimulation(s *simulation.Search, o *simulateOptions) {
	a.printKinds(s)
	if c := s.Sweep; c != nil {
		a.printf("swept: %d of %d single faults, %d of %d pairs · %d shapes of runs\n", c.Singles, c.AllSingles, c.Pairs, c.AllPairs, c.Shapes)
	}
	if o.again > 0 {
		a.printf("%d of %d repetitions were the same run · %s build\n", s.Same, s.Repeated, buildName(s.Exact))
	}
	if len(s.Kinds) > 0 && !o.confirm {
		a.printf("simulated, and not confirmed on real servers\n")
	}
}

// printKinds prints what a search found.
func (a *app) printKinds(s *simulation.Search) {
	for _, k := range s.Kinds {
		a.printf("%s: %d of %d cases, first seed %d\n", k.Kind, k.Cases, s.Cases, k.Seed)
		if k.Dir == "" {
			a.printf("  the shard that found it was ended before it made the plan small: start it again with --resume\n")
			continue
		}
		a.printf("  %d faults made %d in %d runs; replayed identically: %s\n", k.Faults, len(k.Plan), k.Runs, yesNo(k.Same))
		for _, f := range k.Plan {
			a.printf("    %s\n", f)
		}
		for _, c := range k.Causes {
			a.printf("  %s\n", c.Text)
		}
		a.printf("  %s\n", k.Dir)
		if k.Confirmation != nil {
			a.printf("  %s\n", confirmed(k.Dir, k.Confirmation))
		}
	}
	took := ""
	if s.Seconds > 0 {
		took = fmt.Sprintf(" · %.1f s", s.Seconds)
	}
	a.printf("simulated %s · %s · %s: %d cases, %d invalid · %d faults, %d messages%s\n",
		s.Topology, s.Lock, s.Search, s.Cases, s.Convicts, s.Faults, s.Messages, took)
	if s.Granted == 0 {
		a.printf("nothing is known: no client was granted the lock (a request ended with: %s)\n", s.Denied)
	}
}

// buildName says which build of lockchaos this is.
func buildName(exact bool) string {
	if exact {
		return "exact"
	}
	return "plain"
}

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}

// searched is the answer of a search.
func searched(s *simulation.Search) error {
	if s.Exact && s.Same < s.Repeated {
		return harnessError{fmt.Errorf("%d repetitions were another run, which the exact build rules out", s.Repeated-s.Same)}
	}
	return answer(s.Convicts > 0, s.Granted == 0)
}

// replaySimulation runs the case of a record again.
func (a *app) replaySimulation(cmd *cobra.Command, o *simulateOptions) error {
	if err := onlyBesideReplay(cmd, "replay", "again", "out", "json", "confirm", "confirm-limit", "verbose", "help"); err != nil {
		return err
	}
	run, err := readRunFile(o.replay)
	if err != nil {
		return fmt.Errorf("--replay: %w", err)
	}
	record, err := simulation.RecordOf(run)
	if err == nil {
		if o.lock, err = a.locks.ByName(record.Case.Lock); err == nil {
			err = record.Case.Validate(o.lock)
		}
	}
	if err != nil {
		return fmt.Errorf("--replay %s: %w", o.replay, err)
	}
	pool, err := newSimulationPool(1)
	if err != nil {
		return err
	}
	defer pool.Close()
	r, err := pool.Do(cmd.Context(), simulation.Job{Lock: o.lock.Name, Case: &record.Case, Seed: record.Case.Seed, Again: o.again, Keep: true})
	if err != nil {
		return asHarness(err)
	}
	dir, err := a.writeSimulation(o.out, o.lock, r)
	if err != nil {
		return err
	}
	build := buildName(simulation.Exact())
	fmt.Fprintf(a.stderr, "replayed identically: %s (history %s, recorded %s)\n", yesNo(r.Hash == record.Hash), r.Hash, record.Hash)
	if run.Program != version() {
		fmt.Fprintf(a.stderr, "recorded by %s, and replayed by %s: what a lock does may have changed\n", run.Program, version())
	}
	if record.Exact != simulation.Exact() {
		fmt.Fprintf(a.stderr, "recorded by the %s build, and replayed by the %s one, which are two different runs: see docs/simulation.md\n", buildName(record.Exact), build)
	}
	if o.again > 0 {
		fmt.Fprintf(a.stderr, "%d of %d repetitions were the same run · %s build\n", r.Same, o.again, build)
	}
	if o.confirm && len(r.Findings) > 0 { // the record is of one
		found, err := a.confirm(cmd.Context(), dir, o.lock, r, r.Findings[0], time.Now().Add(o.limit))
		if err != nil {
			return asHarness(err)
		}
		fmt.Fprintf(a.stderr, "%s: %s\n", r.Findings[0], confirmed(dir, &found))
	}
	return a.conclude(dir, o.asJSON)
}

// confirm plays a simulated run on real servers.
func (a *app) confirm(ctx context.Context, dir string, l harness.LockSpec, r simulation.Result, kind string, until time.Time) (history.Confirmation, error) {
	again := func(file string) string { return "lockchaos reproduce " + quoted(file) }
	return a.player(&serverFlags{backend: processBackend}).Confirm(ctx, dir, l, r, kind, until, again)
}

// confirmed says in a line what came of a confirmation.
func confirmed(dir string, c *history.Confirmation) string {
	switch {
	case c.Confirmed:
		return fmt.Sprintf("confirmed on real servers in attempt %d: lockchaos reproduce %s", c.Attempts, quoted(filepath.Join(dir, c.Scenario)))
	case c.Attempts == 0:
		return "simulated only: " + c.Why
	default:
		return fmt.Sprintf("simulated only: %d attempts on real servers did not show it (the last: %s)", c.Attempts, cmp.Or(c.Why, "no violation"))
	}
}
