package chaos_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/chaos"
	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/lock"
)

// The scripts of the locks under test.
const (
	extendOwn = `return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('PEXPIRE', KEYS[1], ARGV[2]) or 0`
	deleteOwn = `return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0`
	deleteAny = `return redis.call('DEL', KEYS[1])` // the bug of many
)

// oneKey is a lock of one key that expires, with a script that releases it.
func oneKey(name, release string) harness.LockSpec {
	return chaos.New(name, func(s chaos.Servers) (lock.Locker, func() error, error) {
		return locker(s.Redis, release, extendOwn, time.Millisecond), nil, nil
	})
}

// extendsAny is a lock whose extension does not look at the owner; cuts is one whose leases
// are whole seconds.
func extendsAny() harness.LockSpec {
	return chaos.New("one-key-extends-any", func(s chaos.Servers) (lock.Locker, func() error, error) {
		return locker(s.Redis, deleteOwn, `return redis.call('PEXPIRE', KEYS[1], ARGV[2])`, time.Millisecond), nil, nil
	})
}

// deletesAgain is a lock whose second release deletes whatever lock is there, and confirmsAgain
// one that confirms a release again, and does nothing.
func deletesAgain() harness.LockSpec { return releasedAgain("one-key-deletes-again", deleteAny) }

func confirmsAgain() harness.LockSpec { return releasedAgain("one-key-confirms-again", `return 1`) }

func releasedAgain(name, script string) harness.LockSpec {
	return chaos.New(name, func(s chaos.Servers) (lock.Locker, func() error, error) {
		own := locker(s.Redis, deleteOwn, extendOwn, time.Millisecond)
		return chaos.Tries(func(ctx context.Context, name string, lease time.Duration) (chaos.Grant, error) {
			h, err := own.Acquire(ctx, name, lock.Options{Lease: lease})
			if err != nil {
				return chaos.Grant{}, err
			}
			released := false
			return chaos.Grant{
				Release: func(ctx context.Context) error {
					if released {
						return s.Redis.Eval(ctx, script, []string{name}).Err()
					}
					err := h.Release(ctx)
					released = err == nil
					return err
				},
				Extend: h.Extend,
			}, nil
		}), nil, nil
	})
}

// granting is a correct lock of which each grant is changed.
func granting(name string, change func(s chaos.Servers, key string, g *chaos.Grant) error) harness.LockSpec {
	return chaos.New(name, func(s chaos.Servers) (lock.Locker, func() error, error) {
		own := locker(s.Redis, deleteOwn, extendOwn, time.Millisecond)
		return chaos.Tries(func(ctx context.Context, key string, lease time.Duration) (chaos.Grant, error) {
			h, err := own.Acquire(ctx, key, lock.Options{Lease: lease})
			g := chaos.Grant{}
			if err == nil {
				g.Release, g.Extend, g.Expires = h.Release, h.Extend, h.Lease().Expires
				err = change(s, key, &g)
			}
			return g, err
		}), nil, nil
	})
}

// getThenDelete looks at the owner in a step of its own before it deletes.
func getThenDelete() harness.LockSpec {
	return granting("get-then-delete", func(s chaos.Servers, key string, g *chaos.Grant) error {
		token, err := s.Redis.Get(context.Background(), key).Result()
		g.Release = func(ctx context.Context) error {
			switch owner, err := s.Redis.Get(ctx, key).Result(); {
			case errors.Is(err, redis.Nil), err == nil && owner != token:
				return lock.ErrNotHeld
			case err != nil:
				return err
			}
			return s.Redis.Del(ctx, key).Err()
		}
		return err
	})
}

// fromReply counts its lease from the reply.
func fromReply() harness.LockSpec {
	return chaos.New("from-reply", func(s chaos.Servers) (lock.Locker, func() error, error) {
		own := locker(s.Redis, deleteOwn, extendOwn, time.Millisecond)
		return chaos.Tries(func(ctx context.Context, key string, lease time.Duration) (chaos.Grant, error) {
			h, err := own.Acquire(ctx, key, lock.Options{Lease: lease})
			if err != nil {
				return chaos.Grant{}, err
			}
			return chaos.Grant{Release: h.Release, Expires: time.Now().Add(lease)}, nil
		}), nil, nil
	})
}

