package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/seeds"
	"github.com/lockchaos/lockchaos/reports"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/process"
)

// RequireVariable is the environment variable that, set to 1, makes a missing
// redis-server a failure instead of a skipped test.
const RequireVariable = "LOCKCHAOS_TEST_REQUIRE"

// A Plan says what [Run] runs. Its zero value is one run of 5s on one server, under
// the faults that a correct lock survives there.
type Plan struct {
	// Topology is single, sentinel, cluster or independent, or a comma list of
	// them. Default: single; for a lock that needs them, independent servers.
	Topology string
	// Faults are the faults to draw from: none, safe (those that a correct lock
	// survives on the topology), all, or a comma list of the mixes network, process,
	// redis, failover, cluster, clock, disk and of names of faults. Default: safe.
	Faults string
	// Workload is what the clients do, or a comma list. Default: what the lock is made
	// for, contended,release-twice,late-release for a plain mutex.
	Workload string
	// Seeds are the seeds of the runs, such as 1-5 or 3,7,20-29. A seed fixes the
	// plan of faults and the choices of the clients. Default: 1.
	Seeds string
	// Length is how long the clients work in each run. Default: 5s.
	Length time.Duration
}

// defaultLength is how long the clients of a run work.
const defaultLength = 5 * time.Second

// topologies are those of the plan.
func (p Plan) topologies(l Lock) []string {
	usual := topologies.Single
	if l.Independent {
		usual = topologies.Independent
	}
	return strings.Split(cmp.Or(p.Topology, usual), ",")
}

// runs are those of the plan, without their seeds.
func (p Plan) runs(l Lock) ([]harness.RandomRun, error) {
	var all []harness.RandomRun
	var errs []error
	for _, name := range p.topologies(l) {
		r := harness.RandomRun{
			Topology: name, Lock: l, Kind: cmp.Or(p.Workload, l.ForeignWorkload()), Faults: cmp.Or(p.Faults, faults.MixSafe), Length: cmp.Or(p.Length, defaultLength),
		}
		all, errs = append(all, r), append(errs, r.Validate())
	}
	return all, errors.Join(errs...)
}

// plays are the runs of the plan, without their seeds, and the seeds of each.
func (p Plan) plays(l Lock) ([]harness.RandomRun, []uint64, error) {
	runs, err := p.runs(l)
	list, wrong := seedsOf(p, "1")
	return runs, list, errors.Join(l.Validate(), err, wrong)
}

// seedsOf are the seeds of a plan, by default those.
func seedsOf(p Plan, usual string) ([]uint64, error) {
	list, err := seeds.Parse(cmp.Or(p.Seeds, usual))
	if err != nil {
		return nil, fmt.Errorf("seeds: %w", err)
	}
	return list, nil
}

// Run has clients use a lock on the topologies of a plan while its faults pass: a
// run for each topology and seed, one after the other, and each a subtest, which
// fails unless the run is valid. A run that is unknown is repeated once, with twice
// its length, and leases of a second at the least; where short leases are what it did not see the end of,
// with the same leases and longer holds.
func Run(t *testing.T, l Lock, p Plan) {
	t.Helper()
	begin(t)
	runs, list, err := p.plays(withLease(l))
	if err != nil {
		t.Fatalf("chaos.Run: %v", err)
	}
	for _, r := range runs {
		for _, seed := range list {
			t.Run(fmt.Sprintf("%s-seed-%d", r.Topology, seed), func(t *testing.T) {
				g := &guard{}
				r.Lock = g.of(l)
				report(t, playTwice(t, "", g, random(r), longer(r), seed))
			})
		}
	}
}

// longLease is a lease of whole seconds. A lock may make each lease that long, so that a release after a shorter
// one is not late.
const longLease = time.Second

// longer is the same run with twice the length, and with long leases: the machine may be too slow for others. A lock
// that never ends short leases would be right in it. So where no release was too late, holds go on until they must be.
func longer(r harness.RandomRun) second {
	return func(first reports.Input) playable {
		r.Length *= 2
		clients := r.Workload
		clients.Kinds = strings.Split(r.Kind, ",")
		switch usual := clients.WithDefaults().Lease; {
		case clients.Lease > 0 || usual == 0 || r.Lock.Endless:
		case usual < longLease && lacksLate(first):
			r.Workload.Hold = longLease * 3 / 2
		default:
			r.Workload.Lease = max(usual, longLease)
		}
		return random(r)
	}
}

