package chaos_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/chaos"
	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/lock"
)

// The scripts of the locks under test.
const (
	extendOwn = `return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('PEXPIRE', KEYS[1], ARGV[2]) or 0`
	deleteOwn = `return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0`
	deleteAny = `return redis.call('DEL', KEYS[1])` // the bug of many
)

// correct is a lock of one key that expires, and buggy one whose release deletes whatever is there.
func correct() harness.LockSpec { return oneKey("one-key", deleteOwn, time.Millisecond, nil) }

func buggy() harness.LockSpec { return oneKey("one-key-buggy", deleteAny, time.Millisecond, nil) }

// oneKey is a lock of one key, with a script that releases it. Each lease is a multiple of the unit, and no shorter than was
// asked for; of a negative unit no longer, so that a key with a lease below one has no end. Each grant, or what stands in its
// way, is changed; nil: it is not.
func oneKey(name, release string, unit time.Duration, change func(*lock.Hold, error) (*lock.Hold, error)) harness.LockSpec {
	whole := func(lease time.Duration) time.Duration {
		if unit < 0 {
			return lease.Truncate(-unit)
		}
		return (lease + unit - 1).Truncate(unit)
	}
	return chaos.New(name, func(s chaos.Servers) (lock.Locker, func() error, error) {
		own := chaos.Tries(func(ctx context.Context, name string, lease time.Duration) (chaos.Grant, error) {
			token := rand.Text()
			err := s.Redis.SetArgs(ctx, name, token, redis.SetArgs{Mode: "NX", TTL: whole(lease)}).Err()
			if errors.Is(err, redis.Nil) {
				err = lock.ErrNotAcquired
			}
			run := func(ctx context.Context, script string, args ...any) error {
				done, err := s.Redis.Eval(ctx, script, []string{name}, append([]any{token}, args...)...).Int()
				if err == nil && done == 0 {
					err = lock.ErrNotHeld
				}
				return err
			}
			return chaos.Grant{
				Release: func(ctx context.Context) error { return run(ctx, release) },
				Extend: func(ctx context.Context, d time.Duration) error {
					return run(ctx, extendOwn, cmp.Or(whole(d), time.Second).Milliseconds())
				},
			}, err
		})
		if change == nil {
			return own, nil, nil
		}
		return lock.LockerFunc(func(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
			return change(own.Acquire(ctx, name, o))
		}), nil, nil
	})
}

// wraps is a correct lock of which each grant, or what stands in its way, is changed.
func wraps(name string, change func(*lock.Hold, error) (*lock.Hold, error)) harness.LockSpec {
	return oneKey(name, deleteOwn, time.Millisecond, change)
}

// panicsInAClient is a lock that panics once it is granted.
func panicsInAClient() harness.LockSpec {
	return wraps("panics-in-a-client", func(h *lock.Hold, err error) (*lock.Hold, error) {
		if err == nil {
			panic("no client")
		}
		return h, err
	})
}

// refusesAs is a lock that says by something else that it is held.
func refusesAs(name string, h *lock.Hold, err error) harness.LockSpec {
	return wraps(name, func(own *lock.Hold, ownErr error) (*lock.Hold, error) {
		if errors.Is(ownErr, lock.ErrNotAcquired) {
			return h, err
		}
		return own, ownErr
	})
}

func TestMain(m *testing.M) { chaos.Main(m, correct(), buggy(), panicsInAClient()) }

// caseVariable names the case that a sub-process of these tests is: what a test of a lock may do.
const caseVariable = "LOCKCHAOS_CHAOS_CASE"

// TestCase is what a sub-process runs.
func TestCase(t *testing.T) {
	switch os.Getenv(caseVariable) {
	case "smoke":
		chaos.Smoke(t, correct())
	case "buggy smoke":
		chaos.Smoke(t, buggy())
	case "unmapped":
		chaos.Smoke(t, refusesAs("unmapped", nil, errors.New("taken")))
	case "nothing":
		chaos.Smoke(t, refusesAs("nothing", lock.NewHold(lock.Lease{Name: "orders"}, nil), nil))
	case "cut leases":
		chaos.Smoke(t, oneKey("cut-to-nothing", deleteOwn, -time.Second, nil))
	case "buggy run":
		chaos.Run(t, buggy(), chaos.Plan{Workload: "late-release", Faults: "none", Length: 3 * time.Second})
	case "long":
		chaos.Run(t, correct(), chaos.Plan{Length: time.Minute})
	case "buggy reproduce":
		chaos.Reproduce(t, buggy(), "late-release-double-grant", chaos.Valid)
	case "panics in a client":
		chaos.Reproduce(t, panicsInAClient(), "paused-holder", chaos.Invalid)
	case "buggy simulate":
		chaos.Simulate(t, buggy(), chaos.Plan{})
	case "simulate: panics":
		chaos.Simulate(t, wraps("odd", func(*lock.Hold, error) (*lock.Hold, error) { panic("out of order") }), chaos.Plan{})
	case "bad history":
		chaos.Judge(t, chaos.Granted(t, 2900*time.Millisecond))
	}
}