// refusesUnknown takes every error for a refusal.
func refusesUnknown() harness.LockSpec {
	return chaos.New("refuses-unknown", func(s chaos.Servers) (lock.Locker, func() error, error) {
		own := locker(s.Redis, deleteOwn, extendOwn, time.Millisecond)
		return lock.LockerFunc(func(ctx context.Context, key string, o lock.Options) (*lock.Hold, error) {
			h, err := own.Acquire(ctx, key, o)
			return h, chaos.Means(err, err, lock.ErrNotAcquired)
		}), nil, nil
	})
}

// inMemory asks no server.
func inMemory() harness.LockSpec {
	free := make(chan struct{}, 1)
	free <- struct{}{}
	return returns(chaos.Tries(func(context.Context, string, time.Duration) (chaos.Grant, error) {
		select {
		case <-free:
			return chaos.Grant{Release: func(context.Context) error { free <- struct{}{}; return nil }}, nil
		default:
			return chaos.Grant{}, lock.ErrNotAcquired
		}
	}), nil, nil)
}

// endless has no lease.
func endless() harness.LockSpec {
	l := oneKey("endless", deleteOwn)
	l.Endless = true
	return l
}

// watched is a lock that keeps each grant alive until its release, as a watchdog does that is
// never late.
func watched() harness.LockSpec {
	return granting("watched", func(s chaos.Servers, key string, g *chaos.Grant) error {
		keep := func(ctx context.Context, over error) error {
			kept, err := s.Redis.Persist(ctx, key).Result()
			if err == nil && !kept { // its lease ended before the request arrived
				return over
			}
			return err
		}
		extend := g.Extend
		g.Extend = func(ctx context.Context, lease time.Duration) error {
			if err := extend(ctx, lease); err != nil {
				return err
			}
			return keep(ctx, lock.ErrNotHeld)
		}
		return keep(context.Background(), lock.ErrNotAcquired)
	})
}

func cuts() harness.LockSpec {
	return chaos.New("one-key-cuts", func(s chaos.Servers) (lock.Locker, func() error, error) {
		return locker(s.Redis, deleteOwn, extendOwn, time.Second), nil, nil
	})
}

func correct() harness.LockSpec { return oneKey("one-key", deleteOwn) }

func buggy() harness.LockSpec { return oneKey("one-key-buggy", deleteAny) }

func locker(rdb redis.UniversalClient, release, extend string, unit time.Duration) lock.Locker {
	return chaos.Tries(func(ctx context.Context, name string, lease time.Duration) (chaos.Grant, error) {
		token := rand.Text()
		ttl := max(lease.Truncate(unit), unit)
		if lease == 0 {
			ttl = 0
		}
		err := rdb.SetArgs(ctx, name, token, redis.SetArgs{Mode: "NX", TTL: ttl}).Err()
		if errors.Is(err, redis.Nil) {
			err = lock.ErrNotAcquired
		}
		run := func(ctx context.Context, script string, args ...any) error {
			done, err := rdb.Eval(ctx, script, []string{name}, append([]any{token}, args...)...).Int()
			if err == nil && done == 0 {
				err = lock.ErrNotHeld
			}
			return err
		}
		return chaos.Grant{
			Release: func(ctx context.Context) error { return run(ctx, release) },
			Extend:  func(ctx context.Context, d time.Duration) error { return run(ctx, extend, d.Milliseconds()) },
		}, err
	})
}

// short is a plan that ends soon.
func short() chaos.Plan { return chaos.Plan{Faults: faults.MixNone, Length: time.Second} }

// caseVariable names the case that a sub-process of these tests is.
const caseVariable = "LOCKCHAOS_CHAOS_CASE"

// returns is a lock whose Open returns this.
func returns(l lock.Locker, closeLock func() error, err error) harness.LockSpec {
	return chaos.New("odd", func(chaos.Servers) (lock.Locker, func() error, error) { return l, closeLock, err })
}

// acquires is a lock with such an Acquire.
func acquires(f lock.LockerFunc) harness.LockSpec { return returns(f, nil, nil) }

