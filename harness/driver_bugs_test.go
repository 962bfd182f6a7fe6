//go:build linux

package harness_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/topologies"
)

// bugs is the command of the driver that has the lock with that planted bug, or the correct
// one. A lock misbehaves once if it needs to.
func bugs(t *testing.T, lock string) string {
	t.Helper()
	if err := exec.CommandContext(t.Context(), "/usr/bin/python3", "-c", "import redis").Run(); err != nil {
		if os.Getenv("LOCKCHAOS_TEST_REQUIRE") == "1" {
			t.Fatalf("redis-py is missing (make drivers installs it): %v", err)
		}
		t.Skipf("redis-py is missing (make drivers installs it): %v", err)
	}
	path, err := filepath.Abs("../drivers/testdata/bugs.py")
	require.NoError(t, err)
	return path + " " + lock + " " + filepath.Join(t.TempDir(), "seen")
}

// Each check of a driver that needs a lock with a certain promise or bug finds the bug, and
// has nothing to say of the correct lock.
func TestDriverChecks_Bugs(t *testing.T) {
	t.Parallel()
	config := runtest.Setup(t)
	topology, err := topologies.New(topologies.Single, topologies.Options{})
	require.NoError(t, err)
	for _, c := range []struct{ check, bug, want, correct string }{
		{"a hold without a lease is kept", "watchdog-dead", "the client of the other process was granted the lock as well", "watchdog"},
		{"a lock that was released is left alone", "watchdog-on", "something goes on after the ", "watchdog"},
		{"an owner is granted again what it holds, and gives it back as often", "reentrant-first", "the client of the other process was granted the lock as well", "reentrant"},
		{"a late release leaves the next holder alone", "plain-client", "while a later request of the same client held the lock", "plain"},
		{"a release whose reply is lost is unknown", "plain-guess", "the answer is fail, although no reply reached the driver", "plain"},
		{"a grant over slow links is believed for no longer than the servers keep it", "plain-reply", "count the lease from before the first request", "plain-brisk"},
		{"an extended hold outlives its first lease", "plain-lie", "the client of the other process was granted the lock as well", "plain"},
		{"a lease that runs out frees the lock, and not before", "plain-early", "the lock was free ", "plain"},
		{"a lease that runs out frees the lock, and not before", "plain-seconds", "the lock was free ", "plain"},
		{"a grant is believed for about as long as its lease", "plain-brief", "give the milliseconds from the request", "plain"},
		{"a grant asks the servers", "plain-memory", "another client of the process was granted the lock as well", "plain"},
		{"a request whose reply is lost is unknown", "plain-refuse", "the answer is fail", "plain"},
		{"a late release leaves the next holder alone", "plain-process", "the late release was answered with ok, while another client of the same process held the lock", "plain"},
		{"a second release leaves the next holder alone", "plain-again", "the second release freed the lock", "plain"},
		{"a release whose requests are slow leaves the next holder alone", "plain-steps", "the release freed the lock, ", "plain"},
		{"a grant whose first reply is lost is believed for no longer than the servers keep it", "plain-recount", "count the lease from before the first request", "plain-retry"},
		{"a late extension is refused, and leaves the next holder alone", "plain-foreign", "the late extension was answered with ok, while a client of another process held the lock", "plain"},
		{"an extension whose requests are slow is believed only while the lock is held", "plain-look", "compare the owner and prolong in one step on the server", "plain"},
		{"an extension whose requests are slow is believed only while the lock is held", "plain-watch", "look at what came of the transaction", "plain-watching"},
		{"an extension whose requests are slow is believed only while the lock is held", "plain-lasting", "look at what came of the transaction", "plain-grace"}, // keys outlive their leases
		{"a late reply is not taken for the answer to a later request", "plain-desync", "close a connection on which a reply is outstanding", "plain"},
		{"a lock stays held where the servers forget scripts and close connections", "plain-noscript", "when the server answers NOSCRIPT, nothing was done", "plain"},
		{"a lock stays held where the servers forget scripts and close connections", "plain-select", "set up each connection as the first one was", "plain"},
		{"a lock that is held is refused to another process", "plain-shorter", "the client of the other process was granted the lock as well", "plain"},
		{"of many clients that ask at once, one is granted the lock", "plain-races", " of 16 clients were granted the lock", "plain-shy"},
		{"an extended hold outlives its first lease", "told-stale", "said that a hold is lost that was extended", "told"},
		{"a lease that runs out frees the lock, and not before", "plain-early", "the lock was free ", "told"},
		{"tokens grow from grant to grant", "counted-alone", "the token 1 follows 1", "counted"},
		{"a late extension is refused, and leaves the next holder alone", "plain-taking", "the late extension was answered with ok, while a client of another process held the lock", "plain"},
	} {
		t.Run(c.bug, func(t *testing.T) {
			t.Parallel()
			d, err := config.Backend.Start(t.Context(), topology) // a check cuts its links
			require.NoError(t, err)
			defer func() { require.NoError(t, d.Close()) }()
			skipped, wrong := harness.CheckOne(t.Context(), d, bugs(t, c.bug), c.check, "bug", t.Output())
			require.False(t, skipped)
			require.ErrorContains(t, wrong, c.want)
			skipped, wrong = harness.CheckOne(t.Context(), d, bugs(t, c.correct), c.check, "correct", t.Output())
			require.False(t, skipped)
			require.NoError(t, wrong)
		})
	}
}

