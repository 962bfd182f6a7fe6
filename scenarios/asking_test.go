package scenarios_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/locks"
	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/scenarios"
)

// asking is a script for clients that ask for more than one lock in one way.
func asking(lock, clients, steps string) string {
	return fmt.Sprintf("name: x\ntitle: y\ntopology: single\nlock: %s\nclients: {%s}\nexpect: {verdict: valid}\nsteps:\n%s", lock, clients, steps)
}

const three = "a: zone-a, b: zone-b, c: zone-a"

// Clients read and write, take several permits, and are granted several locks together, also
// where they are processes of their own. Each step says how it must end.
func TestStepsAsk(t *testing.T) {
	t.Parallel()
	const readers = `
  - {client: a, acquire: l, mode: read, lease: 30s, until: granted}
  - {client: b, acquire: l, mode: read, lease: 30s, until: granted}
  - {client: c, acquire: l, mode: write, lease: 30s, until: refused}
  - {client: a, release: l, until: done}
  - {client: b, release: l, until: done}
  - {client: c, acquire: l, mode: write, lease: 30s, until: granted}
  - {client: b, acquire: l, mode: read, lease: 30s, until: refused}
  - {client: c, acquire: l, mode: read, again: true, lease: 30s, until: granted}
  - {client: c, release: l, first: true, until: done}
  - {client: b, acquire: l, mode: read, lease: 30s, until: granted}
  - {client: c, release: l, until: done}
`
	for _, c := range []struct{ name, lock, steps string }{
		{"readers and writers", "rwmutex", readers},
		{"processes", "rwmutex", "  - {inject: pause-client, target: c}\n  - {heal: pause-client}\n" + readers},
		{"permits", "semaphore-permit\npermits: 3", `
  - {client: a, acquire: l, permits: 2, lease: 30s, until: granted}
  - {client: b, acquire: l, permits: 2, lease: 30s, until: refused}
  - {client: b, acquire: l, lease: 30s, until: granted}
  - {client: c, acquire: l, lease: 30s, until: refused}
  - {client: a, release: l, until: done}
  - {client: c, acquire: l, permits: 2, lease: 30s, until: granted}
`},
		{"a permit", "semaphore-permit", `
  - {client: a, acquire: l, lease: 30s, until: granted}
  - {client: b, acquire: l, lease: 30s, until: refused}
`},
		{"together", "multilock", `
  - {client: a, acquire: l, and: [m, n], lease: 30s, until: granted}
  - {client: b, acquire: n, lease: 30s, until: refused}
  - {client: a, release: l, until: done}
  - {client: b, acquire: n, and: [l], lease: 30s, until: granted}
`},
		{"several by one owner", "mutex", `
  - {client: a, acquire: l, lease: 30s, until: granted}
  - {client: a, acquire: m, again: true, lease: 30s, until: granted}
  - {client: a, acquire: n, again: true, lease: 30s, until: granted}
  - {client: a, release: l, first: true, until: done}
  - {client: b, acquire: l, lease: 30s, until: granted}
  - {client: c, acquire: n, lease: 30s, until: refused}
  - {client: a, release: n, until: done}
  - {client: a, release: m, until: done}
  - {client: c, acquire: m, lease: 30s, until: granted}
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, err := scenarios.Parse("x.yaml", []byte(asking(c.lock, three, c.steps)), locks.All())
			require.NoError(t, err)
			setup := runtest.Setup(t)
			require.NoError(t, s.Run(t.Context(), setup))
			run, h, report := runtest.Judged(t, setup.Dir)
			require.Empty(t, run.AbortReason)
			require.Equal(t, checker.Valid, report.Verdict, "%+v", report)
			for _, e := range h.Events {
				if e.Op == history.Acquire {
					require.Equal(t, strings.HasPrefix(c.lock, "rwmutex"), e.Mode == history.Read || e.Mode == history.Write)
					require.Equal(t, strings.HasPrefix(c.lock, "semaphore"), e.Mode == history.Permit)
				}
			}
		})
	}
}

// What a lock can't be asked for is said before anything begins.
func TestParseSaysHowAStepAsksWrongly(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, lock, step, want string }{
		{"mode of a mutex", "mutex", "acquire: l, mode: read", "a acquires l in mode read, and lock mutex has no readers and writers"},
		{"mode", "rwmutex", "acquire: l, mode: reed", `unknown mode "reed" (did you mean read?`},
		{"permits of a mutex", "mutex", "acquire: l, permits: 2", "a acquires l with permits, and lock mutex is no semaphore"},
		{"permits of a scenario", "mutex\npermits: 2", "acquire: l", "permits are of a semaphore, and lock mutex is none"},
		{"too many permits", "semaphore\npermits: 2", "acquire: l, permits: 3", "a acquires l with 3 permits, and it has 2: say permits: 3 beside lock"},
		{"no permits", "semaphore", "acquire: l, permits: -1", "permits must be at least 1, not -1"},
		{"together", "mutex", "acquire: l, and: [m]", "a acquires l and m together, and lock mutex grants one lock at a time"},
		{"the same", "multilock", "acquire: l, and: [l]", `"and" names other locks than l, each once`},
		{"release in a mode", "rwmutex", "release: l, mode: read", `"mode", "permits", "and" and "again" go with acquire`},
		{"acquire of the first", "rwmutex", "acquire: l, first: true", `"first" goes with release`},
		{"more than there can be", "semaphore\npermits: 9223372036854775807", "acquire: l", "permits must be at most 2147483647, not 9223372036854775807"},
		{"a part of a permit", "semaphore\npermits: 1.5", "acquire: l", "x.yaml:5: permits must be a whole number, not 1.5"},
		{"a part of a permit in a step", "semaphore\npermits: 3", "acquire: l, permits: 1.5", "x.yaml:9: permits must be a whole number, not 1.5"},
		{"again for the first time", "rwmutex", "acquire: l, mode: read, again: true", "client a asks again, and has asked for no lock yet"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := scenarios.Parse("x.yaml", []byte(asking(c.lock, "a: zone-a", "  - {client: a, "+c.step+"}\n")), locks.All())
			require.ErrorContains(t, err, c.want)
		})
	}
	for steps, want := range map[string]string{
		"  - {client: a, acquire: l, background: true}\n  - {await: a, again: true}\n":                                   `x.yaml:9: step 2: "mode", "permits", "and" and "again" go with acquire`,
		"  - {client: a, acquire: l, background: true}\n  - {await: a, first: true}\n":                                   `x.yaml:9: step 2: "first" goes with release`,
		"  - {client: a, acquire: l}\n  - {client: a, release: m, first: true}\n":                                        "x.yaml:9: step 2: client a releases m, and asked for l",
		"  - {client: a, acquire: l}\n  - {client: a, acquire: m}\n  - {client: a, release: l}\n":                        "x.yaml:10: step 3: client a releases l, and asked for m",
		"  - {client: a, acquire: l}\n  - {client: a, acquire: m, again: true}\n  - {client: a, extend: n, lease: 1s}\n": "x.yaml:10: step 3: client a extends n, and asked for l and m",
	} {
		_, err := scenarios.Parse("x.yaml", []byte(asking("mutex", "a: zone-a", steps)), locks.All())
		require.ErrorContains(t, err, want)
	}
}

// A step that gives back or extends what its client does not hold ends the script, also in the
// background and where the client holds another lock.
func TestStepsGiveBackWhatIsHeld(t *testing.T) {
	t.Parallel()
	const none, other = "it was granted nothing that it could extend or release", "what it was granted first is l, and not m"
	const refused = `
  - {client: b, acquire: l, lease: 30s, until: granted}
  - {client: a, acquire: l, lease: 30s, until: refused}
`
	const both = `
  - {client: a, acquire: l, lease: 30s, until: granted}
  - {client: a, acquire: m, again: true, lease: 30s, until: granted}
`
	for _, c := range []struct{ name, steps, want string }{
		{"release", refused + "  - {client: a, release: l, first: true}\n", "step 3 (a releases l): " + none},
		{"release in the background", refused + "  - {client: a, release: l, background: true}\n  - {await: a}\n", "step 3 (a releases l): " + none},
		{"extend in the background", refused + "  - {client: a, extend: l, lease: 1s, background: true}\n  - {await: a}\n", "step 3 (a extends l): " + none},
		{"first of another lock", both + "  - {client: a, release: m, first: true}\n", "step 3 (a releases m): " + other},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, err := scenarios.Parse("x.yaml", []byte(asking("mutex", three, c.steps)), locks.All())
			require.NoError(t, err)
			setup := runtest.Setup(t)
			require.NoError(t, s.Run(t.Context(), setup))
			run, _, report := runtest.Judged(t, setup.Dir)
			require.Contains(t, run.AbortReason, c.want)
			require.Equal(t, checker.Unknown, report.Verdict)
		})
	}
}