// tries is a lock with such a Try.
func tries(g chaos.Grant, err error) harness.LockSpec {
	return returns(chaos.Tries(func(context.Context, string, time.Duration) (chaos.Grant, error) { return g, err }), nil, nil)
}

// refusesFirst is a correct lock that refuses every request of the first run of a test.
func refusesFirst() harness.LockSpec {
	return chaos.New("refuses-first", func(s chaos.Servers) (lock.Locker, func() error, error) {
		own := locker(s.Redis, deleteOwn, extendOwn, time.Millisecond)
		return lock.LockerFunc(func(ctx context.Context, key string, o lock.Options) (*lock.Hold, error) {
			if second, err := filepath.Glob(filepath.Join(chaos.ReportsDir, "*-2")); err != nil || len(second) == 0 {
				return nil, errors.Join(lock.ErrNotAcquired, err)
			}
			return own.Acquire(ctx, key, o)
		}), nil, nil
	})
}

var errDown = errors.New("link down")

// panicking is a keeper that was never finished.
type panicking struct{}

func (panicking) Extend(context.Context, lock.Lease, time.Duration) (time.Time, error) {
	panic("no keeper")
}

func (panicking) Release(context.Context, lock.Lease) error { panic("no keeper") }

// panicsInAClient is a lock that panics once it is granted.
func panicsInAClient() harness.LockSpec {
	return granting("panics-in-a-client", func(chaos.Servers, string, *chaos.Grant) error { panic("no client") })
}

func TestMain(m *testing.M) { chaos.Main(m, correct(), buggy(), panicsInAClient()) }

