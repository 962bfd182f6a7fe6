package conformance_test

import (
	"context"
	"fmt"
	"os"
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
	topology, err := topologies.New(topologies.Single, topologies.Options{})
	require.NoError(t, err)
	d, err := config.Backend.Start(t.Context(), topology)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

// promising is a lock that promises as much as the lock of a check must.
func promising(check, name string, plants ...plant) harness.LockSpec {
	l := plantedSpec(name, plants...)
	l.Token = check == "tokens grow from grant to grant"
	l.Watchdog = check == "a hold without a lease is kept"
	return l
}

// Each check finds the bug that it is for, says what the golden file has of it, and has nothing to say of the correct
// lock. What is told only after it was seen several times, or after a long wait, is found with a shorter lease.
func TestChecks_FindBugs(t *testing.T) {
	t.Parallel()
	const usual, brief, transaction = time.Second, 250 * time.Millisecond, 600 * time.Millisecond
	correct := []plant{}
	for _, c := range []struct {
		bug, check string
		twin       []plant // what the correct lock has, and the one with the bug as well
		lease      time.Duration
	}{
		{"no watchdog", "a hold without a lease is kept", []plant{watchdog(false)}, usual},
		{"watchdog outlives", "a lock that was released is left alone", []plant{watchdog(false)}, usual},
		{"tokens of clients", "a late release leaves the next holder alone", correct, usual},
		{"tokens of processes", "a late release leaves the next holder alone", correct, usual},
		{"calls unknown releases refused", "a release whose reply is lost is unknown", correct, usual},
		{"counts from the reply", "a grant over slow links is believed for no longer than the servers keep it", []plant{brisk}, 2 * usual},
		{"ends early", "a lease that runs out frees the lock, and not before", correct, usual},
		{"cuts to seconds", "a lease that runs out frees the lock, and not before", []plant{wholeSeconds}, usual},
		{"told in seconds", "a grant is believed for about as long as its lease", correct, usual},
		{"remembers", "a grant asks the servers", correct, usual},
		{"refuses the unknown", "a request whose reply is lost is unknown", correct, usual},
		{"retries with another token", "a request that is answered with refused leaves nothing behind", []plant{asksTwice(false)}, usual},
		{"retries with another token, behind a look", "a request that is answered with refused leaves nothing behind", []plant{asksTwice(false)}, usual},
		{"refuses the unknown", "a request that is answered with refused leaves nothing behind", correct, usual},
		{"releases any again", "a second release leaves the next holder alone", correct, usual},
		{"releases in two steps", "a release whose requests are slow leaves the next holder alone", correct, usual},
		{"releases unheeded", "a release whose requests are slow leaves the next holder alone", []plant{outlives, releasesAfterLook(true)}, transaction},  // keys outlive their leases
		{"releases unheeded, late once", "a release whose requests are slow leaves the next holder alone", []plant{releasesAfterLook(true)}, transaction}, // the first try is too late to show it
		{"recounts", "a grant whose first reply is lost is believed for no longer than the servers keep it", []plant{asksTwice(false)}, usual},
		{"two steps", "a grant that is cut off half way is over with its lease", correct, brief},
		{"looks first", "of many clients that ask at once, one is granted the lock", []plant{shy}, usual},
		{"prefers shorter", "a lock that is held is refused to another process", correct, usual},
		{"takes old for over", "a lock that is held is refused to another process", correct, usual},
		{"takes NOSCRIPT for done", "a lock stays held where the servers forget scripts and close connections", correct, usual},
		{"counts alone", "tokens grow from grant to grant", []plant{counts}, usual},
		{"extends any", "a late extension is refused, and leaves the next holder alone", correct, usual},
		{"extends by taking", "a late extension is refused, and leaves the next holder alone", correct, usual},
		{"extends by a look", "an extended hold outlives its first lease", correct, usual},
		{"tells no extension", "an extended hold outlives its first lease", correct, brief},
		{"extends in another unit", "an extended hold ends with the lease of its extension", correct, brief},
		{"extends in two steps", "an extension whose requests are slow is believed only while the lock is held", correct, usual},
		{"extends unheeded", "an extension whose requests are slow is believed only while the lock is held", []plant{extendsAfterLook(true)}, usual},
		{"extends unheeded", "an extension whose requests are slow is believed only while the lock is held", []plant{outlives}, usual}, // keys outlive their leases,
	} {
		t.Run(c.bug, func(t *testing.T) {
			t.Parallel()
			d := one(t, runtest.Setup(t))
			requireRight(t, conformance.One(t.Context(), d, "", promising(c.check, "correct", c.twin...), c.check, "correct", c.lease))
			bad := promising(c.check, c.bug, append(slices.Clone(c.twin), bugs[c.bug])...)
			o := conformance.One(t.Context(), d, "", bad, c.check, "bug", c.lease)
			require.Error(t, o.Wrong)
			requireTold(t, c.check, o.Wrong)
		})
	}
}

// A check that is cut short says nothing of the lock.
func TestChecksThatAreCutShortFindNothing(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	var asked atomic.Int64
	l := plantedSpec("correct", func(p *planted) {
		p.take = func(ctx context.Context, r *request) error {
			if asked.Add(1) == 5 {
				cancel()
			}
			return p.set(ctx, r)
		}
	})
	err := conformance.Lock(ctx, runtest.Setup(t).Backend, l, func(o conformance.Outcome) {
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

// requireTold compares what is told of a bug with its part of the golden file, in which all numbers and tokens are the same.
func requireTold(t *testing.T, check string, wrong error) {
	t.Helper()
	golden, err := os.ReadFile("testdata/checks.golden")
	require.NoError(t, err)
	told := changing.ReplaceAllString(fmt.Sprintf("✗ %s: %v", check, wrong), "N")
	lines := strings.Split(told, "\n")
	said := slices.IndexFunc(lines[1:], func(line string) bool { return strings.HasSuffix(lines[0], line) })
	if said >= 0 { // by both of two releases, where the machine was quick
		lines = slices.Delete(lines, said+1, said+2)
	}
	_, bug, _ := strings.Cut(t.Name(), "/")
	_, want, _ := strings.Cut(string(golden), "## "+bug+"\n")
	want, _, _ = strings.Cut(want, "\n## ")
	require.Equal(t, strings.TrimSpace(want), strings.Join(lines, "\n"))
}

// changing are the parts of a message that differ from run to run.
var changing = regexp.MustCompile(`\b(\d+m)?\d+(\.\d+)?(ms|µs|s)?\b|\b[A-Z2-7]{26}\b`)

// An error of its own, where the lock is held, is told before any check of a lock in Go, and so is no error without a grant.
func TestRefusal_Unmapped(t *testing.T) {
	t.Parallel()
	for name, bug := range map[string]string{"unmapped": "calls refusals unknown", "granted nothing": "granted nothing"} {
		t.Run(name, func(t *testing.T) {
			wrong := conformance.Refusal(t.Context(), runtest.Setup(t).Backend, plantedSpec(name, bugs[bug]))
			requireTold(t, "a lock that is held is refused", wrong)
		})
	}
	require.NoError(t, conformance.Refusal(t.Context(), runtest.Setup(t).Backend, plantedSpec("correct")))
}

// So do those of locks with more than one key.
func TestChecks_FindBugsOfOtherLocks(t *testing.T) {
	t.Parallel()
	for check, c := range map[string]struct {
		bug, correct harness.LockSpec
		want         string
	}{
		"an owner is granted again what it holds, and gives it back as often": {runtest.Lock("broken-uncounted-reentry"), runtest.Lock("mutex"), "the client of the other process was granted the lock as well"},
		"waiters are granted the lock in the order of their requests":         {fairSpec("last first", strings.Replace(queue, "RPUSH", "LPUSH", 1)), fairSpec("first first", queue), "were granted the lock in the order [4 3 2 1]"},
		"readers hold the lock together, and exclude writers":                 {runtest.Lock("broken-unseen-readers"), runtest.Lock("rwmutex"), "a writer was granted the lock, although two clients read"},
		"a writer goes on as a reader, and readers join it":                   {runtest.Lock("broken-unseen-readers"), runtest.Lock("rwmutex"), "a writer was granted the lock, although the client that wrote before reads"},
		"as many permits are granted as there are":                            {runtest.Lock("broken-one-more-permit"), runtest.Lock("semaphore-permit"), "a client was granted the lock, although 3 of 3 permits are held"},
		"an owner is granted several permits":                                 {runtest.Lock("broken-one-more-permit"), runtest.Lock("semaphore-permit"), "a client was granted the lock, although a single permit is left"},
	} {
		t.Run(check, func(t *testing.T) {
			t.Parallel()
			d := one(t, runtest.Setup(t))
			require.ErrorContains(t, conformance.One(t.Context(), d, "", c.bug, check, "bug", 500*time.Millisecond).Wrong, c.want)
			requireRight(t, conformance.One(t.Context(), d, "", c.correct, check, "correct", time.Second))
		})
	}
}

// An outcome that a lock does not know, an extension that is confirmed behind the lease, and a request
// that a server did not answer in time, are no defects of the lock: the check is made again, with more time.
func TestChecks_AreRepeated(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		bug, check, want string
		lease            time.Duration
	}{
		{"unsure once", "a lock that is held is refused to another process", "", time.Second},
		{"extends slowly once", "an extended hold outlives its first lease", "", slowly / 2},
		{"extends without an answer once", "an extended hold outlives its first lease", "", time.Second},
		{
			"calls refusals unknown", "a lock that is held is refused to another process",
			"in each of 3 tries, the last with a lease of 4s and servers awaited for 8s: the answer to the client of the other process must be fail, and is: ", time.Second,
		},
	} {
		t.Run(c.bug, func(t *testing.T) {
			t.Parallel()
			met := &atomic.Bool{}
			o := conformance.One(t.Context(), one(t, runtest.Setup(t)), "", misbehavedOnce(c.bug, met, bugs[c.bug]), c.check, c.bug, c.lease)
			if c.want != "" {
				require.ErrorContains(t, o.Wrong, c.want)
				return
			}
			requireRight(t, o)
			require.True(t, met.Load(), "the first try met the bug")
		})
	}
}

// The default run of a lock exercises what it promises: the bug is convicted, and the correct lock is not.
func TestRuns_FindBugs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		bug, kind string
		twin      []plant
	}{
		{"no watchdog", checker.DoubleGrant, []plant{watchdog(false)}},
		{"extends by a look", checker.DoubleGrant, nil},
		{"tokens of processes", checker.ForeignRelease, nil}, // after which it may be granted twice, or not
	} {
		t.Run(c.bug, func(t *testing.T) {
			t.Parallel()
			run := func(plants []plant) harness.RandomRun {
				l := plantedSpec(c.bug, plants...)
				l.Watchdog, l.Connects = c.twin != nil, true // as a program does, whose holds the default run extends
				r := harness.RandomRun{Topology: topologies.Single, Lock: l, Faults: faults.MixNone, Length: 3 * time.Second}
				r.Workload.Locks, r.Workload.Lease = 1, 400*time.Millisecond
				return r
			}
			runtest.Until(t, run(append(slices.Clone(c.twin), bugs[c.bug])), runtest.Setup(t), checker.Invalid, func(_ *history.History, r checker.Report) bool {
				return slices.ContainsFunc(r.Results, func(r checker.Result) bool {
					return slices.ContainsFunc(r.Violations, func(v checker.Violation) bool { return v.Kind == c.kind })
				})
			})
			runtest.Until(t, run(c.twin), runtest.Setup(t), checker.Valid, nil)
		})
	}
}

// The plans of a driver's lock meet each request that it sends, and the run says which of them were met.
func TestTries_AreMet(t *testing.T) {
	t.Parallel()
	setup := runtest.Setup(t)
	l := plantedSpec("watched", watchdog(false))
	l.Watchdog = true
	r := harness.RandomRun{
		Topology: topologies.Single, Lock: l, Kind: harness.ProgramWorkload + ",watchdog", Faults: "drop-reply,delay-command", Length: 12 * time.Second,
		Plan: faults.Schedule{
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
