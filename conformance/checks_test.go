package conformance_test

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

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
func one(t *testing.T, config harness.Config) topologies.Deployment {
	t.Helper()
	return runtest.Start(t, config.Backend, topologies.Single, topologies.Options{})
}

// Each check finds the bug that it is for, says what is told of it, and has nothing to say of the correct
// lock. What is told only after it was seen several times, or after a long wait, is found with a shorter lease.
func TestChecks_FindBugs(t *testing.T) {
	t.Parallel()
	for _, b := range bugs(t) {
		if b.Check == "" || b.Driver != "" {
			continue // it is planted elsewhere
		}
		t.Run(b.Bug, func(t *testing.T) {
			t.Parallel()
			d := one(t, runtest.Setup(t))
			correct, bad := b.locks()
			requireRight(t, conformance.One(t.Context(), d, "", correct, b.Check, "correct", b.Lease))
			requireTold(t, b, conformance.One(t.Context(), d, "", bad, b.Check, "bug", b.Lease).Wrong)
		})
	}
}

// A check that is cut short says nothing of the lock.
func TestChecksThatAreCutShortFindNothing(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	var asked atomic.Int64
	l := plantedSpec("correct", asks(func(ctx context.Context, _ *request, take func(context.Context) error) error {
		if asked.Add(1) == 5 {
			cancel()
		}
		return take(ctx)
	}))
	err := conformance.Lock(ctx, runtest.Setup(t).Backend, l, nil, func(o conformance.Outcome) {
		if o.Wrong != nil {
			t.Errorf("%s: %v", o.Name, o.Wrong)
		}
	})
	require.ErrorIs(t, err, context.Canceled)
}

// requireRight asks that a check was made, and found nothing wrong.
func requireRight(t *testing.T, o conformance.Outcome) {
	t.Helper()
	require.False(t, o.Skipped)
	require.NoError(t, o.Wrong, o.Log)
}

// requireTold compares what is told of a bug with what is to be told, in which all numbers and tokens are the same.
func requireTold(t *testing.T, b bug, wrong error) {
	t.Helper()
	require.Error(t, wrong)
	lines := strings.Split(changing.ReplaceAllString(wrong.Error(), "N"), "\n")
	if len(lines) > 1 && strings.HasSuffix(lines[0], lines[1]) { // it was said of both of two releases, where the machine was quick
		lines = slices.Delete(lines, 1, 2)
	}
	want, told := strings.TrimSpace(b.Told), strings.Join(lines, "\n")
	if begin, cut := strings.CutSuffix(want, "…"); cut { // what follows is what the driver answered last
		want, told = begin, told[:min(len(begin), len(told))]
	}
	require.Equal(t, want, told)
}

// changing are the parts of a message that differ from run to run.
var changing = regexp.MustCompile(`\b(\d+m)?\d+(\.\d+)?(ms|µs|s)?\b|\b[A-Z2-7]{26}\b`)

// bugNamed is a row of another test.
func bugNamed(t *testing.T, name string) bug {
	t.Helper()
	all := bugs(t)
	at := slices.IndexFunc(all, func(b bug) bool { return b.Bug == name })
	require.GreaterOrEqual(t, at, 0, name)
	return all[at]
}

// An error of its own, where the lock is held, is told before any check of a lock in Go, and so is no error without a grant.
func TestRefusal_Unmapped(t *testing.T) {
	t.Parallel()
	for name, bug := range map[string]string{"unmapped": "calls refusals unknown", "granted nothing": "granted nothing"} {
		t.Run(name, func(t *testing.T) {
			requireTold(t, bugNamed(t, name), conformance.Refusal(t.Context(), runtest.Setup(t).Backend, plantedSpec(name, named(bug)...)))
		})
	}
	require.NoError(t, conformance.Refusal(t.Context(), runtest.Setup(t).Backend, plantedSpec("correct")))
}

// An outcome that a lock does not know, an extension that is confirmed behind the lease, and a request
// that a server did not answer in time, are no defects of the lock: the check is made again, with more time.
// Nor is an extension by the first lease that is told as such.
func TestChecks_AreRepeated(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		bug, check, want string
		lease            time.Duration
	}{
		{"unsure once", "a lock that is held is refused to another process", "", time.Second},
		{"extends slowly once", "an extended hold outlives its first lease", "", slowly / 2},
		{"extends without an answer once", "an extended hold outlives its first lease", "", time.Second},
		{"extends by its first lease", "an extension whose requests are slow is believed only while the lock is held", "", time.Second},
		{
			"calls refusals unknown", "a lock that is held is refused to another process",
			"in each of 3 tries, the last with a lease of 4s and servers awaited for 8s: the answer to a client must be fail, and is: ", time.Second,
		},
	} {
		t.Run(c.bug, func(t *testing.T) {
			t.Parallel()
			met := &atomic.Bool{}
			o := conformance.One(t.Context(), one(t, runtest.Setup(t)), "", misbehavedOnce(c.bug, met, named(c.bug)...), c.check, c.bug, c.lease)
			if c.want != "" {
				require.ErrorContains(t, o.Wrong, c.want)
				return
			}
			requireRight(t, o)
			require.True(t, met.Load() || c.bug == "extends by its first lease", "the first try met the bug")
		})
	}
}

// The default run of a lock exercises what it promises: the bug is convicted, and the correct lock is not.
func TestRuns_FindBugs(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]string{
		"no watchdog": checker.DoubleGrant, "extends by a look": checker.DoubleGrant,
		"tokens of processes": checker.ForeignRelease, // after which it may be granted twice, or not
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := func(l harness.LockSpec) harness.RandomRun {
				l.Connects = true // as a program does, whose holds the default run extends
				r := harness.RandomRun{Topology: topologies.Single, Lock: l, Faults: faults.MixNone, Length: 3 * time.Second}
				r.Workload.Locks, r.Workload.Lease = 1, 400*time.Millisecond
				return r
			}
			correct, bad := bugNamed(t, name).locks()
			runtest.Until(t, run(bad), runtest.Setup(t), checker.Invalid, func(_ *history.History, r checker.Report) bool {
				return slices.ContainsFunc(r.Results, func(r checker.Result) bool {
					return slices.ContainsFunc(r.Violations, func(v checker.Violation) bool { return v.Kind == kind })
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
	l := plantedSpec("watched", named("watchdog")...)
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