// TestCase is what a sub-process runs: what a test of a lock may do.
func TestCase(t *testing.T) {
	switch name := os.Getenv(caseVariable); name {
	case "":
		t.Skip("it is for the sub-processes of the other tests")
	case "buggy smoke":
		chaos.Smoke(t, buggy())
	case "extends any smoke":
		chaos.Smoke(t, extendsAny())
	case "deletes again smoke":
		chaos.Smoke(t, deletesAgain())
	case "confirms again smoke":
		chaos.Smoke(t, confirmsAgain())
	case "cuts smoke":
		chaos.Smoke(t, cuts())
	case "get then delete smoke":
		chaos.Smoke(t, getThenDelete())
	case "get then delete run":
		chaos.Run(t, getThenDelete(), chaos.Plan{Seeds: "1-3"})
	case "from reply smoke":
		chaos.Smoke(t, fromReply())
	case "refuses unknown smoke":
		chaos.Smoke(t, refusesUnknown())
	case "in memory run":
		chaos.Run(t, inMemory(), chaos.Plan{Faults: faults.MixNone, Workload: "contended", Length: 2 * time.Second})
	case "endless smoke":
		chaos.Smoke(t, endless())
	case "watched smoke":
		chaos.Smoke(t, watched())
	case "buggy simulate":
		chaos.Simulate(t, buggy(), chaos.Plan{})
	case "simulate: never granted":
		chaos.Simulate(t, tries(chaos.Grant{}, errDown), chaos.Plan{Seeds: "1-3"})
	case "simulate: asks nobody":
		chaos.Simulate(t, tries(chaos.Grant{Release: func(context.Context) error { return nil }}, nil), chaos.Plan{Seeds: "1-3"})
	case "simulate: blocks":
		chaos.Simulate(t, acquires(func(context.Context, string, lock.Options) (*lock.Hold, error) { select {} }), chaos.Plan{Seeds: "1-3"})
	case "simulate: leaves goroutines":
		chaos.Simulate(t, chaos.New("leaves-goroutines", func(s chaos.Servers) (lock.Locker, func() error, error) {
			go func() { <-make(chan int) }()
			return locker(s.Redis, deleteOwn, extendOwn, time.Millisecond), nil, nil
		}), chaos.Plan{Seeds: "1-3"})
	case "simulate: another network":
		chaos.Simulate(t, chaos.New("elsewhere", func(chaos.Servers) (lock.Locker, func() error, error) {
			rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
			return locker(rdb, deleteOwn, extendOwn, time.Millisecond), rdb.Close, nil
		}), chaos.Plan{Seeds: "1"})
	case "simulate: panics":
		chaos.Simulate(t, acquires(func(context.Context, string, lock.Options) (*lock.Hold, error) { panic("out of order") }), chaos.Plan{})
	case "length of simulate":
		chaos.Simulate(t, correct(), chaos.Plan{Length: time.Second, Topology: "clutser", Seeds: "x"})
	case "buggy run":
		chaos.Run(t, buggy(), chaos.Plan{Workload: "late-release", Faults: "none", Length: 3 * time.Second})
	case "buggy reproduce":
		chaos.Reproduce(t, buggy(), "late-release-double-grant", chaos.Valid)
	case "unexpectedly valid":
		chaos.Reproduce(t, correct(), "late-release-double-grant/owner-checked", chaos.Invalid)
	case "never granted":
		chaos.Run(t, tries(chaos.Grant{}, errDown), short())
	case "refuses first":
		chaos.Run(t, refusesFirst(), chaos.Plan{Workload: "release-twice", Faults: faults.MixNone, Length: 2 * time.Second})
	case "open fails":
		chaos.Run(t, returns(nil, nil, errDown), short())
	case "open fails in smoke":
		chaos.Smoke(t, returns(nil, nil, errDown))
	case "opens nothing":
		chaos.Run(t, returns(nil, nil, nil), short())
	case "returns nothing":
		chaos.Run(t, acquires(func(context.Context, string, lock.Options) (*lock.Hold, error) {
			return nil, nil //nolint:nilnil // that is what it is for
		}), short())
	case "no release":
		chaos.Run(t, tries(chaos.Grant{}, nil), short())
	case "close blocks":
		chaos.Run(t, chaos.New("slow-to-close", func(s chaos.Servers) (lock.Locker, func() error, error) {
			return locker(s.Redis, deleteOwn, extendOwn, time.Millisecond), func() error { select {} }, nil
		}), chaos.Plan{Length: 2 * time.Second})
	case "close fails":
		chaos.Run(t, chaos.New("odd", func(s chaos.Servers) (lock.Locker, func() error, error) {
			return locker(s.Redis, deleteOwn, extendOwn, time.Millisecond), func() error { return errDown }, nil
		}), chaos.Plan{Length: 2 * time.Second})
	case "acquire ignores its context":
		chaos.Run(t, acquires(func(context.Context, string, lock.Options) (*lock.Hold, error) { select {} }), short())
	case "panics":
		chaos.Run(t, acquires(func(context.Context, string, lock.Options) (*lock.Hold, error) { panic("out of order") }), short())
	case "panics in smoke":
		chaos.Smoke(t, granting("panics", func(_ chaos.Servers, _ string, g *chaos.Grant) error {
			g.Release = func(context.Context) error { panic("no token") }
			return nil
		}))
	case "panics in an extension":
		chaos.Run(t, granting("panics", func(_ chaos.Servers, _ string, g *chaos.Grant) error {
			g.Extend = func(context.Context, time.Duration) error { panic("no token") }
			return nil
		}), chaos.Plan{Workload: "release-twice", Faults: faults.MixNone, Length: time.Second}) // whose clients all extend, however few are granted the lock
	case "panics in a keeper":
		chaos.Run(t, acquires(func(_ context.Context, name string, o lock.Options) (*lock.Hold, error) {
			return lock.NewHold(lock.Lease{Name: name, Owner: o.Owner, Length: o.Lease, Expires: time.Now().Add(o.Lease)}, panicking{}), nil
		}), short())
	case "panics in a client":
		chaos.Reproduce(t, panicsInAClient(), "paused-holder", chaos.Invalid)
	case "watched run":
		chaos.Run(t, watched(), chaos.Plan{Workload: "late-release", Faults: faults.MixNone, Length: 3 * time.Second})
	case "open panics":
		chaos.Run(t, chaos.New("odd", func(chaos.Servers) (lock.Locker, func() error, error) { panic("no config") }), short())
	case "close panics":
		chaos.Run(t, chaos.New("odd", func(s chaos.Servers) (lock.Locker, func() error, error) {
			return locker(s.Redis, deleteOwn, extendOwn, time.Millisecond), func() error { panic("closed before") }, nil
		}), short())
	case "no lock":
		chaos.Run(t, harness.LockSpec{}, short())
	case "no open":
		chaos.Smoke(t, chaos.New("mine", nil))
	case "no name":
		chaos.Smoke(t, oneKey("", deleteOwn))
	case "unknown topology":
		chaos.Run(t, correct(), chaos.Plan{Topology: "single,sentinels"})
	case "unknown fault":
		chaos.Run(t, correct(), chaos.Plan{Faults: "netwrk"})
	case "unknown workload":
		chaos.Run(t, correct(), chaos.Plan{Workload: "contented"})
	case "bad seeds":
		chaos.Run(t, correct(), chaos.Plan{Seeds: "1..5"})
	case "bad length":
		chaos.Run(t, correct(), chaos.Plan{Length: -time.Second})
	case "unknown scenario":
		chaos.Reproduce(t, correct(), "failover-doublegrant", chaos.Invalid)
	case "unknown verdict":
		chaos.Reproduce(t, correct(), "late-release-double-grant", "invald")
	case "no file":
		chaos.Reproduce(t, correct(), "mine.yaml", chaos.Valid)
	case "not served":
		chaos.Reproduce(t, oneKey("other", deleteOwn), "paused-holder", chaos.Invalid)
	case "smoke":
		chaos.Smoke(t, correct())
	case "long":
		chaos.Run(t, correct(), chaos.Plan{Topology: "sentinel", Length: time.Minute})
	case "bad history":
		chaos.Judge(t, twice(t))
	case "several clocks":
		h := twice(t)
		for i := range h.Events {
			h.Events[i].Clock = fmt.Sprintf("host-%d", h.Events[i].Process)
		}
		chaos.Judge(t, h)
	case "no history":
		chaos.Judge(t, nil)
	default:
		t.Fatalf("there is no case %q", name)
	}
}

