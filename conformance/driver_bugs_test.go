//go:build linux

package conformance_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/conformance"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/internal/runtest"
)

// inPython is the command of a driver that has the lock with that planted bug, or the correct one.
func inPython(t *testing.T, driver string) string {
	t.Helper()
	if err := exec.CommandContext(t.Context(), "/usr/bin/python3", "-c", "import redis").Run(); err != nil {
		runtest.Lacks(t, fmt.Errorf("redis-py is missing (make drivers installs it): %w", err))
	}
	path, err := filepath.Abs("../drivers/testdata/")
	require.NoError(t, err)
	return filepath.Join(path, driver)
}

// A check finds the bugs that come with the connections and the answers of a program. All other bugs are planted in
// locks in Go, which the same checks find: see [TestChecks_FindBugs].
func TestDriverChecks_FindBugs(t *testing.T) {
	t.Parallel()
	const forgetful, refused = "a lock stays held where the servers forget scripts and close connections", "a lock that is held is refused to another process"
	for _, c := range []struct {
		bug, check, want string
		lease            time.Duration
	}{
		{"desync", "a late reply is not taken for the answer to a later request", "close a connection on which a reply is outstanding", time.Second},
		{"select", forgetful, "set up each connection as the first one was", time.Second},
		{"once", forgetful, "the driver gave no certain answer for 2s after the servers had closed", 200 * time.Millisecond},
		{"vague", refused, "in each of 3 tries, the last with a lease of 4s and servers awaited for 8s: the answer to the client of the other process must be fail, and is: ", time.Second},
	} {
		t.Run(c.bug, func(t *testing.T) {
			t.Parallel()
			d := one(t, runtest.Setup(t))
			made := func(bug string, lease time.Duration) conformance.Outcome {
				return conformance.One(t.Context(), d, inPython(t, "bugs.py "+bug), harness.LockSpec{}, c.check, bug, lease)
			}
			require.ErrorContains(t, made(c.bug, c.lease).Wrong, c.want)
			requireRight(t, made("correct", time.Second))
		})
	}
}

// An extension may be as long as the first lease, where the driver says so.
func TestDriverChecks_ExtendByTheFirstLease(t *testing.T) {
	t.Parallel()
	for _, check := range []string{"an extended hold outlives its first lease", "an extension whose requests are slow is believed only while the lock is held"} {
		requireRight(t, conformance.One(t.Context(), one(t, runtest.Setup(t)), inPython(t, "bugs.py same"), harness.LockSpec{}, check, "same", time.Second))
	}
}

// Locks that are no mutex have bugs that their mutex does not show.
func TestDriverChecks_FindBugsOfKinds(t *testing.T) {
	t.Parallel()
	const shares, ends = "readers hold the lock together, and exclude writers", "a reader's lease ends its own hold alone"
	for bug, check := range map[string]string{"exclusive": shares, "looks": shares, "one-end": ends, "extends-any": ends} {
		t.Run(bug, func(t *testing.T) {
			t.Parallel()
			d := one(t, runtest.Setup(t))
			made := func(bug string) conformance.Outcome {
				return conformance.One(t.Context(), d, inPython(t, "kinds.py rw "+bug), harness.LockSpec{}, check, bug, time.Second)
			}
			wrong := made(bug).Wrong
			require.Error(t, wrong)
			requireTold(t, check, wrong)
			requireRight(t, made("correct"))
		})
	}
}

// Where a check shows that the others show nothing, these are not made: each of them would take long.
func TestDriver_Hopeless(t *testing.T) {
	t.Parallel()
	for bug, check := range map[string]string{
		"silent":  "a free lock is granted, and given back",
		"late":    "a free lock is granted, and given back",
		"waits":   "a lock that is held is refused to another process",
		"endless": "a lease that runs out frees the lock, and not before",
		"stays":   "the driver exits at the end of its input",
	} {
		if bug == "stays" && !runtest.Nightly() {
			continue // each end of the driver takes 10 s
		}
		t.Run(bug, func(t *testing.T) {
			t.Parallel()
			checks := slices.DeleteFunc(conformance.Checks(), func(c conformance.Check) bool {
				return c.Name != check && c.Name != conformance.Checks()[0].Name
			})
			for range 7 {
				checks = append(checks, checks[len(checks)-1])
			}
			command := inPython(t, "bugs.py "+bug)
			if bug == "silent" { // it does not flush its answers
				command = filepath.Join(t.TempDir(), "driver.sh")
				text := "#!/bin/sh\nread -r line\necho '{\"re\":0,\"protocol\":1,\"name\":\"silent\"}'\necho the library is there >&2\nwhile read -r line; do :; done\n"
				require.NoError(t, os.WriteFile(command, []byte(text), 0o755)) //nolint:gosec // a program
			}
			var wrong []error
			err := conformance.Brief(t.Context(), runtest.Setup(t).Backend, command, checks, func(o conformance.Outcome) {
				if o.Wrong != nil {
					wrong = append(wrong, o.Wrong)
				}
			})
			require.ErrorIs(t, err, conformance.ErrHopeless)
			require.Len(t, wrong, 1)
			requireTold(t, check, wrong[0])
		})
	}
}
