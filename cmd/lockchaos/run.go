package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lockchaos/lockchaos/campaign"
	"github.com/lockchaos/lockchaos/fleet"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/locks"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/judge"
	"github.com/lockchaos/lockchaos/reports"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/attach"
)

func (a *app) runCommand() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Drive a lock under a random, seeded plan of faults, and judge the history",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.complete(cmd, a.locks); err != nil {
				return err
			}
			end, err := o.await(cmd.Context(), a)
			if err != nil {
				return err
			}
			defer end()
			if o.seeds != "" {
				return a.runSeeds(cmd, &o)
			}
			return a.runOnce(cmd, &o)
		},
	}
	o.register(cmd)
	return cmd
}

// runOptions are what a user can say of random runs.
type runOptions struct {
	harness.RandomRun

	lock      string // its name
	servers   serverFlags
	seed      uint64
	replay    string
	allowExec bool
	asJSON    bool
	control   bool
	causes    bool

	division
	workers

	keep bool
}

// complete fills in what was not said, and joins everything that is wrong.
func (o *runOptions) complete(cmd *cobra.Command, known harness.Locks) error {
	if o.replay != "" { // first of all: the backend, which other flags must suit, is in the record
		if err := o.readReplay(cmd, known); err != nil {
			return err
		}
	}
	wrong := errors.Join(aboveZero(cmd, "clients", "locks", "hold", "think", "watchdog", "permits"), o.servers.validate(cmd), o.checkSeeds(cmd), o.checkWorkers(cmd))
	if o.servers.backend == attachBackend {
		wrong = errors.Join(wrong, attach.CheckOptions(o.Servers), refuse(o.causes, "--causes: only servers of ours are played again"))
	}
	if o.replay != "" {
		return wrong
	}
	var unknown error
	named := lockNamed
	if o.listen != "" {
		named = remoteLock
	}
	if o.Lock, unknown = named(cmd.Context(), cmd.ErrOrStderr(), known, cmp.Or(o.lock, locks.Default(o.Topology))); unknown != nil {
		return errors.Join(wrong, unknown)
	}
	if !cmd.Flags().Changed("topology") {
		o.Topology = cmp.Or(homeOf(o.Lock, o.Topology), o.Topology)
	}
	if !cmd.Flags().Changed("wait") {
		o.Workload.Wait = o.Wait()
	}
	if wrong = errors.Join(wrong, o.Validate()); wrong != nil || !o.control {
		return wrong
	}
	_, err := o.controlRun(known, history.Run{})
	return err
}

// run is the run of a seed, which a command makes again.
func (o *runOptions) run(a *app, seed uint64, dir, title, command string) campaign.Run {
	r := campaign.Run{
		Config: harness.Config{Dir: dir, Seed: seed, Command: command, Workers: o.joined},
		Make:   o.Run, Store: topologies.StoreOf(o.Topology), Title: title, DropValid: o.seeds != "" && !o.keep,
	}
	if o.control {
		r.Control = func(run history.Run, dir string) (campaign.Control, error) {
			with, err := o.controlRun(a.locks, run)
			return campaign.Control{Lock: with.Lock.Name, Command: "lockchaos run --replay " + quoted(dir), Make: with.Run}, err
		}
	}
	return r
}

// runOnce runs one seed, and shows its report.
func (a *app) runOnce(cmd *cobra.Command, o *runOptions) error {
	ctx, before := cmd.Context(), campaign.Exists(o.out)
	dir, err := newRunDir(o.out, o.Topology, o.Lock.Name, fmt.Sprint(o.seed))
	if err != nil {
		return err
	}
	title, again := fmt.Sprintf("seed %d", o.seed), "lockchaos run"+o.again(cmd, o.seed)
	fmt.Fprintf(a.stderr, "%s · %s\n", title, again)
	progress := newProgress(a.stderr)
	r := o.run(a, o.seed, dir, title, again)
	r.Before, r.Progress = before, progress.run(fmt.Sprintf("%s · %s · %s", o.Topology, o.Lock.Name, title))
	r.Notice = func(what string) {
		progress.end()
		fmt.Fprintln(a.stderr, what)
	}
	played, err := a.player(&o.servers).Play(ctx, r)
	progress.end()
	if played.History == nil {
		return asHarness(err)
	}
	if err = errors.Join(err, played.Failed); err == nil && o.causes && ctx.Err() == nil {
		err = a.measureCauses(ctx, dir, &played.Input, o.RandomRun, &o.servers)
	}
	verdict := a.finish(played.Input, dir, o.asJSON)
	if !o.asJSON {
		tried := map[string]int{}
		for _, name := range harness.Tried(played.Run, played.History) {
			tried[name]++
		}
		_, line, wrong := o.untried(tried)
		a.printf("%s", line)
		err = errors.Join(err, wrong)
	}
	return worst(verdict, asHarness(errors.Join(err, pointLatest(dir))))
}