// A finished is a sub-process that has ended.
type finished struct {
	out string
	err error
	dir string // in which it worked
}

// sub runs a case in a sub-process with these flags and variables, and makes sure
// that it leaves no process.
func sub(t *testing.T, name string, flags, env []string) finished {
	t.Helper()
	return subUntil(t.Context(), t, name, flags, env, func(string) {})
}

// subUntil kills the sub-process when the context ends. Beside it goes on what is
// given the folder of its servers.
func subUntil(ctx context.Context, t *testing.T, name string, flags, env []string, beside func(temp string)) finished {
	t.Helper()
	if testing.Short() {
		t.Skip("it starts a program that starts servers; -short leaves them out")
	}
	self, err := os.Executable()
	require.NoError(t, err)
	temp, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	f := finished{dir: t.TempDir()}
	cmd := exec.CommandContext(ctx, self, append([]string{"-test.run=^TestCase$", "-test.v"}, flags...)...)
	cmd.Dir = f.dir
	cmd.Env = slices.Concat(os.Environ(), []string{caseVariable + "=" + name, "TMPDIR=" + temp}, env)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Start())
	beside(temp)
	f.err = cmd.Wait()
	f.out = out.String()
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	require.NoError(t, await.Until(limited, func() error { return quiet(temp) }), "processes of the test go on")
	return f
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

