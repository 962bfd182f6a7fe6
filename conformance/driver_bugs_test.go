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

// A check finds the bugs that come with the connections and the answers of a program, and those of locks that are no mutex,
// which their mutex does not show. All other bugs are planted in locks in Go, which the same checks find: see
// [TestChecks_FindBugs].
func TestDriverChecks_FindBugs(t *testing.T) {
	t.Parallel()
	for _, b := range bugs(t) {
		if b.Driver == "" {
			continue
		}
		t.Run(b.Bug, func(t *testing.T) {
			t.Parallel()
			d := one(t, runtest.Setup(t))
			made := func(bug string, lease time.Duration) conformance.Outcome {
				return conformance.One(t.Context(), d, inPython(t, b.Driver+" "+bug), harness.LockSpec{}, b.Check, bug, lease)
			}
			requireTold(t, b, made(b.Bug, b.Lease).Wrong)
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

// Where a check shows that the others show nothing, these are not made: each of them would take long.
func TestDriver_Hopeless(t *testing.T) {
	t.Parallel()
	const free = "a free lock is granted, and given back"
	for bug, check := range map[string]string{
		"silent": free, "late": free, "waits": "a lock that is held is refused to another process",
		"endless": "a lease that runs out frees the lock, and not before", "stays": "the driver exits at the end of its input",
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
			requireTold(t, bugNamed(t, bug), wrong[0])
		})
	}
}
