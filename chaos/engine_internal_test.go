package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/memory"
	"github.com/lockchaos/lockchaos/reports"
)

// A run that does not end is given up, and what it waits for is written down.
func TestARunThatDoesNotEndIsGivenUp(t *testing.T) {
	t.Parallel()
	p := playable{run: func(context.Context, harness.Config) error { select {} }, limit: 10 * time.Millisecond}
	dir := t.TempDir()
	_, err := p.play(t.Context(), setup(dir, "", 1))
	require.ErrorContains(t, err, "the run did not end within 10ms: a call of the lock does not return")
	require.FileExists(t, filepath.Join(dir, "goroutines.txt"))
}

// What was noted stays as it is when a call of the lock that is late notes more.
func TestNotedIsACopy(t *testing.T) {
	t.Parallel()
	g := &guard{problems: append(make([]string, 0, 4), "a", "b", "c")} // with room for one more
	all := append(g.noted(), "a client's")
	g.note("d")
	require.Equal(t, []string{"a", "b", "c", "a client's"}, all)
}

// A panic in a run whose verdict is unknown is told, although the run is repeated.
func TestPanicsOfTheFirstRunAreTold(t *testing.T) {
	record := func(log string) playable {
		return playable{limit: time.Minute, unexpected: mustBeValid, run: func(_ context.Context, s harness.Config) error {
			events, err := history.Dir(s.Dir).Create()
			if err != nil {
				return err
			}
			logged := os.WriteFile(history.Dir(s.Dir).Path(history.LogsDir, "client-1.log"), []byte(log), 0o600)
			return errors.Join(logged, events.Close(), history.Dir(s.Dir).WriteRun(history.Run{Version: history.RunVersion}))
		}}
	}
	p := playTwice(t, "", &guard{}, record("panic: first\n"), func(reports.Input) playable { return record("panic: second\n") }, 1)
	require.NoError(t, p.failed)
	require.NotNil(t, p.first)
	defer keep(t, p.dir)
	defer keep(t, p.first.dir)
	require.Equal(t, []string{"client 1: panic: first\n", "client 1: panic: second\n"}, p.problems)
}

// A usage that can't be is refused with what is right.
func TestWrongUsage(t *testing.T) {
	t.Parallel()
	good := New("mine", func(Servers) (lock.Locker, func() error, error) { return nil, nil, nil })
	run := func(l Lock, p Plan) error { _, _, err := p.plays(l); return err }
	reproduce := func(scenario string, expect checker.Verdict) error {
		_, err := reproducible(good, &guard{}, scenario, expect)
		return err
	}
	simulated := func(p Plan) error { _, _, err := p.campaigns(good); return err }
	several := Granted(t, 2900*time.Millisecond)
	for i := range several.Events {
		several.Events[i].Clock = strconv.Itoa(several.Events[i].Process)
	}
	_, clocks := judged(t.Context(), several)
	_, none := judged(t.Context(), nil)
	for want, err := range map[string]error{
		"a lock under test needs a name":                                                  run(Lock{}, Plan{}),
		"lock mine can't be opened: set Open":                                             run(New("mine", nil), Plan{}),
		`unknown topology "sentinels" (did you mean sentinel?`:                            run(good, Plan{Topology: "single,sentinels"}),
		`"netwrk" (did you mean network?`:                                                 run(good, Plan{Faults: "netwrk"}),
		`unknown workload "contented" (did you mean contended?`:                           run(good, Plan{Workload: "contented"}),
		`seeds: want whole numbers and ranges such as 1-200 or 3,7,20-29, and not "1..5"`: run(good, Plan{Seeds: "1..5"}),
		"duration must be above 0, not -1s":                                               run(good, Plan{Length: -time.Second}),
		`unknown scenario "failover-doublegrant" (did you mean failover-double-grant?`:    reproduce("failover-doublegrant", Invalid),
		`unknown verdict "invald" (did you mean invalid?`:                                 reproduce("late-release-double-grant", "invald"),
		"read scenario: open mine.yaml: no such file":                                     reproduce("mine.yaml", Valid),
		"add func TestMain(m *testing.M) { chaos.Main(m, LOCK) } with lock mine":          reproduce("paused-holder", Invalid),
		"leave out Workload and Length":                                                   simulated(Plan{Length: time.Second}),
		`unknown simulated topology "clutser"`:                                            simulated(Plan{Topology: "clutser"}),
		`seeds: want whole numbers and ranges such as 1-200 or 3,7,20-29, and not "x"`:    simulated(Plan{Seeds: "x"}),
		"the stamps are of 2 clocks":                                                      clocks,
		"there is no history":                                                             none,
	} {
		require.ErrorContains(t, err, want)
	}
}

