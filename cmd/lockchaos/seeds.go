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
	"sync"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/fleet"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/reports"
	"github.com/lockchaos/lockchaos/topologies"
)

// batch does jobs, several at a time, in their order as far as they begin one by one. The first error ends it: no further job begins, and the
// context of those under way ends. It waits for all and returns the most severe of the errors; that ctx ended is none.
func batch[J any](ctx context.Context, workers int, jobs []J, do func(context.Context, J) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	errs := make([]error, len(jobs))
	for i, job := range jobs {
		group.Go(func() error {
			if ctx.Err() == nil {
				errs[i] = do(ctx, job)
			}
			return errs[i]
		})
	}
	_ = group.Wait() // which has the first of them
	var severest error
	for _, err := range errs {
		severest = worst(severest, err)
	}
	return severest
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
	return errors.Join(o.check(o.out),
		refuse(o.causes, "--causes is for one run: leave out --seeds, and call lockchaos causes with the directory of a run"),
		refuse(cmd.Flag("seed").Changed, "--seed and --seeds: say one of them"),
		refuse(o.parallel < 0, "--parallel must be at least 1, not %d", o.parallel),
		refuse(o.servers.backend == attachBackend && o.parallel > 1, "--parallel: a deployment that runs already has one run at a time"))
}

// again are the flags that run one of the seeds again.
func (o *runOptions) again(cmd *cobra.Command, seed uint64) string {
	switch {
	case o.replay != "":
		return flagsWithSeed(cmd, "")
	case o.seeds != "":
		return flagsWithSeed(cmd, strconv.FormatUint(seed, 10))
	default:
		return changedFlags(cmd)
	}
}

// A seedResult is what came of one seed.
type seedResult struct {
	Seed    uint64          `json:"seed"`
	Verdict checker.Verdict `json:"verdict"`
	// Found says in a sentence why it is not valid.
	Found string `json:"found,omitempty"`
	// Dir is its run directory; empty if that was removed.
	Dir     string `json:"dir,omitempty"`
	Command string `json:"command"`
	// First says why a run of the seed before was unknown; empty: there was none.
	First string `json:"first_unknown,omitempty"`
	// Tried are the faults of one message that took effect: see [harness.Tried].
	Tried []string `json:"tried,omitempty"`
	// Control is what came of the same seed with the control lock; nil: it was not run.
	Control *history.Control `json:"control,omitempty"`
	// Mix are the faults that were asked for; Landed counts those that were of effect, and Failed those that were not.
	Mix    string         `json:"mix,omitempty"`
	Landed map[string]int `json:"faults_landed,omitempty"`
	Failed map[string]int `json:"faults_failed,omitempty"`
	// Results are for the joint files.
	Results *reports.Results `json:"results,omitempty"`

	// Cell is what a matrix tells of it.
	Cell *reports.MatrixRun `json:"cell,omitempty"`

	leftOut []string // faults that were asked for, and that could not be here
	failure error    // of the harness
}

// A seedSummary is what came of many seeds.
type seedSummary struct {
	Topology string `json:"topology"`
	Lock     string `json:"lock"`
	Seeds    string `json:"seeds"`
	Valid    int    `json:"valid"`
	Unknown  int    `json:"unknown"`
	Invalid  int    `json:"invalid"`
	// Planned is how many seeds there were to be: with fewer runs they were interrupted.
	Planned int `json:"planned"`
	// Landed and Failed count the faults of all runs: those that were of effect,
	// and those that were not.
	Landed map[string]int `json:"faults_landed"`
	Failed map[string]int `json:"faults_failed"`
	// Tried counts faults of one message that took effect, by the request that they met, and
	// NotTried are those that no run has had yet.
	Tried    map[string]int `json:"tried,omitempty"`
	NotTried []string       `json:"not_tried,omitempty"`
	// Runs are those that are not valid.
	Runs []seedResult `json:"not_valid"`

	joint []reports.JointRun // of all runs
}