// sub runs a case in a sub-process with these flags and variables, which may be killed once it has started a server, and makes
// sure that it leaves no process. It returns what that wrote, in which folder it worked, and how it ended.
func sub(t *testing.T, name string, flags, env []string, kill bool) (out, dir string, err error) {
	t.Helper()
	if testing.Short() {
		t.Skip("it starts a program that starts servers; -short leaves them out")
	}
	self, err := os.Executable()
	require.NoError(t, err)
	temp, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, append([]string{"-test.run=^TestCase$", "-test.v"}, flags...)...)
	cmd.Dir = t.TempDir()
	cmd.Env = slices.Concat(os.Environ(), []string{caseVariable + "=" + name, "TMPDIR=" + temp}, env)
	var both bytes.Buffer
	cmd.Stdout, cmd.Stderr = &both, &both
	require.NoError(t, cmd.Start())
	if kill {
		require.NoError(t, await.Until(runtest.Within(t, 20*time.Second), func() error {
			if quiet(temp) == nil {
				return errors.New("no server has started")
			}
			return nil
		}))
		require.NoError(t, cmd.Process.Kill())
	}
	err = cmd.Wait()
	require.NoError(t, await.Until(runtest.Within(t, 20*time.Second), func() error { return quiet(temp) }), "processes of the test go on")
	return both.String(), cmd.Dir, err
}

// quiet fails while a process works in a folder.
func quiet(dir string) error {
	links, err := filepath.Glob("/proc/[0-9]*/cwd")
	for _, link := range links {
		if at, err := os.Readlink(link); err == nil && strings.HasPrefix(at, dir) {
			return fmt.Errorf("%s works in %s", link, at)
		}
	}
	return err
}

// A test fails with a message that says why, and what is right. What each message says, TestFailureMessages
// and its like show without a process of their own.
func TestFailures(t *testing.T) {
	for name, want := range map[string][]string{
		"buggy smoke": {
			"a late release leaves the next holder alone: c was granted a lock that is held", "--- FAIL: TestCase/late-release",
			"✗ INVALID  Two clients held lock-1 at the same time", "go test -run '^TestCase$/^late-release$'",
		},
		"unmapped": {
			`chaos_test.go:`, `chaos.Smoke: lock unmapped returned "taken" (*errors.errorString) to a client that asked for a lock which another client held. That is none of the errors of package lock, ` +
				"so that it may have been granted: say what it means where the lock is opened, chaos.Means(err, THE ERROR, lock.ErrNotAcquired)\n",
		},
		"buggy run": {"expected valid, got invalid", "✗ INVALID  ", "at the same time"}, // of two clients, or of one
		"nothing": {
			"chaos.Smoke: lock nothing returned no error to a client that asked for a lock which another client held, and no grant that can be released (",
			"): where it says by nil or false that it is taken, return lock.ErrNotAcquired\n",
		},
		"cut leases": {
			"a lease that runs out frees the lock, and not before: the lock is not free yet", "set Endless",
			"again: go test -run '^TestCase$/^contract$/^a-lease-that-runs-out-frees-the-lock,-and-not-before$'",
			"expected valid, got unknown, twice", "no release or extension was refused because the hold was over",
		},
		"panics in a client": {"--- FAIL: TestCase/paused-holder", "client a: panic of the lock under test: no client (in Acquire of \"orders\")", "chaos_test.go"},
		"buggy simulate":     {"simulated, seed", "replayed identically: ", " · simulated", "✗ INVALID  "},
		"simulate: panics":   {"panic: out of order", "chaos_test.go"},
		"bad history":        {"expected valid, got invalid", "Two clients held the lock k at the same time"},
		"buggy reproduce":    {"expected valid, got invalid", "go test -run '^TestCase$/^late-release-double-grant$'"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var flags []string
			artifacts := t.TempDir()
			if name == "buggy reproduce" {
				flags = []string{"-test.artifacts", "-test.outputdir=" + artifacts}
			}
			out, dir, err := sub(t, name, flags, nil, false)
			require.Error(t, err, out)
			for _, w := range want {
				require.Contains(t, out, w)
			}
			at := regexp.MustCompile(`report +(/\S+)`).FindStringSubmatch(out)
			switch {
			case at == nil:
				require.NotContains(t, out, "INVALID")
			case flags != nil:
				require.Contains(t, at[1], artifacts)
				require.FileExists(t, at[1])
			default:
				require.Contains(t, at[1], filepath.Join(dir, chaos.ReportsDir))
				require.FileExists(t, at[1])
				require.FileExists(t, filepath.Join(dir, chaos.ReportsDir, ".gitignore"))
			}
		})
	}
}