// lacksLate reports whether clients released late in a run, and none was refused.
func lacksLate(in reports.Input) bool {
	return in.Report.Verdict == checker.Unknown && slices.ContainsFunc(in.Report.Results, func(r checker.Result) bool {
		return r.Met[history.MetExpiries] > 0 && r.Met[history.MetNotHeld] == 0
	})
}

// silence silences the log of go-redis once.
var silence = sync.OnceFunc(logging.Disable) //nolint:gochecknoglobals // it is once for the whole process

// begin skips the test if there is no redis-server, or fails it if that is required.
func begin(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("it starts servers; -short leaves them out")
	}
	silence()
	_, err := process.Find(t.Context(), topologies.StoreRedis)
	switch {
	case err == nil:
	case os.Getenv(RequireVariable) == "1":
		t.Fatalf("%s is 1, and %v", RequireVariable, err)
	case errors.Is(err, topologies.ErrMissing), errors.Is(err, topologies.ErrTooOld):
		t.Skipf("%v (set %s=1 to have this fail)", err, RequireVariable)
	default:
		t.Fatal(err)
	}
}

// A played is what came of a run, and of its repetition if it was unknown.
type played struct {
	in         reports.Input
	dir        string
	unexpected error    // in what the verdict is not the expected one; nil if it is
	failed     error    // what the harness could not do
	problems   []string // what the lock did not do, in the run before, too
	first      *played  // the run before, whose verdict was unknown; nil if there was none
	cut        bool     // the test ended before the run
}

// A second is what is run after a run that was unknown.
type second func(first reports.Input) playable

// playTwice runs it, and if the verdict is unknown runs the second. The test may have
// subtests: part is the name of one of them, which reports it.
func playTwice(t *testing.T, part string, g *guard, next playable, then second, seed uint64) played {
	t.Helper()
	name := path.Join(t.Name(), part)
	ctx := t.Context()
	if deadline, ok := t.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-beforeDeadline))
		defer cancel()
	}
	command := fmt.Sprintf("go test -run '%s'", pattern(name))
	p := played{}
	var panics []string // of clients, in both runs
	for {
		var err error
		if p.dir, err = newDir(t, name); err != nil {
			p.failed = err
			return p
		}
		p.in, p.failed = next.play(ctx, setup(p.dir, command, seed))
		panics = append(panics, clientPanics(p.dir)...)
		p.problems, p.cut = slices.Concat(g.noted(), panics), ctx.Err() != nil
		p.unexpected = nil
		if p.failed == nil {
			p.unexpected = next.unexpected(p.in)
		}
		if p.failed != nil || p.cut || p.unexpected == nil || p.in.Report.Verdict != checker.Unknown || p.first != nil {
			return p
		}
		earlier := p
		p.first, next = &earlier, then(p.in)
	}
}

// beforeDeadline is how long before the test must end a run is ended.
const beforeDeadline = 5 * time.Second

// pattern is that of -run for one test.
func pattern(name string) string {
	parts := strings.Split(name, "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	return strings.Join(parts, "/")
}

// report fails the test unless the verdict is the expected one.
func report(t *testing.T, p played) {
	t.Helper()
	failures, notes := p.told()
	for _, failure := range failures {
		t.Error(failure)
	}
	for _, note := range notes {
		t.Log(note)
	}
	for run := &p; run != nil; run = run.first {
		keep(t, run.dir)
	}
}

// told is what a test says of a run: why it fails, or what came of the run.
func (p played) told() (failures, notes []string) {
	failures = slices.Clone(p.problems)
	if p.cut {
		failures = append(failures, "the test was ended before the run (-timeout)")
	}
	if p.failed != nil {
		failures = append(failures, fmt.Sprintf("the run failed: %v", p.failed))
	}
	if p.in.History == nil {
		return failures, nil
	}
	results := reports.Summarize(p.in)
	if p.unexpected == nil && p.failed == nil {
		if p.first != nil {
			notes = append(notes, fmt.Sprintf("a second run: the first was %s: %s", p.first.in.Report.Verdict, reports.Summarize(p.first.in).Story.Headline))
		}
		return failures, append(notes, fmt.Sprintf("%s: %s", p.in.Report.Verdict, results.Story.Headline))
	}
	if p.unexpected == nil {
		return failures, nil
	}
	var text strings.Builder
	if err := reports.WriteText(&text, results, reports.TextOptions{Dir: p.dir}); err != nil {
		failures = append(failures, err.Error())
	}
	often := ""
	if p.first != nil && p.in.Report.Verdict == checker.Unknown {
		often = ", twice"
	}
	return append(failures, fmt.Sprintf("%v%s\n%s", p.unexpected, often, text.String())), nil
}