func newSummary(planned int) seedSummary {
	return seedSummary{Planned: planned, Landed: map[string]int{}, Failed: map[string]int{}, Tried: map[string]int{}, Runs: []seedResult{}}
}

// A seedJob is a run of a campaign.
type seedJob struct {
	*runOptions

	seed               uint64
	name, dir, command string // the command makes it again
	cell               *reports.MatrixCell
}

// job is its name in a journal.
func (j seedJob) job() string {
	if j.cell == nil {
		return fleet.Job("", j.seed)
	}
	return fleet.Job(fleet.CellName(*j.cell), j.seed)
}

// A campaign makes many random runs, several at a time. Their servers go on to the next run if they are as good as new.
type campaign struct {
	*app
	seedSummary

	journal  *fleet.Journal
	file     *os.File // of its log
	mu       sync.Mutex
	servers  map[string]openedServers // by their store
	failures error                    // of the harness, in runs that are judged all the same
}

type openedServers struct {
	topologies.Backend

	name  string
	close func() error
}

// campaign makes those runs of a part of a campaign that its folder does not have yet, and has them told of.
func (a *app) campaign(ctx context.Context, d *division, out string, before bool, parallel int, h fleet.Header, locks []string, jobs []seedJob, tell func(*campaign) error) error {
	journal, err := d.open(out, h, locks...)
	if err != nil {
		return err
	}
	defer journal.Close()
	c := &campaign{app: a, seedSummary: newSummary(len(jobs)), journal: journal, servers: map[string]openedServers{}}
	if c.file, err = createLog(out); err != nil {
		return err
	}
	left, err := c.unplayed(out, jobs)
	if err != nil {
		return err
	}
	failure := c.play(ctx, parallel, left)
	if failure != nil && c.failures == nil && c.done() == 0 {
		return errors.Join(failure, journal.Discard(), removeEmpty(out, before))
	}
	c.sort()
	if err := tell(c); err != nil {
		return err
	}
	return worst(d.verdict(c.exit()), worst(c.failures, cmp.Or(failure, context.Cause(ctx))))
}

// unplayed are the jobs that the journal does not have. It counts the others.
func (c *campaign) unplayed(out string, jobs []seedJob) ([]seedJob, error) {
	left, err := fleet.Left(c.journal, jobs, seedJob.job, func(j seedJob, line fleet.Run) error {
		r, err := noted(line, out, line.Dir)
		if err == nil {
			c.count(j, r)
		}
		return err
	})
	for _, j := range left {
		if err == nil && exists(j.dir) { // of a process that was killed, or of a run that failed
			_, err = aside(j.dir, "unfinished")
		}
	}
	return left, err
}

// count adds a run, and to its cell if it has one.
func (c *campaign) count(j seedJob, r seedResult) {
	c.add(r)
	if j.cell != nil && r.Cell != nil {
		j.cell.Add(*r.Cell)
	}
}

