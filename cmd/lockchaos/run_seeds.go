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
	"time"

	"github.com/spf13/cobra"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/fleet"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/seeds"
	"github.com/lockchaos/lockchaos/reports"
	"github.com/lockchaos/lockchaos/topologies"
)

// parseSeeds reads the list of --seeds.
func parseSeeds(list string) ([]uint64, error) {
	all, err := seeds.Parse(list)
	if err != nil {
		return nil, fmt.Errorf("--seeds: %w", err)
	}
	return all, nil
}

// checkSeeds joins what is wrong with the flags for many runs.
func (o *runOptions) checkSeeds(cmd *cobra.Command) error {
	var errs []error
	if o.seeds == "" {
		for _, name := range []string{"parallel", "keep", "shard", "resume", "judged-is-ok"} {
			if cmd.Flag(name).Changed {
				errs = append(errs, fmt.Errorf("--%s: with --seeds only", name))
			}
		}
		return errors.Join(errs...)
	}
	if o.causes {
		errs = append(errs, errors.New("--causes is for one run: leave out --seeds, and call lockchaos causes with the directory of a run"))
	}
	_, err := parseSeeds(o.seeds)
	errs = append(errs, err)
	if cmd.Flag("seed").Changed {
		errs = append(errs, errors.New("--seed and --seeds: say one of them"))
	}
	if o.parallel < 0 {
		errs = append(errs, fmt.Errorf("--parallel must be at least 1, not %d", o.parallel))
	}
	return errors.Join(append(errs, o.check(o.out))...)
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

	joint   reports.JointRun
	cell    reports.MatrixRun
	results reports.Results
	leftOut []string       // faults that were asked for, and that could not be here
	failure error          // of the harness
	landed  map[string]int // faults that were of effect
	failed  map[string]int // and those that were not
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

// runSeeds runs many seeds, several at a time, and prints how many were valid.
// Each of those that run at a time has servers of its own, which go on to the next
// run if they are as good as new.
func (a *app) runSeeds(cmd *cobra.Command, o *runOptions) error {
	all, err := parseSeeds(o.seeds)
	if err != nil {
		return err
	}
	seeds := fleet.Part(o.part, all)
	if o.servers.backend == attachBackend && o.parallel > 1 {
		return errors.New("--parallel: a deployment that runs already has one run at a time")
	}
	before := exists(o.out)
	out, err := seedsDir(o)
	if err != nil {
		return err
	}
	s := seedSummary{Topology: o.Topology, Lock: o.Lock.Name, Seeds: o.seeds, Planned: len(seeds), Landed: map[string]int{}, Failed: map[string]int{}, Runs: []seedResult{}}
	journal, err := o.open(out, fleet.Header{Command: "lockchaos run" + flagsWithSeed(cmd, ""), Seeds: o.seeds})
	if err != nil {
		return err
	}
	defer journal.Close()
	log, err := createLog(out) // of the process that has the journal
	if err != nil {
		return err
	}
	defer log.Close()
	left, err := s.resume(journal, out, seeds)
	if err != nil {
		return err
	}
	var mu sync.Mutex  // of s and failures
	var failures error // of the harness, in runs that are judged all the same
	failure := batch(cmd.Context(), o.parallel, left, func(ctx context.Context) (worker[uint64], error) {
		backend, name, err := a.openServers(ctx, &o.servers, a.log(log), topologies.StoreOf(o.Topology))
		if err != nil {
			return worker[uint64]{}, err
		}
		w := worker[uint64]{}
		if name != attachBackend {
			var closeAll func() error
			backend, closeAll = harness.Pool(backend)
			w.end = func() error { return asHarness(closeAll()) }
		}
		w.do = func(ctx context.Context, seed uint64) error {
			dir := seedDir(out, seed)
			r, err := a.runSeedTwice(ctx, o, backend, name, dir, "lockchaos run"+o.again(cmd, seed), seed)
			if err != nil {
				return mostSevere(r.failure, err)
			}
			mu.Lock()
			defer mu.Unlock()
			failures = mostSevere(failures, r.failure)
			if ctx.Err() == nil { // else it was cut short, and counts for nothing but its failure
				s.add(r)
				a.tellSeed(r, s, len(seeds))
				if r.failure == nil { // else it is made when the campaign is resumed
					return note(journal, r)
				}
			}
			return nil
		}
		return w, nil
	})
	if failure != nil && failures == nil && s.done() == 0 {
		return errors.Join(failure, journal.Discard(), removeEmpty(out, before))
	}
	s.sort()
	if err := reports.WriteJoint(out, s.joint, len(seeds)); err != nil {
		return asHarness(err)
	}
	if s.NotTried, err = o.notTried(s.Tried); err != nil {
		return asHarness(err)
	}
	if err := a.printSeeds(s, o.asJSON, out); err != nil {
		return err
	}
	if failure == nil && cmd.Context().Err() != nil {
		failure = context.Cause(cmd.Context())
	}
	return worst(o.verdict(s.exit()), mostSevere(failures, failure))
}

// resume takes the runs of a journal, and returns the seeds that it does not have.
func (s *seedSummary) resume(j *fleet.Journal, out string, seeds []uint64) (left []uint64, err error) {
	played := map[string]bool{}
	for _, r := range j.Runs() {
		before, err := noted(r, out, r.Dir)
		if err != nil {
			return nil, err
		}
		played[r.Job] = true
		s.add(before)
	}
	for _, seed := range seeds {
		if played[fleet.Job("", seed)] {
			continue
		}
		r, judged, err := adopt(seedDir(out, seed))
		switch {
		case err != nil:
			return nil, err
		case !judged:
			left = append(left, seed)
			continue
		}
		if err := note(j, r); err != nil {
			return nil, err
		}
		s.add(r)
	}
	return left, nil
}

// seedDir is the run directory of a seed, among those of others.
func seedDir(out string, seed uint64) string {
	return filepath.Join(out, fmt.Sprintf("seed-%d", seed))
}

// mostSevere is the worst of two errors, of which one that says no more than that
// the user ended it hides no other.
func mostSevere(a, b error) error {
	if errors.Is(a, context.Canceled) {
		a, b = b, a
	}
	return worst(a, b)
}

// seedsDir makes the folder for the runs.
func seedsDir(o *runOptions) (string, error) {
	if o.out != "" {
		return o.out, o.dir(o.out)
	}
	name := filepath.Join(runsDir, strings.Join([]string{time.Now().UTC().Format("20060102T150405Z"), o.Topology, o.Lock.Name, "seeds"}, "-"))
	return name, emptyDir(name)
}

// runSeedTwice makes one run, and makes it again if it is unknown: how far its faults and its clients came may be chance.
// The directory of the first stays.
func (a *app) runSeedTwice(ctx context.Context, o *runOptions, backend topologies.Backend, backendName, dir, command string, seed uint64) (seedResult, error) {
	r, err := a.runSeed(ctx, o, backend, backendName, dir, command, seed)
	if err != nil || r.failure != nil || r.Verdict != checker.Unknown || ctx.Err() != nil {
		return r, err
	}
	first, err := aside(dir, "unknown")
	if err != nil {
		return r, err
	}
	fmt.Fprintf(a.stderr, "seed %d unknown · %s · %s; once more\n", seed, r.Found, first)
	again, err := a.runSeed(ctx, o, backend, backendName, dir, command, seed)
	again.First = r.Found
	return again, err
}

// runSeed makes one run, which that command repeats, and removes its directory if it was
// valid.
func (a *app) runSeed(ctx context.Context, o *runOptions, backend topologies.Backend, backendName, dir, command string, seed uint64) (seedResult, error) {
	s := seedResult{Seed: seed, Dir: dir, Command: command, landed: map[string]int{}, failed: map[string]int{}}
	log, err := createLog(dir)
	if err != nil {
		return s, err
	}
	defer log.Close()
	err = o.Run(ctx, harness.Config{
		Dir: dir, Backend: backend, BackendName: backendName, Seed: seed, Program: version(), Command: s.Command, Log: a.log(log),
	})
	if err != nil {
		err = harnessError{fmt.Errorf("seed %d: %w", seed, err)}
	}
	if err != nil && !history.Dir(dir).Exists() {
		return s, errors.Join(err, removeEmpty(dir, false))
	}
	s.failure = err // other seeds may have more luck
	in, err := readRecord(dir)
	if err != nil {
		return s, harnessError{err}
	}
	judging, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkBudget)
	defer cancel()
	if s.failure != nil {
		in.Run.Failed = cmp.Or(in.Run.Failed, s.failure.Error())
		s.Found = s.failure.Error()
	}
	in.Report = harness.Judge(judging, in.Run, in.History)
	results := reports.Summarize(in)
	s.tell(in, results)
	if err := a.annotate(results, dir); err != nil {
		return s, err
	}
	if o.control && s.failure == nil && s.Verdict == checker.Invalid {
		if err := a.controlSeed(ctx, o, seed, dir, &in.Run, backend, backendName); err != nil {
			return s, harnessError{fmt.Errorf("seed %d: %w", seed, err)}
		}
		s.Control = in.Run.Control
	}
	s.results = reports.Summarize(in)
	s.joint, s.cell = reports.NewJointRun(s.results, filepath.Base(dir)), reports.NewMatrixRun(in, filepath.Base(dir))
	s.joint.Faults, s.leftOut = in.Run.Faults, in.Run.SkippedFaults
	if s.Verdict == checker.Valid && !o.keep {
		s.Dir, s.joint.Dir, s.cell.Dir = "", "", ""
	}
	if s.Dir == "" {
		if err := os.RemoveAll(dir); err != nil {
			return s, harnessError{fmt.Errorf("remove run directory: %w", err)}
		}
		return s, nil
	}
	return s, asHarness(reports.WriteDir(dir, in))
}

