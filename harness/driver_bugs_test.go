//go:build linux

package harness_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/internal/runtest"
)

// bugsInPython is the command of the driver that has the lock with that planted bug, or the correct one.
func bugsInPython(t *testing.T, bug string) string {
	t.Helper()
	if err := exec.CommandContext(t.Context(), "/usr/bin/python3", "-c", "import redis").Run(); err != nil {
		runtest.Lacks(t, fmt.Errorf("redis-py is missing (make drivers installs it): %w", err))
	}
	path, err := filepath.Abs("../drivers/testdata/bugs.py")
	require.NoError(t, err)
	return path + " " + bug
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
		{"once", forgetful, "the driver gave no certain answer for 4s after the servers had closed", 200 * time.Millisecond},
		{"vague", refused, "in each of 3 tries, the last with a lease of 4s and servers awaited for 12s: the answer to the client of the other process must be fail, and is: ", time.Second},
	} {
		t.Run(c.bug, func(t *testing.T) {
			t.Parallel()
			d := one(t, runtest.Setup(t))
			_, wrong := harness.CheckOne(t.Context(), d, bugsInPython(t, c.bug), c.check, "bug", t.Output(), c.lease)
			require.ErrorContains(t, wrong, c.want)
			_, wrong = harness.CheckOne(t.Context(), d, bugsInPython(t, "correct"), c.check, "correct", t.Output(), time.Second)
			require.NoError(t, wrong)
		})
	}
}
