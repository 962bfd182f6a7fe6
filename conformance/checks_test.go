package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/conformance"
	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/topologies"
)

// one is a running server, with the links to it.
func one(t *testing.T) topologies.Deployment {
	t.Helper()
	return runtest.Start(t, runtest.Servers(), topologies.Single, topologies.Options{})
}

// inPython is the driver with these words, a planted bug or "correct" being the last.
func inPython(t *testing.T, driver string) harness.LockSpec {
	t.Helper()
	if err := exec.CommandContext(t.Context(), "/usr/bin/python3", "-c", "import redis").Run(); err != nil {
		runtest.Lacks(t, fmt.Errorf("redis-py is missing (make drivers installs it): %w", err))
	}
	path, err := filepath.Abs("../drivers/testdata/")
	require.NoError(t, err)
	return harness.LockSpec{Name: harness.ProgramPrefix + filepath.Join(path, driver)}
}

// Each check finds the bug that it is for, says what is told of it, and has nothing to say of the correct
// lock. What is told only after it was seen several times, or after a long wait, is found with a shorter lease.
// In drivers are the bugs that come with the connections and the answers of a program, and those of locks that are
// no mutex, which their mutex does not show; all others are in locks in Go.
func TestChecks_FindBugs(t *testing.T) {
	t.Parallel()
	for _, b := range bugs(t) {
		if b.Hopeless {
			continue // see [TestDriver_Hopeless]
		}
		t.Run(b.Bug, func(t *testing.T) {
			t.Parallel()
			correct, bad := b.locks(t)
			d, lease := one(t), b.Lease
			requireTold(t, b.Told, conformance.One(t.Context(), d, bad, b.Check, "bug", lease))
			if b.Driver != "" {
				lease = time.Second
			}
			requireTold(t, "", conformance.One(t.Context(), d, correct, b.Check, "correct", lease))
		})
	}
}

// Where a check shows that the others show nothing, these are not made: each of them would take long.
func TestDriver_Hopeless(t *testing.T) {
	t.Parallel()
	for _, b := range bugs(t) {
		if !b.Hopeless || b.Bug == "stays" && !runtest.Nightly() { // whose each end takes 10 s
			continue
		}
		t.Run(b.Bug, func(t *testing.T) {
			t.Parallel()
			_, bad := b.locks(t)
			checks := append(conformance.Checks()[:1], slices.Repeat([]conformance.Check{conformance.Named(b.Check)}, 8)...)
			var wrong []conformance.Outcome
			err := conformance.Brief(t.Context(), runtest.Servers(), bad, checks, func(o conformance.Outcome) {
				if o.Wrong != nil {
					wrong = append(wrong, o)
				}
			})
			require.ErrorIs(t, err, conformance.ErrHopeless)
			require.Len(t, wrong, 1)
			requireTold(t, b.Told, wrong[0])
		})
	}
}

// A check that is cut short says nothing of the lock.
func TestChecksThatAreCutShortFindNothing(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	err := conformance.Lock(ctx, runtest.Servers(), plantedSpec("correct"), conformance.LockChecks(), func(o conformance.Outcome) {
		assert.NoError(t, o.Wrong, o.Name)
		cancel() // while others are made
	})
	require.ErrorIs(t, err, context.Canceled)
}

// requireTold asks that a check was made, and compares what it tells with what is to be told, in which all numbers and tokens
// are the same; empty: nothing.
func requireTold(t *testing.T, want string, o conformance.Outcome) {
	t.Helper()
	require.False(t, o.Skipped)
	if want == "" {
		require.NoError(t, o.Wrong, o.Log)
		return
	}
	require.Error(t, o.Wrong)
	lines := strings.Split(changing.ReplaceAllString(o.Wrong.Error(), "N"), "\n")
	if len(lines) > 1 && strings.HasSuffix(lines[0], lines[1]) { // it was said of both of two releases, where the machine was quick
		lines = slices.Delete(lines, 1, 2)
	}
	want, told := strings.TrimSpace(want), strings.Join(lines, "\n")
	if begin, cut := strings.CutSuffix(want, "…"); cut { // what follows is what the driver answered last
		want, told = begin, told[:min(len(begin), len(told))]
	}
	require.Equal(t, want, told)
}

// changing are the parts of a message that differ from run to run.
var changing = regexp.MustCompile(`\b(\d+m)?\d+(\.\d+)?(ms|µs|s)?\b|\b[A-Z2-7]{26}\b`)