// What is told only after it was seen several times, or after a long wait, is found with short
// leases as well.
func TestDriverChecks_BugsFoundLate(t *testing.T) {
	t.Parallel()
	config := runtest.Setup(t)
	topology, err := topologies.New(topologies.Single, topologies.Options{})
	require.NoError(t, err)
	// The second of three requests of a transaction arrives after four fifths of the lease, and has to
	// arrive before its end in the last try: the last fifth is by how much it may be late on a busy machine.
	const brief, transaction = 800 * time.Millisecond, 2400 * time.Millisecond
	for _, c := range []struct {
		check, bug, want, correct string
		lease                     time.Duration
	}{
		{"a grant that is cut off half way is over with its lease", "plain-half", "acquire the lock and set its lease in one step on the server", "plain", brief},
		{"an extended hold ends with the lease of its extension", "plain-units", "give the server the lease in its own unit", "plain", brief},
		{"waiters are granted the lock in the order of their requests", "fair-last", "were granted the lock in the order [4 3 2 1]", "fair", brief},
		{"a release whose requests are slow leaves the next holder alone", "plain-tardy", "look at what came of the transaction", "plain-heeded", transaction},    // the first try is too late to show it
		{"a release whose requests are slow leaves the next holder alone", "plain-graceless", "look at what came of the transaction", "plain-grace", transaction}, // keys outlive their leases
		{"a lock stays held where the servers forget scripts and close connections", "plain-once", "the driver gave no certain answer for 16s after the servers had closed", "plain", brief},
	} {
		t.Run(c.bug, func(t *testing.T) {
			t.Parallel()
			d, err := config.Backend.Start(t.Context(), topology)
			require.NoError(t, err)
			defer func() { require.NoError(t, d.Close()) }()
			_, wrong := harness.CheckBriefly(t.Context(), d, bugs(t, c.bug), c.check, "bug", t.Output(), c.lease)
			require.ErrorContains(t, wrong, c.want)
			_, wrong = harness.CheckOne(t.Context(), d, bugs(t, c.correct), c.check, "correct", t.Output())
			require.NoError(t, wrong)
		})
	}
}

// An outcome that a driver does not know, and an extension that is confirmed behind the
// lease, are not defects of the driver: the check is made again, with more time.
func TestDriverChecks_Repeated(t *testing.T) {
	t.Parallel()
	config := runtest.Setup(t)
	topology, err := topologies.New(topologies.Single, topologies.Options{})
	require.NoError(t, err)
	for _, c := range []struct{ check, lock, want string }{
		{"a lock that is held is refused to another process", "plain-unsure", ""},
		{"an extended hold outlives its first lease", "plain-slow", ""},
		{
			"a lock that is held is refused to another process", "plain-vague",
			"in each of 3 tries, the last with a lease of 11.6s and servers awaited for 12s: the answer to the client of the other process must be fail, and is: ",
		},
	} {
		t.Run(c.lock, func(t *testing.T) {
			t.Parallel()
			d, err := config.Backend.Start(t.Context(), topology)
			require.NoError(t, err)
			defer func() { require.NoError(t, d.Close()) }()
			command := bugs(t, c.lock)
			skipped, wrong := harness.CheckOne(t.Context(), d, command, c.check, "bug", t.Output())
			require.False(t, skipped)
			if c.want != "" {
				require.ErrorContains(t, wrong, c.want)
				return
			}
			require.NoError(t, wrong)
			require.FileExists(t, strings.Fields(command)[2], "the first try met the bug")
		})
	}
}

// The default run of a driver exercises what it promises: the bug is convicted, and the
// correct lock is not.
func TestDriverRuns_Bugs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ bug, kind, correct string }{
		{"watchdog-dead", checker.DoubleGrant, "watchdog"},
		{"reentrant-first", checker.DoubleGrant, "reentrant"},
		{"plain-lie", checker.DoubleGrant, "plain"},
		{"plain-process", checker.ForeignRelease, "plain"}, // after which it may be granted twice, or not
		{"plain-forever", checker.Stuck, "plain"},
	} {
		t.Run(c.bug, func(t *testing.T) {
			t.Parallel()
			run := func(lock string, seed uint64) checker.Report {
				spec, err := harness.Program(bugs(t, lock))
				require.NoError(t, err)
				config := runtest.Setup(t)
				config.Backend, config.Seed = runtest.Backend{}, seed
				r := harness.RandomRun{Topology: topologies.Single, Lock: spec, Faults: faults.MixNone, Length: 10 * time.Second}
				if c.kind == checker.Stuck {
					r.Length = 30 * time.Second // it must be free and asked for during 10 of them
				}
				r.Workload.Locks = 1
				require.NoError(t, r.Run(t.Context(), config))
				_, _, report := runtest.Judged(t, config.Dir)
				return report
			}
			for seed := uint64(1); ; seed++ { // the occasion is a matter of chance
				report := run(c.bug, seed)
				if slices.Contains(kindsOf(report), c.kind) {
					break
				}
				require.Less(t, seed, uint64(5), "%+v", report)
			}
			require.NotEqual(t, checker.Invalid, run(c.correct, 1).Verdict)
		})
	}
}

// kindsOf are the kinds of all violations.
func kindsOf(report checker.Report) (kinds []string) {
	for _, r := range report.Results {
		for _, v := range r.Violations {
			kinds = append(kinds, v.Kind)
		}
	}
	return kinds
}