// A test fails with a message that says why, and what is right.
func TestFailures(t *testing.T) {
	for name, want := range map[string][]string{
		"buggy smoke": {
			"a late release leaves the next holder alone: c was granted a lock that is held", "--- FAIL: TestCase/late-release",
			"✗ INVALID  Two clients held lock-1 at the same time", "go test -run '^TestCase$/^late-release$'",
		},
		"extends any smoke": {
			"an extension after the lease is refused: Extend after the lease returned", "--- FAIL: TestCase/release-twice",
			"✗ INVALID  An extension of lock-1 was confirmed for client", "compare the owner and prolong in one step on the server",
		},
		"deletes again smoke": {
			"a second release is refused: c was granted a lock that is held", "--- FAIL: TestCase/release-twice",
			"✗ INVALID  Two clients held lock-1 at the same time",
		},
		"get then delete smoke": {"a release whose requests are slow leaves the next holder alone: the release freed the lock"},
		"get then delete run": {
			"✗ INVALID  ", "at the same time", "was held back", "compare the owner and delete in one step on the server",
		},
		"from reply smoke":            {"a grant over slow links is believed for no longer than the servers keep it: a client of another process was granted the lock"},
		"refuses unknown smoke":       {"a request whose reply is lost is unknown: the answer is ErrNotAcquired, although no reply reached the lock"},
		"in memory run":               {"expected valid, got unknown, twice", "requests reached the servers over the links: the lock answers from memory, or reaches the servers past the proxies"},
		"watched smoke":               {"a lease that ends lets the next one in: the lock is not free after the end of the lease of 1.5s", "If a watchdog of the lock extends each grant until its release, set Endless."},
		"watched run":                 {"got unknown, twice", "a lock was refused long after the lease of its holder had ended. If a watchdog of the lock extends each grant until its release, set Endless."},
		"cuts smoke":                  {"a lease that ends lets the next one in: the next one was let in"},
		"buggy simulate":              {"simulated, seed", "replayed identically: ", " · simulated", "✗ INVALID  "},
		"simulate: never granted":     {"nothing is known of lock odd: no client was granted it in 3 runs (a request ended with: link down)"},
		"simulate: asks nobody":       {"seed 1: lock odd was granted without a request to the simulated servers"},
		"simulate: blocks":            {"seed 1: lock odd never returns from a call", "chaos_test.go"},
		"simulate: leaves goroutines": {"seed 1: lock leaves-goroutines leaves goroutines that wait for ever", "chaos_test.go"},
		"simulate: another network":   {"nothing is known of lock elsewhere", "connect"},
		"simulate: panics":            {"panic: out of order", "chaos_test.go"},
		"length of simulate":          {"leave out Workload and Length", `unknown simulated topology "clutser"`, "seeds: want whole numbers"},
		"buggy run":                   {"expected valid, got invalid", "✗ INVALID  ", "at the same time"}, // of two clients, or of one
		"buggy reproduce":             {"expected valid, got invalid", "✗ INVALID  Two clients held the lock orders at the same time", "go test -run '^TestCase$/^late-release-double-grant$'"},
		"unexpectedly valid":          {"expected invalid, got valid"},
		"never granted":               {"expected valid, got unknown, twice", "? UNKNOWN", "link down"},
		"open fails":                  {"the run failed: open lock odd for zone-a: link down"},
		"open fails in smoke":         {"open lock odd: link down", "open lock odd for zone-a: link down"},
		"opens nothing":               {"open lock odd for zone-a: Open returned neither a lock nor an error"},
		"returns nothing":             {"expected valid, got unknown, twice", "neither a hold nor an error"},
		"no release":                  {"expected valid, got unknown, twice", "set Grant.Release"},
		"close blocks":                {"closing the lock takes longer than 5s"},
		"close fails":                 {"closing the lock failed: link down"},
		"acquire ignores its context": {"Acquire ignores its context", "got unknown"},
		"panics":                      {"--- FAIL: TestCase/single-seed-1", "panic of the lock under test: out of order", "chaos_test.go", "expected valid, got unknown"},
		"panics in an extension":      {"--- FAIL: TestCase/single-seed-1", "panic of the lock under test: no token", "chaos_test.go"},
		"panics in a keeper":          {"--- FAIL: TestCase/single-seed-1", "panic of the lock under test: no keeper (in Release of \"lock-1\")", "chaos_test.go"},
		"panics in a client":          {"--- FAIL: TestCase/paused-holder", "client a: panic of the lock under test: no client (in Acquire of \"orders\")", "chaos_test.go"},
		"panics in smoke": {
			"--- FAIL: TestCase/contract/a-held-lock-is-refused", "--- FAIL: TestCase/contract/the-calls-of-the-lock", "--- FAIL: TestCase/release-twice",
			"panic of the lock under test: no token", "chaos_test.go",
		},
		"open panics":      {"the run failed: open lock odd for zone-a: panic of the lock under test: no config", "chaos_test.go"},
		"close panics":     {"--- FAIL: TestCase/single-seed-1", "panic of the lock under test: closed before", "chaos_test.go"},
		"no lock":          {"chaos.Run: a lock under test needs a name"},
		"no open":          {"lock mine can't be opened: set Open"},
		"no name":          {"chaos.Smoke: a lock under test needs a name"},
		"unknown topology": {`unknown topology "sentinels" (did you mean sentinel?`},
		"unknown fault":    {`"netwrk" (did you mean network?`},
		"unknown workload": {`unknown workload "contented" (did you mean contended?`},
		"bad seeds":        {`chaos.Run: seeds: want whole numbers and ranges such as 1-200 or 3,7,20-29, and not "1..5"`},
		"bad length":       {"chaos.Run: duration must be above 0, not -1s"},
		"unknown scenario": {`unknown scenario "failover-doublegrant" (did you mean failover-double-grant?`},
		"unknown verdict":  {`chaos.Reproduce: unknown verdict "invald" (did you mean invalid?`},
		"no file":          {"read scenario: open mine.yaml: no such file"},
		"not served":       {"chaos.Main", "with lock other"},
		"bad history":      {"expected valid, got invalid", "Two clients held the lock k at the same time"},
		"several clocks":   {"chaos.Judge: the stamps are of 2 clocks", "lockchaos check --clock-error"},
		"no history":       {"chaos.Judge: there is no history"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := sub(t, name, nil, nil)
			require.Error(t, f.err, f.out)
			for _, w := range want {
				require.Contains(t, f.out, w)
			}
			if at := regexp.MustCompile(`report +(/\S+)`).FindStringSubmatch(f.out); at != nil {
				require.FileExists(t, at[1])
				require.Contains(t, at[1], filepath.Join(f.dir, chaos.ReportsDir))
				require.FileExists(t, filepath.Join(f.dir, chaos.ReportsDir, ".gitignore"))
			} else {
				require.NotContains(t, f.out, "INVALID")
			}
		})
	}
}