// An outcome that a lock does not know, an extension that is confirmed behind the lease, and a request
// that a server did not answer in time, are no defects of the lock: the check is made again, with more time.
func TestChecks_AreRepeated(t *testing.T) {
	t.Parallel()
	once := func(op string, wrong error) plant { return func(p *planted) { p.once = map[string]error{op: wrong} } }
	for name, c := range map[string]struct {
		plant       plant
		check, want string
		lease       time.Duration
	}{
		"unsure once":         {once("take", errors.New("asked for the first time")), "a lock that is held is refused to another process", "", time.Second},
		"extends slowly once": {once("extend", nil), "an extended hold outlives its first lease", "", slowly / 2},
		"extends without an answer once": {
			once("extend", fmt.Errorf("read: %w", os.ErrDeadlineExceeded)), "an extended hold outlives its first lease", "", time.Second,
		},
		"calls refusals unknown": {
			misread(errors.New("taken")), "a lock that is held is refused to another process",
			"in each of 3 tries, the last with a lease of 4s and servers awaited for 8s: the answer to a client must be fail, and is: ", time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			met := &atomic.Bool{}
			l := plantedSpec(name, c.plant, func(p *planted) { p.met = met })
			o := conformance.One(t.Context(), one(t), l, c.check, "check", c.lease)
			if c.want != "" {
				require.ErrorContains(t, o.Wrong, c.want)
				return
			}
			requireTold(t, "", o)
			require.True(t, met.Load(), "the first try met the bug")
		})
	}
}

// The default run of a lock exercises what it promises: the bug is convicted, and the correct lock is not.
func TestRuns_FindBugs(t *testing.T) {
	t.Parallel()
	for _, b := range bugs(t) {
		if b.Run == "" {
			continue
		}
		t.Run(b.Bug, func(t *testing.T) {
			t.Parallel()
			run := func(l harness.LockSpec) harness.RandomRun {
				l.Connects = true // as a program does, whose holds the default run extends
				r := harness.RandomRun{Topology: topologies.Single, Lock: l, Faults: faults.MixNone, Length: 3 * time.Second}
				r.Workload.Locks, r.Workload.Lease = 1, 400*time.Millisecond
				return r
			}
			correct, bad := b.locks(t)
			runtest.Until(t, run(bad), runtest.Setup(t), checker.Invalid, func(_ *history.History, r checker.Report) bool {
				return slices.ContainsFunc(r.Results, func(r checker.Result) bool {
					return slices.ContainsFunc(r.Violations, func(v checker.Violation) bool { return v.Kind == b.Run })
				})
			})
			runtest.Until(t, run(correct), runtest.Setup(t), checker.Valid, nil)
		})
	}
}

// The plans of a driver's lock meet each request that it sends, and the run says which of them were met.
func TestTries_AreMet(t *testing.T) {
	t.Parallel()
	setup := runtest.Setup(t)
	l := plantedSpec("watched", sends(map[string][]string{"renew": {extendOwn}}))
	l.Watchdog = true
	r := harness.RandomRun{
		Topology: topologies.Single, Lock: l, Kind: harness.ProgramWorkload + ",watchdog", Faults: "drop-reply,delay-command", Length: 12 * time.Second,
		Plan: []faults.Step{
			{At: time.Second, Fault: "drop-reply", Target: "zone>redis", Params: map[string]string{"command": "renew", "nth": "1", "then": "reset"}},
			{At: 4 * time.Second, Fault: "drop-reply", Target: "zone>redis", Params: map[string]string{"command": "extend", "nth": "1", "then": "reset"}},
			{At: 7 * time.Second, Fault: "delay-command", Target: "zone>redis", Params: map[string]string{"command": "release", "nth": "1", "for": "100"}},
		},
	}
	r.Workload.Lease = time.Second
	all, err := r.Tries()
	require.NoError(t, err)
	require.Len(t, all, 2*2*4)
	run, h, _ := runtest.Until(t, r, setup, checker.Valid, func(h *history.History, _ checker.Report) bool { return len(runtest.FailedFaults(h)) == 0 })
	tried := harness.Tried(run, h)
	require.Equal(t, []string{"drop-reply of renew, reset", "drop-reply of extend, reset", "delay-command of release, within the lease"}, tried)
	require.Subset(t, all, tried)
}