// controlRun is the run with the control lock.
func (o *runOptions) controlRun(known harness.Locks, run history.Run) (harness.RandomRun, error) {
	l, err := locks.ControlFor(known, o.Topology, func(l harness.LockSpec) error {
		_, unsuited := o.Control(run, l)
		return unsuited
	})
	if err != nil {
		return harness.RandomRun{}, err
	}
	r, err := o.Control(run, l)
	if err != nil {
		return r, fmt.Errorf("--control: %w", err)
	}
	return r, nil
}

func (o *runOptions) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.Topology, "topology", topologies.Single, "the servers that store the lock (lockchaos list topologies); unless it is said, the first that the lock can be on")
	f.IntVar(&o.Servers.Nodes, "nodes", 0, "independent: number of servers, odd (default 5); etcd, zookeeper: of members, 3 or 5 (default 3)")
	f.StringVar(&o.Servers.Persistence, "persistence", "", "what a killed server keeps of its data: none, or an append-only file with fsync no, everysec or always (default none)")
	f.IntVar(&o.Servers.MinReplicas, "min-replicas", 0, "min-replicas-to-write of the masters")
	f.StringVar(&o.Servers.Access, "access", "", "single, sentinel: how clients find the master: direct, or name, an address that moves with the master role (single then has two replicas) (default direct)")
	f.DurationVar(&o.Servers.NodeTimeout, "node-timeout", 0, "cluster: the silence after which a node is suspected (default 200ms)")
	o.servers.register(f)
	f.StringVar(&o.lock, "lock", "", "the lock under test (lockchaos list locks), or exec:COMMAND, a driver of a lock of your own (default mutex, on independent servers redlock, on etcd etcd-mutex, on zookeeper zookeeper-lock)")
	f.StringVar(&o.Kind, "workload", "", "what the clients do (lockchaos list workloads); of a comma list each client picks one at random per iteration (default: the workload made for the lock; for a driver of a mutex "+harness.ProgramWorkload+")")
	f.StringVar(&o.Resource.Kind, "resource", harness.ResourceRegister, "what the locks protect: register or ledger, both in memory, or redis, on a server of its own")
	f.BoolVar(&o.Resource.Fencing, "fencing", false, "the resource refuses stale fencing tokens (mutex-fenced)")
	f.StringVar(&o.Faults, "faults", "", "the faults to draw from: none, safe (those that a correct lock survives here), all, or a comma list of the mixes network, process, redis, failover, cluster, client, clock, disk and of names of faults (default: network, on sentinel and cluster with failover, and for a driver with client)")
	f.DurationVar(&o.Length, "duration", 40*time.Second, "how long the clients work")
	f.Uint64Var(&o.seed, "seed", 1, "fixes the plan of faults and the choices of the clients, but not how processes interleave")
	f.IntVar(&o.Options.ReplicaAcks, "replica-acks", 0, "number of replicas that must acknowledge a grant (lockchaos' own locks but redlock)")
	f.DurationVar(&o.Options.Watchdog, "watchdog", 2*time.Second, "the lease that the watchdog of the lock renews")
	f.IntVar(&o.Workload.Clients, "clients", 8, "number of clients, spread over two zones")
	f.IntVar(&o.Workload.Locks, "locks", 0, "number of locks that the clients contend for (default what the workload needs)")
	f.DurationVar(&o.Workload.Hold, "hold", 20*time.Millisecond, "mean time of a hold; one hold in twenty is twenty times as long")
	f.DurationVar(&o.Workload.Think, "think", 20*time.Millisecond, "mean time between a release and the next attempt (closed loop)")
	f.DurationVar(&o.Workload.Lease, "lease", 0, "the lease that clients ask for; 0: what the workload needs, else the lock's watchdog")
	f.DurationVar(&o.Workload.Wait, "wait", 0, "how long a client waits for a lock (default what the workload needs)")
	f.IntVar(&o.Workload.Permits, "permits", 3, "number of permits of a semaphore")
	f.Float64Var(&o.Workload.Rate, "rate", 0, "open loop: attempts that begin per second, of all clients together; 0: closed loop")
	f.BoolVar(&o.Workload.Careless, "careless", false, "clients continue to use the resource after they were notified that the lock is lost")
	f.BoolVar(&o.allowExec, "allow-exec", false, "with --replay: run the command that the record names as its lock (exec:COMMAND)")
	f.StringVar(&o.replay, "replay", "", "a run directory, or its run.json: repeat this run with its seed and its recorded plan of faults")
	f.BoolVar(&o.control, "control", false, "if the run is invalid, repeat its plan with the least lock that is correct on these servers (correct-key, redlock), to tell a defect of the lock from a limit of the servers")
	f.BoolVar(&o.causes, "causes", false, "if the run is invalid, measure what made its violations, as lockchaos causes does; how long that takes is said first")
	f.StringVar(&o.seeds, "seeds", "", "one run for each of these seeds, such as 1-200 or 3,7,20-29; valid runs leave no run directory")
	f.IntVar(&o.parallel, "parallel", 1, "with --seeds: number of runs at a time, each on its own servers")
	o.division.register(cmd)
	f.StringVar(&o.listen, "listen", "", "HOST:PORT where a worker on another machine joins for each zone of clients (lockchaos worker): the lock is used there")
	f.StringVar(&o.key, "key", "", "with --listen: a file with 32 bytes at least that no stranger knows, which the workers have as well")
	f.BoolVar(&o.keep, "keep", false, "with --seeds: also keep the run directories of valid runs")
	f.StringVar(&o.out, "out", "", "the run directory (default reports/runs/TIME-TOPOLOGY-LOCK-SEED); with --seeds the folder for the run directories")
	f.BoolVar(&o.asJSON, "json", false, "print results.json instead of the summary; with --seeds the counts and the runs that were not valid")
}