// Granted is a history in which a second client is granted a lock at an instant, and the lease of the first ends at 3 s.
func Granted(t *testing.T, second time.Duration) *history.History {
	t.Helper()
	h, err := history.ReadAll(strings.NewReader(fmt.Sprintf(`
{"time":0,"process":1,"type":"invoke","op":"acquire","lock":"k","owner":"a","lease":3000000000}
{"time":1000000,"process":1,"type":"ok","op":"acquire","lock":"k","owner":"a","expires":3000000000}
{"time":2000000000,"process":2,"type":"invoke","op":"acquire","lock":"k","owner":"b","lease":3000000000}
{"time":%d,"process":2,"type":"ok","op":"acquire","lock":"k","owner":"b","expires":5000000000}
`, second)))
	require.NoError(t, err)
	return h
}

// A test says of a run in what its verdict is not the expected one, and everything that the lock did not do.
func TestFailureMessages(t *testing.T) {
	t.Parallel()
	bad, err := judged(t.Context(), Granted(t, 2900*time.Millisecond))
	require.NoError(t, err)
	bad.problems, bad.failed, bad.cut = []string{"a problem"}, errors.New("link down"), true
	failures, notes := bad.told()
	require.Empty(t, notes)
	for i, want := range []string{"a problem", "the test was ended before the run (-timeout)", "the run failed: link down", "expected valid, got invalid\n"} {
		require.Contains(t, failures[i], want)
	}
	require.Contains(t, failures[3], "✗ INVALID  Two clients held the lock k at the same time")

	second, err := judged(t.Context(), Granted(t, 2900*time.Millisecond))
	require.NoError(t, err)
	second.in.Report.Verdict = checker.Unknown
	second.unexpected = mustBeValid(second.in)
	first := second
	second.first = &first
	failures, _ = second.told()
	require.Contains(t, failures[0], "expected valid, got unknown, twice")
	second.in.Report.Verdict, second.unexpected = checker.Valid, nil
	failures, notes = second.told()
	require.Empty(t, failures)
	require.Contains(t, notes[0], "a second run: the first was unknown: ")
	require.Contains(t, notes[1], "valid: ")

	require.Equal(t, `^TestA$/^b#01$/^c\+d$`, pattern("TestA/b#01/c+d"))
}

// opens is an Open of a lock.
func opens(l lock.Locker) Open {
	return func(Servers) (lock.Locker, func() error, error) { return l, nil, nil }
}