// A correct lock passes, also one that confirms a release again, and leaves nothing behind.
func TestSmoke(t *testing.T) {
	for _, name := range []string{"smoke", "confirms again smoke", "endless smoke"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := sub(t, name, nil, nil)
			require.NoError(t, f.err, f.out)
			require.Equal(t, name == "endless smoke", strings.Contains(f.out, "its grants have no end"), f.out)
			left, err := os.ReadDir(f.dir)
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
}

// A run whose verdict is unknown is repeated once. Nothing of either stays if the second is
// valid, and the test says why there was a second.
func TestSecondRun(t *testing.T) {
	t.Parallel()
	f := sub(t, "refuses first", nil, nil)
	require.NoError(t, f.err, f.out)
	require.Contains(t, f.out, "a second run: the first was unknown: ")
	left, err := os.ReadDir(f.dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

// Tests that run at once have servers of their own. On a cluster nothing is broken:
// after a broken connection go-redis asks a cluster again by itself, so that a
// release whose first reply was lost is answered as if the lock had not been held.
func TestRun(t *testing.T) {
	for topology, mix := range map[string]string{"single": "", "sentinel": "", "cluster": faults.MixNone} {
		t.Run(topology, func(t *testing.T) {
			t.Parallel()
			chaos.Run(t, correct(), chaos.Plan{Topology: topology, Faults: mix, Seeds: "1-2", Length: 2 * time.Second})
		})
	}
}

func TestReproduce(t *testing.T) {
	for scenario, l := range map[string]harness.LockSpec{"late-release-double-grant": buggy(), "paused-holder": correct(), "failover-double-grant": correct()} {
		t.Run(scenario, func(t *testing.T) {
			t.Parallel()
			chaos.Reproduce(t, l, scenario, chaos.Invalid)
		})
	}
	chaos.Reproduce(t, correct(), "late-release-double-grant/owner-checked", chaos.Valid)
}

// Without a redis-server a test is skipped, and says why; if it is required, it fails.
func TestWithoutAServer(t *testing.T) {
	t.Parallel()
	f := sub(t, "smoke", nil, []string{"PATH=" + t.TempDir(), chaos.RequireVariable + "="})
	require.NoError(t, f.err, f.out)
	require.Contains(t, f.out, "no redis-server (install it")
	require.Contains(t, f.out, "--- SKIP: TestCase")
	f = sub(t, "smoke", nil, []string{"PATH=" + t.TempDir(), chaos.RequireVariable + "=1"})
	require.Error(t, f.err, f.out)
	require.Contains(t, f.out, "LOCKCHAOS_TEST_REQUIRE is 1, and")
	f = sub(t, "smoke", []string{"-test.short"}, nil)
	require.NoError(t, f.err, f.out)
	require.Contains(t, f.out, "-short leaves them out")
}

// A run that the time of the tests cuts short is no pass, and is told of before the
// binary is ended.
func TestTheTimeOfTheTestsEndsARun(t *testing.T) {
	t.Parallel()
	f := sub(t, "long", []string{"-test.timeout=15s"}, nil)
	require.Error(t, f.err, f.out)
	require.Contains(t, f.out, "the test was ended before the run (-timeout)")
	require.NotContains(t, f.out, "panic: test timed out")
}

// A binary that is killed leaves no server.
func TestAKilledTestLeavesNoServer(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	f := subUntil(ctx, t, "long", nil, nil, func(temp string) {
		limited, end := context.WithTimeout(ctx, 20*time.Second)
		defer end()
		assert.NoError(t, await.Until(limited, func() error {
			if quiet(temp) == nil {
				return errors.New("no server has started")
			}
			return nil
		}))
		cancel()
	})
	require.ErrorContains(t, f.err, "killed")
}

// Artifacts go where go test wants them.
func TestArtifacts(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	f := sub(t, "buggy reproduce", []string{"-test.artifacts", "-test.outputdir=" + out}, nil)
	require.Error(t, f.err, f.out)
	at := regexp.MustCompile(`report +(/\S+)`).FindStringSubmatch(f.out)
	require.NotNil(t, at, f.out)
	require.FileExists(t, at[1])
	require.Contains(t, at[1], out)
}

// twice is a history in which a lock was granted twice.
func twice(t *testing.T) *history.History {
	t.Helper()
	h, err := history.ReadAll(strings.NewReader(`
{"time":0,"process":1,"type":"invoke","op":"acquire","lock":"k","owner":"a","lease":3000000000}
{"time":1000000,"process":1,"type":"ok","op":"acquire","lock":"k","owner":"a","expires":3000000000}
{"time":2000000000,"process":2,"type":"invoke","op":"acquire","lock":"k","owner":"b","lease":3000000000}
{"time":2900000000,"process":2,"type":"ok","op":"acquire","lock":"k","owner":"b","expires":5000000000}
`))
	require.NoError(t, err)
	return h
}

func TestJudge(t *testing.T) {
	h, err := history.ReadAll(strings.NewReader(`
{"time":0,"process":1,"type":"invoke","op":"acquire","lock":"k","owner":"a","lease":3000000000}
{"time":1000000,"process":1,"type":"ok","op":"acquire","lock":"k","owner":"a","expires":3000000000}
{"time":2000000000,"process":2,"type":"invoke","op":"acquire","lock":"k","owner":"b","lease":3000000000}
{"time":3100000000,"process":2,"type":"ok","op":"acquire","lock":"k","owner":"b","expires":5000000000}
`))
	require.NoError(t, err)
	chaos.Judge(t, h)
}

// A test of one's own lock compiles no other locks, no etcd, no Docker and no command line.
func TestWhatItImports(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{.ImportPath}}", ".").Output()
	require.NoError(t, err)
	packages := strings.Fields(string(out))
	require.Contains(t, packages, "github.com/lockchaos/lockchaos/checker")
	for _, p := range packages {
		for _, not := range []string{
			"github.com/lockchaos/lockchaos/adapters", "github.com/lockchaos/lockchaos/internal/locks",
			"github.com/lockchaos/lockchaos/topologies/container", "github.com/lockchaos/lockchaos/topologies/attach",
			"github.com/bsm", "github.com/go-redsync", "github.com/redis/rueidis", "go.etcd.io", "github.com/go-zookeeper", "google.golang.org/grpc",
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