// asHarness marks an error that came while a run was under way.
func asHarness(err error) error {
	if err == nil {
		return nil
	}
	return harnessError{err}
}

// conclude judges a run again, writes its reports and prints the summary.
func (a *app) conclude(dir string, asJSON bool) error {
	in, err := judge.Run(context.Background(), dir) // also after Ctrl-C
	if err != nil {
		return asHarness(err) // the record is our own
	}
	return a.finish(in, dir, asJSON)
}

// finish prints the summary of a run, whose verdict is the answer.
func (a *app) finish(in reports.Input, dir string, asJSON bool) error {
	if err := a.print(reports.Summarize(in), dir, asJSON); err != nil {
		return err
	}
	return verdictExit(in.Report.Verdict)
}

// print prints the summary of a run whose reports are in a folder, or of a history that has none, or its JSON.
func (a *app) print(r reports.Results, dir string, asJSON bool) error {
	if asJSON {
		return asHarness(reports.WriteJSON(a.stdout, r))
	}
	width, coloured := onTerminal(a.stdout)
	coloured = coloured && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	return asHarness(reports.WriteText(a.stdout, r, reports.TextOptions{Color: coloured, Width: width, Dir: say.OneLine(dir)}))
}

// besideReplay are the flags that mean something beside --replay: where the
// servers are, and where the output goes.
var besideReplay = append([]string{ //nolint:gochecknoglobals // a constant
	"replay", "allow-exec", "backend", "image", "out", "json", "verbose", "help",
}, attachFlags...)

// onlyBesideReplay refuses flags other than those that mean something beside --replay.
func onlyBesideReplay(cmd *cobra.Command, allowed ...string) error {
	var others []string
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if !slices.Contains(allowed, f.Name) {
			others = append(others, "--"+f.Name)
		}
	})
	if slices.Sort(others); len(others) > 0 {
		return fmt.Errorf("--replay runs what is in the record: leave out %s", strings.Join(others, ", "))
	}
	return nil
}

// readReplay takes the run from a record, all but the backend if the user named
// one.
func (o *runOptions) readReplay(cmd *cobra.Command, locks harness.Locks) error {
	if err := onlyBesideReplay(cmd, besideReplay...); err != nil {
		return err
	}
	run, err := readRunFile(o.replay)
	if err != nil {
		return fmt.Errorf("--replay: %w", err)
	}
	if o.RandomRun, err = harness.Replay(run, locks, o.allowExec); err != nil {
		return fmt.Errorf("--replay %s: %w", o.replay, err)
	}
	o.seed = run.Seed
	named := slices.ContainsFunc(attachFlags, func(name string) bool { return cmd.Flag(name).Changed })
	switch {
	case o.servers.backend != autoBackend, named, !slices.Contains(backendNames(), run.Backend):
	case run.Backend == attachBackend:
		return fmt.Errorf("--replay %s: its servers were attached to: say which ones now, by --endpoints or --compose, or --backend process", o.replay)
	default:
		o.servers.backend = run.Backend
	}
	return nil
}

// readRunFile reads the record of a run, of which the folder or the file is named.
func readRunFile(path string) (history.Run, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return history.Dir(path).Run()
	}
	return history.ReadRunFile(path)
}

// checkSeeds joins what is wrong with the flags for many runs.
func (o *runOptions) checkSeeds(cmd *cobra.Command) error {
	var wrong error
	for _, name := range []string{"parallel", "keep", "shard", "resume", "judged-is-ok"} {
		wrong = errors.Join(wrong, refuse(o.seeds == "" && cmd.Flag(name).Changed, "--%s: with --seeds only", name))
	}
	if o.seeds == "" {
		return wrong
	}
	return errors.Join(o.check(),
		refuse(o.causes, "--causes is for one run: leave out --seeds, and call lockchaos causes with the directory of a run"),
		refuse(cmd.Flag("seed").Changed, "--seed and --seeds: say one of them"),
		refuse(o.servers.backend == attachBackend && o.parallel > 1, "--parallel: a deployment that runs already has one run at a time"))
}

