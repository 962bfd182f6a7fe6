// Package runtest has what the tests of runs share: what starts a run, and what reads
// it back.
package runtest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/internal/locks"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/process"
	"github.com/lockchaos/lockchaos/topologies/shim"
)

// Main runs the tests of a package whose runs are on real servers, and fails if they
// leave anything behind. In a process that a test started as a client of its own, it
// serves that instead.
func Main(m *testing.M) {
	logging.Disable()
	if len(os.Args) == 2 && os.Args[1] == harness.WorkerCommand {
		if err := harness.ServeWorker(context.Background(), os.Stdin, os.Stdout, locks.All()); err != nil {
			panic(err)
		}
		return
	}
	code := m.Run()
	_, stop := servers()
	// Processes are started from threads, for as long as there are tests. What ends behind them has a minute for that, more
	// than goleak gives it.
	threads := goleak.IgnoreTopFunction("github.com/lockchaos/lockchaos/internal/spawn.thread.func1")
	limited, cancel := context.WithTimeout(context.Background(), time.Minute)
	err := errors.Join(stop(), await.Until(limited, func() error { return goleak.Find(threads) }))
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code) //nolint:forbidigo // this is main
}

// FewAtOnce has no more than that many tests a processor run at the same time, and half as
// many with the race detector: the servers of more deployments miss the deadlines of their elections,
// clients dial again, and the same tests took 128 s of processor time and not 44 s with
// the detector. Containers cost about twice what processes do. It is called before the tests run.
func FewAtOnce(each int) {
	flag.Parse()
	parallel := flag.Lookup("test.parallel")
	given, err := strconv.Atoi(parallel.Value.String())
	if err != nil {
		panic(err)
	}
	if info, _ := debug.ReadBuildInfo(); slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		each /= 2
	}
	if err := parallel.Value.Set(strconv.Itoa(min(given, each*runtime.GOMAXPROCS(0)))); err != nil {
		panic(err)
	}
}

// Setup prepares a run, or skips the test where servers can't be run.
func Setup(t *testing.T) harness.Config {
	t.Helper()
	NeedStore(t, topologies.StoreRedis)
	return harness.Config{Dir: t.TempDir(), Backend: Servers(), Seed: 1, Program: "test", Command: "lockchaos test"}
}

// Lock is one of the locks of the program; a name that none has gives none.
func Lock(name string) harness.LockSpec {
	l, _ := locks.All().ByName(name)
	return l
}

// Nightly reports whether tests play what takes too long for each change, as `make nightly` wants.
func Nightly() bool { return os.Getenv("LOCKCHAOS_TEST_NIGHTLY") == "1" }

// Until runs r until its verdict is want (any, if empty) and what was recorded is enough
// for the test (nil: always), and returns that. What a run meets depends on chance and on
// how busy the machine is: one that is unknown, valid where a violation is wanted, or has
// too little, is repeated with the next seed and twice the length, three times at most. A
// violation that is not wanted fails the test at once.
func Until(t *testing.T, r harness.RandomRun, setup harness.Config, want checker.Verdict, enough func(*history.History, checker.Report) bool) (history.Run, *history.History, checker.Report) {
	t.Helper()
	for tries := 1; ; tries++ {
		setup.Dir = t.TempDir()
		require.NoError(t, r.Run(t.Context(), setup))
		run, h, report := Judged(t, setup.Dir)
		switch {
		case (want == "" || report.Verdict == want) && (enough == nil || enough(h, report)):
			return run, h, report
		case report.Verdict == checker.Invalid && want != "" && want != checker.Invalid, tries == 4:
			t.Fatalf("%s, wanted %s, or not enough in the history, with seed %d and length %v: %+v", report.Verdict, want, setup.Seed, r.Length, report)
		}
		setup.Seed++
		r.Length *= 2
	}
}

// Judged reads a run directory back and judges it. If the test fails, its output has the history
// of a short run.
func Judged(t *testing.T, dir string) (history.Run, *history.History, checker.Report) {
	t.Helper()
	run, err := history.Dir(dir).Run()
	require.NoError(t, err)
	h, err := history.Dir(dir).History()
	require.NoError(t, err)
	if b, err := os.ReadFile(history.Dir(dir).Path(history.EventsFile)); err == nil && len(b) <= shortHistory {
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("a history of this test:\n%s", b)
			}
		})
	}
	return run, h, harness.Judge(t.Context(), run, h)
}