// What a lock under test must not do ends with an error, in bounded time, and is noted; of a panic with its stack.
func TestGuard(t *testing.T) {
	t.Parallel()
	down := errors.New("link down")
	acquires := func(acquire lock.LockerFunc) Open { return opens(acquire) }
	closes := func(closeLock func() error) Open {
		return func(Servers) (lock.Locker, func() error, error) { return memory.New(), closeLock, nil }
	}
	unfinished := opens(Tries(func(context.Context, string, time.Duration) (Grant, error) {
		return Grant{Release: func(context.Context) error { panic("no token") }, Extend: func(context.Context, time.Duration) error { panic("no token") }}, nil
	}))
	extend := func(ctx context.Context, h *lock.Hold) error { return h.Extend(ctx, time.Second) }
	releaseLate := func(ctx context.Context, h *lock.Hold) error { <-h.Lost(); return h.Release(ctx) }
	over := make(chan struct{})
	const panicked = "panic of the lock under test: "
	for name, c := range map[string]struct {
		open       Open
		call       func(ctx context.Context, h *lock.Hold) error
		err, noted string
	}{
		"open fails":      {open: func(Servers) (lock.Locker, func() error, error) { return nil, nil, down }, err: "link down"},
		"open panics":     {open: func(Servers) (lock.Locker, func() error, error) { panic("no config") }, err: panicked + "no config (in Open of odd)", noted: "engine_internal_test.go"},
		"opens nothing":   {open: opens(nil), err: "Open returned neither a lock nor an error"},
		"close fails":     {open: closes(func() error { return down }), noted: "closing the lock failed: link down"},
		"close blocks":    {open: closes(func() error { <-over; return nil }), noted: "closing the lock takes longer than 5s"},
		"close panics":    {open: closes(func() error { panic("closed before") }), noted: panicked + "closed before"},
		"returns nothing": {open: acquires(func(context.Context, string, lock.Options) (*lock.Hold, error) { return nil, nil }), err: "the lock under test returned neither a hold nor an error"}, //nolint:nilnil // that is what it is for
		"no release":      {open: opens(Tries(func(context.Context, string, time.Duration) (Grant, error) { return Grant{}, nil })), err: "set Grant.Release"},
		"acquire ignores its context": {
			open: acquires(func(context.Context, string, lock.Options) (*lock.Hold, error) { <-over; return nil, down }),
			err:  context.DeadlineExceeded.Error(), noted: "Acquire ignores its context: it had not returned 5s after the end of that",
		},
		"acquire panics": {
			open: acquires(func(context.Context, string, lock.Options) (*lock.Hold, error) { panic("out of order") }),
			err:  panicked + `out of order (in Acquire of "orders")`, noted: "engine_internal_test.go",
		},
		"an extension panics":   {unfinished, extend, panicked + `no token (in Extend of "orders")`, "engine_internal_test.go"},
		"a late release panics": {unfinished, releaseLate, panicked + `no token (in Release of "orders")`, "engine_internal_test.go"},
		"a keeper panics": {
			acquires(func(_ context.Context, name string, o lock.Options) (*lock.Hold, error) {
				return lock.NewHold(lock.Lease{Name: name, Owner: o.Owner, Length: o.Lease, Expires: time.Now().Add(o.Lease)}, struct{ lock.Keeper }{}), nil
			}), releaseLate, panicked + `runtime error: invalid memory address or nil pointer dereference (in Release of "orders")`, "engine_internal_test.go",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := &guard{}
			synctest.Test(t, func(t *testing.T) {
				over = make(chan struct{})
				err := g.used(t.Context(), New("odd", c.open), c.call)
				close(over)
				if c.err == "" {
					require.NoError(t, err)
				} else {
					require.ErrorContains(t, err, c.err)
				}
			})
			noted := strings.Join(g.noted(), "\n")
			require.Equal(t, c.noted != "", noted != "", noted)
			require.Contains(t, noted, c.noted)
		})
	}
}

// used opens a guarded lock, asks for it for a second, calls what is to be called of the hold, and closes the lock.
func (g *guard) used(ctx context.Context, l Lock, call func(context.Context, *lock.Hold) error) error {
	locker, closeLock, err := g.of(l).Open([]redis.UniversalClient{nil}, harness.LockOptions{})
	if err != nil {
		return err
	}
	defer closeLock()
	limited, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	h, err := locker.Acquire(limited, "orders", lock.Options{Lease: 3 * time.Second})
	if err == nil && call != nil {
		err = call(ctx, h)
	}
	return err
}

// What a lock must not do in a simulation is told by seed.
func TestSimulateRefuses(t *testing.T) {
	silence()
	for want, open := range map[string]Open{
		"nothing is known of lock odd: no client was granted it in 3 runs (a request ended with: link down)": opens(lock.LockerFunc(func(context.Context, string, lock.Options) (*lock.Hold, error) {
			return nil, errors.New("link down")
		})),
		"nothing is known of lock odd: no client was granted it in 3 runs (a request ended with: dial tcp": func(Servers) (lock.Locker, func() error, error) {
			rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
			return lock.LockerFunc(func(ctx context.Context, name string, _ lock.Options) (*lock.Hold, error) {
				return nil, rdb.Get(ctx, name).Err()
			}), rdb.Close, nil
		},
		"seed 1: lock odd was granted without a request to the simulated servers": func(Servers) (lock.Locker, func() error, error) { return memory.New(), nil, nil },
		"seed 1: lock odd never returns from a call":                              opens(lock.LockerFunc(func(context.Context, string, lock.Options) (*lock.Hold, error) { select {} })),
		"seed 1: lock odd leaves goroutines that wait for ever": func(Servers) (lock.Locker, func() error, error) {
			go func() { <-make(chan int) }()
			return memory.New(), nil, nil
		},
	} {
		t.Run(want, func(t *testing.T) {
			l := withLease(New("odd", open))
			campaigns, list, err := Plan{Seeds: "1-3"}.campaigns(l)
			require.NoError(t, err)
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
			_, _, err = firstFinding(t, l, campaigns[0], list)
			require.ErrorContains(t, err, want)
		})
	}
}