// again are the flags that run a seed again.
func (o *runOptions) again(cmd *cobra.Command, seed uint64) string {
	if o.replay != "" {
		return flagsWithSeed(cmd, "")
	}
	return flagsWithSeed(cmd, strconv.FormatUint(seed, 10))
}

// campaign makes those jobs of a part of a campaign that its folder does not have yet, and has all of them told of.
func (a *app) campaign(ctx context.Context, d *division, s *serverFlags, h fleet.Header, locks []string, jobs []campaign.Job, tell func(*campaign.Summary) error) error {
	journal, err := d.open(h, locks...)
	if err != nil {
		return err
	}
	defer journal.Close()
	made, failed := a.player(s).PlayAll(ctx, d.out, d.before, journal, d.parallel, jobs)
	failed = asHarness(failed)
	if made == nil {
		return failed
	}
	if err := tell(made); err != nil {
		return asHarness(err)
	}
	return worst(d.verdict(verdictOf(made)), worst(failed, context.Cause(ctx)))
}

// verdictOf is the worst of the verdicts.
func verdictOf(s *campaign.Summary) error { return answer(s.Invalid > 0, s.Unknown > 0) }

// runSeeds runs many seeds, and prints how many were valid.
func (a *app) runSeeds(cmd *cobra.Command, o *runOptions) error {
	if err := o.makeDir(o.Topology, o.Lock.Name, "seeds", fmt.Sprint(o.all[0])); err != nil {
		return err
	}
	var jobs []campaign.Job
	for _, seed := range fleet.Part(o.part, o.all) {
		dir := filepath.Join(o.out, fmt.Sprintf("seed-%d", seed))
		jobs = append(jobs, campaign.Job{ID: fleet.Job("", seed), Run: o.run(a, seed, dir, fmt.Sprintf("seed %d", seed), "lockchaos run"+o.again(cmd, seed))})
	}
	h := fleet.Header{Command: "lockchaos run" + flagsWithSeed(cmd, ""), Seeds: o.seeds}
	return a.campaign(cmd.Context(), &o.division, &o.servers, h, []string{o.Lock.Name}, jobs, func(s *campaign.Summary) error {
		s.Topology, s.Lock = o.Topology, o.Lock.Name
		not, line, err := o.untried(s.Tried)
		switch s.NotTried = not; {
		case err != nil:
			return err
		case o.asJSON:
			return a.json(s)
		}
		a.printSeeds(s)
		a.printf("%srun directories in %s\n", line, o.out)
		return nil
	})
}

func (a *app) printSeeds(s *campaign.Summary) {
	for _, r := range s.NotValid {
		a.printf("seed %d is %s: %s\n  %s\n  again: %s\n", r.Seed, r.Verdict, r.Headline, r.Dir, r.Command)
		if r.Control != nil {
			a.printf("  control: %s was %s\n", r.Control.Lock, r.Control.Verdict)
		}
	}
	a.printf("%s · %s · seeds %s: %d valid, %d unknown, %d invalid\n", s.Topology, s.Lock, s.Seeds, s.Valid, s.Unknown, s.Invalid)
	if done := s.Valid + s.Unknown + s.Invalid; done < s.Planned {
		a.printf("interrupted: %d of %d planned seeds were played\n", done, s.Planned)
	}
	a.printf("faults that took effect: %s\n", counted(s.Landed))
	if len(s.Failed) > 0 {
		a.printf("faults that did not: %s\n", counted(s.Failed))
	}
}

// untried are the faults of one message that plans of the run may have and that none of its runs had, and a line on them;
// empty where there is nothing to try.
func (o *runOptions) untried(tried map[string]int) (not []string, line string, err error) {
	if o.replay == "" { // else it has the plan that it has
		not, err = o.Tries()
		not = slices.DeleteFunc(not, func(name string) bool { return tried[name] > 0 })
	}
	if err != nil || len(tried)+len(not) == 0 {
		return not, "", err
	}
	line = fmt.Sprintf("faults of one request: %d of %d tried", len(tried), len(tried)+len(not))
	if len(not) > 0 {
		line += "; not tried yet: " + firstOf(not, 6, "; ")
	}
	return not, line + "\n", nil
}

// counted is "cut 3, hold 2".
func counted(counts map[string]int) string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		words = append(words, fmt.Sprintf("%s %d", name, counts[name]))
	}
	return cmp.Or(strings.Join(words, ", "), "none")
}