// shortHistory is how many bytes of a history the output of a failed test has room for: about
// four times those of a scenario.
const shortHistory = 32 << 10

// FailedFaults are the injections and heals of a history that did not work out.
func FailedFaults(h *history.History) []history.Event {
	return slices.DeleteFunc(slices.Clone(h.Events), func(e history.Event) bool {
		return e.Op != history.Inject && e.Op != history.Heal || e.Type != history.Fail
	})
}

// Backend starts local processes afresh: for a test that counts starts or changes what is started.
type Backend = process.Backend

// servers are those of all tests of a binary, and what stops them.
var servers = sync.OnceValues(func() (topologies.Backend, func() error) { return harness.Pool(Backend{}) }) //nolint:gochecknoglobals // see above

// Servers is the backend that the tests of a package share: a deployment that a test has closed is
// given to the next test that wants the same topology, if it proves to be as good as new (see
// [harness.Pool]). `make nightly` starts each afresh. [Main] stops all of them.
func Servers() topologies.Backend {
	if Nightly() {
		return Backend{}
	}
	shared, _ := servers()
	return shared
}

// What the environment asks of tests whose servers this machine lacks. Such a test is skipped if it asks nothing.
const (
	requireVariable    = "LOCKCHAOS_TEST_REQUIRE"    // 1: a missing program is a failure, and so is a missing image of an engine that answers
	containersVariable = "LOCKCHAOS_TEST_CONTAINERS" // 1: so is a Docker engine that does not answer, and a missing Compose
)

// Start boots a topology until the test ends, which shows the servers' logs then if it has failed. It is skipped where there
// are no servers. A cluster has the patience that keeps it from failing over because the machine is busy.
func Start(tb testing.TB, b topologies.Backend, name string, o topologies.Options) topologies.Deployment {
	tb.Helper()
	NeedStore(tb, topologies.StoreOf(name))
	if name == topologies.Cluster {
		o.NodeTimeout = time.Second
	}
	topology, err := topologies.New(name, o)
	require.NoError(tb, err)
	d, err := b.Start(tb.Context(), topology)
	require.NoError(tb, err)
	tb.Cleanup(func() {
		for _, n := range topology.Nodes {
			if s := d.Server(n.Name); s != nil && tb.Failed() {
				log, err := os.ReadFile(s.Log())
				tb.Logf("log of %s (%v):\n%s", n.Name, err, log)
			}
		}
		require.NoError(tb, d.Close())
	})
	return d
}

// Within is the context of the test for so long.
func Within(tb testing.TB, limit time.Duration) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), limit)
	tb.Cleanup(cancel)
	return ctx
}

// NeedStore skips the test where a store has no server program.
func NeedStore(tb testing.TB, store string) {
	tb.Helper()
	NoShort(tb)
	if _, err := process.Find(tb.Context(), store); err != nil {
		Lacks(tb, err)
	}
}

// NeedCompiler skips the test where clocks can't be changed.
func NeedCompiler(tb testing.TB) {
	tb.Helper()
	NoShort(tb)
	if _, err := shim.FindCompiler(); err != nil {
		Lacks(tb, err)
	}
}

// NoShort skips the test with -short.
func NoShort(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("needs real servers; -short leaves them out")
	}
}

// Lacks ends a test because this machine lacks a program: it is skipped, or fails where LOCKCHAOS_TEST_REQUIRE is 1.
func Lacks(tb testing.TB, why error) {
	tb.Helper()
	end(tb, why, requireVariable)
}

// LacksEngine ends a test because no Docker engine answers, or because there is no Compose: it is skipped, or
// fails where LOCKCHAOS_TEST_CONTAINERS is 1. A machine of a user need not have them, one of continuous integration must.
func LacksEngine(tb testing.TB, why error) {
	tb.Helper()
	end(tb, why, containersVariable)
}

func end(tb testing.TB, why error, required string) {
	tb.Helper()
	if os.Getenv(required) == "1" {
		tb.Fatalf("%s is 1, and: %v", required, why)
	}
	tb.Skipf("this machine lacks: %s", strings.Join(strings.Fields(why.Error()), " "))
}