// tell takes from a judged run what is told of it.
func (s *seedResult) tell(in reports.Input, results reports.Results) {
	s.Verdict, s.Tried = in.Report.Verdict, harness.Tried(in.Run, in.History)
	if s.Found == "" && s.Verdict == checker.Invalid {
		s.Found = results.Story.Headline + " (" + strings.Join(violated(in.Report), ", ") + ")"
	}
	for _, r := range in.Report.Results {
		if s.Found == "" && r.Verdict == s.Verdict && r.Verdict != checker.Valid {
			s.Found = r.Name + ": " + r.Summary
		}
	}
	for _, e := range in.History.Events {
		switch {
		case e.Op == history.Observe && e.What == history.ObserveMet && e.Value == "0":
			s.landed[e.Fault]-- // of effect, and no request met it
			s.failed[e.Fault]++
		case e.Op != history.Inject:
		case e.Type == history.OK:
			s.landed[e.Fault]++
		case e.Type == history.Fail:
			s.failed[e.Fault]++
		}
	}
}

// violated are the properties that do not hold, with the number of their violations.
func violated(r checker.Report) []string {
	var names []string
	for _, p := range r.Results {
		if p.Verdict == checker.Invalid {
			names = append(names, fmt.Sprintf("%s: %d", p.Name, max(p.Total, len(p.Violations))))
		}
	}
	return names
}