// A correct lock passes, and leaves nothing behind; the contract is not that of a lock without leases.
func TestSmoke(t *testing.T) {
	endless := wraps("endless", nil)
	endless.Endless = true
	for _, l := range []harness.LockSpec{correct(), endless} {
		t.Run(l.Name, func(t *testing.T) {
			t.Parallel()
			t.Run("passes", func(t *testing.T) { chaos.Smoke(t, l) })
			left, err := filepath.Glob(filepath.Join(chaos.ReportsDir, strings.ReplaceAll(t.Name(), "/", "-")+"*"))
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
}

// Tests that run at once have servers of their own. On Sentinel, that of the examples runs. On a cluster nothing
// is broken: after a broken connection go-redis asks a cluster again by itself, so that a release whose first
// reply was lost is answered as if the lock had not been held. A lock may have leases of whole seconds: no release
// after a shorter one is late.
func TestRun(t *testing.T) {
	for name, c := range map[string]struct {
		lock harness.LockSpec
		plan chaos.Plan
	}{
		"single":        {correct(), chaos.Plan{Seeds: "1-2"}},
		"cluster":       {correct(), chaos.Plan{Topology: "cluster", Faults: faults.MixNone}},
		"whole seconds": {oneKey("whole-seconds", deleteOwn, time.Second, nil), chaos.Plan{Workload: "late-release", Faults: faults.MixNone}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.plan.Length = 2 * time.Second
			chaos.Run(t, c.lock, c.plan)
		})
	}
}

// Without a redis-server a test is skipped, and says why; if it is required, it fails. A run that the time of the
// tests cuts short is no pass, and is told of before the binary is ended.
func TestTheEnvironmentOfATest(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		test       string
		flags, env []string
		passes     bool
		want       []string
	}{
		"no server":         {"smoke", nil, []string{"PATH=/nowhere", chaos.RequireVariable + "="}, true, []string{"no redis-server (install it", "--- SKIP: TestCase"}},
		"a required server": {"smoke", nil, []string{"PATH=/nowhere", chaos.RequireVariable + "=1"}, false, []string{"LOCKCHAOS_TEST_REQUIRE is 1, and"}},
		"short":             {"smoke", []string{"-test.short"}, nil, true, []string{"-short leaves them out"}},
		"the time is over":  {"long", []string{"-test.timeout=12s"}, nil, false, []string{"the test was ended before the run (-timeout)"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, _, err := sub(t, c.test, c.flags, c.env, false)
			require.Equal(t, c.passes, err == nil, out)
			require.NotContains(t, out, "panic: test timed out")
			for _, want := range c.want {
				require.Contains(t, out, want)
			}
		})
	}
}

// A binary that is killed leaves no server.
func TestAKilledTestLeavesNoServer(t *testing.T) {
	t.Parallel()
	_, _, err := sub(t, "long", nil, nil, true)
	require.ErrorContains(t, err, "killed")
}

func TestJudge(t *testing.T) { chaos.Judge(t, chaos.Granted(t, 3100*time.Millisecond)) }

// A correct lock passes a simulation, without a server.
func TestSimulate(t *testing.T) {
	t.Setenv("PATH", "") // there is no redis-server
	before := runtime.GOMAXPROCS(0)
	chaos.Simulate(t, correct(), chaos.Plan{Seeds: "1-20"})
	chaos.Simulate(t, correct(), chaos.Plan{Topology: "sentinel", Seeds: "1-5"})
	chaos.Simulate(t, correct(), chaos.Plan{Topology: "cluster", Faults: "none", Seeds: "1-2"})
	require.Equal(t, before, runtime.GOMAXPROCS(0))
}

// A test of one's own lock compiles no other locks, no etcd, no Docker and no command line. The client of ZooKeeper, which asks its
// servers whether they serve, is one package without dependencies.
func TestWhatItImports(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{.ImportPath}}", ".").Output()
	require.NoError(t, err)
	packages := strings.Fields(string(out))
	require.Contains(t, packages, "github.com/lockchaos/lockchaos/checker")
	for _, p := range packages {
		for _, not := range []string{
			"github.com/lockchaos/lockchaos/adapters", "github.com/lockchaos/lockchaos/internal/locks",
			"github.com/lockchaos/lockchaos/topologies/container", "github.com/lockchaos/lockchaos/topologies/attach",
			"github.com/bsm", "github.com/go-redsync", "github.com/redis/rueidis", "go.etcd.io", "google.golang.org/grpc",
			"github.com/docker", "github.com/moby", "github.com/testcontainers", "github.com/spf13", "github.com/stretchr",
		} {
			require.False(t, strings.HasPrefix(p, not), p)
		}
	}
}

// The example module compiles without the workspace, as that of a user does, and its tests pass.
func TestExamples(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it starts servers; -short leaves them out")
	}
	args := []string{"test", "-count=1", "-ldflags=-w"} // linked as the other tests are
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		args = append(args, "-race") // what is compiled is that of the other tests
	}
	cmd := exec.CommandContext(t.Context(), "go", append(args, "./...")...)
	cmd.Dir, cmd.Env = filepath.Join("..", "examples"), append(os.Environ(), "GOWORK=off")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "ok  \texample.com/orders")
}