// play makes the runs, and notes each.
func (c *campaign) play(ctx context.Context, parallel int, jobs []seedJob) (err error) {
	defer func() {
		for _, s := range c.servers {
			err = worst(err, asHarness(s.close()))
		}
		err = worst(err, asHarness(c.file.Close()))
	}()
	return batch(ctx, parallel, jobs, func(ctx context.Context, j seedJob) error {
		r, err := c.runSeedTwice(ctx, j)
		if err != nil {
			return worst(r.failure, err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.failures = worst(c.failures, r.failure)
		if ctx.Err() != nil { // it was cut short, and counts for nothing but its failure
			return nil
		}
		c.count(j, r)
		landed := 0
		for _, n := range r.Landed {
			landed += n
		}
		fmt.Fprintf(c.stderr, "%d of %d · %s %s · %s took effect", c.done(), c.Planned, j.name, r.Verdict, say.Count(landed, "fault"))
		if r.Found != "" {
			fmt.Fprintf(c.stderr, " · %s · %s", r.Found, r.Dir)
		}
		fmt.Fprintln(c.stderr)
		if r.failure != nil {
			return nil // it is made when the campaign is resumed
		}
		r.Dir = base(r.Dir)
		return noteJob(c.journal, fleet.Run{Job: j.job(), LeftOut: r.leftOut, Dir: r.Dir}, r)
	})
}

// open opens the servers of a run, once for all runs with the same store.
func (c *campaign) open(ctx context.Context, o *runOptions) (openedServers, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	store := topologies.StoreOf(o.Topology)
	if s, ok := c.servers[store]; ok {
		return s, nil
	}
	backend, name, err := c.openServers(ctx, &o.servers, c.log(c.file), store)
	s := openedServers{backend, name, func() error { return nil }}
	if err != nil {
		return s, err
	}
	if name != attachBackend {
		s.Backend, s.close = harness.Pool(backend)
	}
	c.servers[store] = s
	return s, nil
}

// runSeeds runs many seeds, and prints how many were valid.
func (a *app) runSeeds(cmd *cobra.Command, o *runOptions) error {
	before := exists(o.out)
	out, err := o.dir(o.out, o.Topology, o.Lock.Name, "seeds", fmt.Sprint(o.all[0]))
	if err != nil {
		return err
	}
	var jobs []seedJob
	for _, seed := range fleet.Part(o.part, o.all) {
		jobs = append(jobs, seedJob{runOptions: o, seed: seed, name: fmt.Sprintf("seed %d", seed), dir: filepath.Join(out, fmt.Sprintf("seed-%d", seed)), command: "lockchaos run" + o.again(cmd, seed)})
	}
	h := fleet.Header{Command: "lockchaos run" + flagsWithSeed(cmd, ""), Seeds: o.seeds}
	return a.campaign(cmd.Context(), &o.division, out, before, o.parallel, h, []string{o.Lock.Name}, jobs, func(c *campaign) error {
		c.Topology, c.Lock, c.Seeds = o.Topology, o.Lock.Name, o.seeds
		line := ""
		err := reports.WriteJoint(out, c.joint, c.Planned)
		if err == nil {
			c.NotTried, line, err = o.untried(c.Tried)
		}
		switch {
		case err != nil:
			return asHarness(err)
		case o.asJSON:
			return a.json(c.seedSummary)
		}
		a.printSeeds(c.seedSummary)
		a.printf("%srun directories in %s\n", line, out)
		return nil
	})
}

// runSeedTwice makes one run, and makes it again if it is unknown: how far its faults and its clients came may be chance.
// The directory of the first stays.
func (c *campaign) runSeedTwice(ctx context.Context, j seedJob) (seedResult, error) {
	r, err := c.runSeed(ctx, j)
	if err != nil || r.failure != nil || r.Verdict != checker.Unknown || ctx.Err() != nil {
		return r, err
	}
	first, err := aside(j.dir, "unknown")
	if err != nil {
		return r, err
	}
	fmt.Fprintf(c.stderr, "%s unknown · %s · %s; once more\n", j.name, r.Found, first)
	again, err := c.runSeed(ctx, j)
	again.First = r.Found
	return again, err
}

// runSeed makes one run.
func (c *campaign) runSeed(ctx context.Context, j seedJob) (seedResult, error) {
	s := seedResult{Seed: j.seed, Command: j.command, Landed: map[string]int{}, Failed: map[string]int{}}
	servers, err := c.open(ctx, j.runOptions)
	if err != nil {
		return s, err
	}
	p := play{name: j.name, run: j.Run, drop: !j.keep, Config: harness.Config{
		Dir: j.dir, Seed: j.seed, Command: j.command, Workers: j.remote(), Backend: servers.Backend, BackendName: servers.name,
	}}
	if j.control {
		p.control = j.controlled(c.locks, j.dir)
	}
	r, err := c.app.play(ctx, p)
	if r.failed != nil {
		s.failure = harnessError{fmt.Errorf("seed %d: %w", j.seed, r.failed)} // other seeds may have more luck
		s.Found = s.failure.Error()
	}
	if err != nil {
		return s, harnessError{fmt.Errorf("seed %d: %w", j.seed, err)}
	}
	results := reports.Summarize(r.in)
	s.tell(r.in, results)
	s.Dir, s.Mix, s.leftOut, s.Control = r.dir, r.in.Run.Faults, r.in.Run.SkippedFaults, r.in.Run.Control
	if j.cell != nil {
		cell := reports.NewMatrixRun(r.in, base(r.dir))
		s.Cell = &cell
	}
	s.Results = &results
	return s, nil
}

// tell takes from a judged run what is told of it.
func (s *seedResult) tell(in reports.Input, results reports.Results) {
	s.Verdict, s.Tried = in.Report.Verdict, harness.Tried(in.Run, in.History)
	var violated []string
	for _, r := range in.Report.Results {
		switch {
		case s.Found != "" || r.Verdict != s.Verdict || r.Verdict == checker.Valid:
		case r.Verdict == checker.Invalid:
			violated = append(violated, fmt.Sprintf("%s: %d", r.Name, max(r.Total, len(r.Violations))))
		default:
			s.Found = r.Name + ": " + r.Summary
		}
	}
	if len(violated) > 0 {
		s.Found = results.Story.Headline + " (" + strings.Join(violated, ", ") + ")"
	}
	for _, f := range results.Faults {
		if f.Counts() {
			s.Landed[f.Name]++
		} else {
			s.Failed[f.Name]++
		}
	}
}

// base is the name of a run directory in its folder; empty for none.
func base(dir string) string {
	if dir == "" {
		return ""
	}
	return filepath.Base(dir)
}

func (s *seedSummary) add(r seedResult) {
	joint := reports.NewJointRun(*r.Results, base(r.Dir))
	joint.Faults = r.Mix
	s.joint = append(s.joint, joint)
	switch r.Verdict {
	case checker.Valid:
		s.Valid++
	case checker.Invalid:
		s.Invalid++
	default:
		s.Unknown++
	}
	for name, n := range r.Landed {
		s.Landed[name] += n
	}
	for name, n := range r.Failed {
		s.Failed[name] += n
	}
	for _, name := range r.Tried {
		s.Tried[name]++
	}
	if r.Verdict != checker.Valid {
		r.Results, r.Cell = nil, nil
		s.Runs = append(s.Runs, r)
	}
}

// sort orders the runs by their locks, topologies, seeds and faults.
func (s *seedSummary) sort() {
	slices.SortStableFunc(s.Runs, func(a, b seedResult) int { return cmp.Compare(a.Seed, b.Seed) })
	slices.SortStableFunc(s.joint, func(a, b reports.JointRun) int {
		return cmp.Or(cmp.Compare(a.Lock, b.Lock), cmp.Compare(a.Topology, b.Topology), cmp.Compare(a.Seed, b.Seed), cmp.Compare(a.Faults, b.Faults))
	})
}

func (s *seedSummary) done() int { return s.Valid + s.Unknown + s.Invalid }

// exit is the worst of the verdicts.
func (s *seedSummary) exit() error { return answer(s.Invalid > 0, s.Unknown > 0) }

func (a *app) printSeeds(s seedSummary) {
	for _, r := range s.Runs {
		a.printf("seed %d is %s: %s\n  %s\n  again: %s\n", r.Seed, r.Verdict, r.Found, r.Dir, r.Command)
		if r.Control != nil {
			a.printf("  control: %s was %s\n", r.Control.Lock, r.Control.Verdict)
		}
	}
	a.printf("%s · %s · seeds %s: %d valid, %d unknown, %d invalid\n", s.Topology, s.Lock, s.Seeds, s.Valid, s.Unknown, s.Invalid)
	if s.done() < s.Planned {
		a.printf("interrupted: %d of %d planned seeds were played\n", s.done(), s.Planned)
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