// count counts a verdict.
func (s *seedSummary) count(v checker.Verdict) {
	switch v {
	case checker.Valid:
		s.Valid++
	case checker.Invalid:
		s.Invalid++
	default:
		s.Unknown++
	}
}

func (s *seedSummary) add(r seedResult) {
	s.count(r.Verdict)
	if r.Verdict != checker.Valid {
		s.Runs = append(s.Runs, r)
	}
	s.joint = append(s.joint, r.joint)
	for name, n := range r.landed {
		s.Landed[name] += n
	}
	for name, n := range r.failed {
		s.Failed[name] += n
	}
	for _, name := range r.Tried {
		if s.Tried == nil {
			s.Tried = map[string]int{}
		}
		s.Tried[name]++
	}
}

// sort orders the runs by their seeds.
func (s *seedSummary) sort() {
	slices.SortStableFunc(s.Runs, func(a, b seedResult) int { return cmp.Compare(a.Seed, b.Seed) })
	slices.SortStableFunc(s.joint, func(a, b reports.JointRun) int { return cmp.Compare(a.Seed, b.Seed) })
}

func (s *seedSummary) done() int { return s.Valid + s.Unknown + s.Invalid }

// exit is the worst of the verdicts.
func (s *seedSummary) exit() error {
	switch {
	case s.Invalid > 0:
		return verdictError(exitInvalid)
	case s.Unknown > 0:
		return verdictError(exitUnknown)
	default:
		return nil
	}
}

// tellSeed tells of a run that is done.
func (a *app) tellSeed(r seedResult, s seedSummary, of int) {
	landed := 0
	for _, n := range r.landed {
		landed += n
	}
	noun := "faults"
	if landed == 1 {
		noun = "fault"
	}
	fmt.Fprintf(a.stderr, "%d of %d · seed %d %s · %d %s took effect", s.done(), of, r.Seed, r.Verdict, landed, noun)
	if r.Found != "" {
		fmt.Fprintf(a.stderr, " · %s · %s", r.Found, r.Dir)
	}
	fmt.Fprintln(a.stderr)
}

func (a *app) printSeeds(s seedSummary, asJSON bool, out string) error {
	if asJSON {
		return a.json(s)
	}
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
	a.printf("%srun directories in %s\n", untried(s.Tried, s.NotTried), out)
	return nil
}

// notTried are the faults of one message that plans of the run may have and that none of its runs had.
func (o *runOptions) notTried(tried map[string]int) ([]string, error) {
	if o.replay != "" {
		return nil, nil // it has the plan that it has
	}
	all, err := o.Tries()
	return slices.DeleteFunc(all, func(name string) bool { return tried[name] > 0 }), err
}

// mostUntried bounds what is named of what was not tried.
const mostUntried = 6

// untried is a line on what was not tried yet; empty where there is nothing to try.
func untried(tried map[string]int, not []string) string {
	if len(tried)+len(not) == 0 {
		return ""
	}
	line := fmt.Sprintf("faults of one request: %d of %d tried", len(tried), len(tried)+len(not))
	if len(not) > 0 {
		line += "; not tried yet: " + strings.Join(not[:min(len(not), mostUntried)], "; ")
	}
	if more := len(not) - mostUntried; more > 0 {
		line += fmt.Sprintf("; and %d more (other seeds)", more)
	}
	return line + "\n"
}

// counted is "cut 3, hold 2".
func counted(counts map[string]int) string {
	if len(counts) == 0 {
		return "none"
	}
	var words []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		words = append(words, fmt.Sprintf("%s %d", name, counts[name]))
	}
	return strings.Join(words, ", ")
}
