// Package drivers_test plays the drivers of this folder, each as a user would.
package drivers_test

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/conformance"
	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/locks"
	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/promises"
	"github.com/lockchaos/lockchaos/scenarios"
	"github.com/lockchaos/lockchaos/topologies"
)

// A language is a driver, how it is built and started in a folder that has it and the file of its language, and what makes it a
// lock that deletes whatever lock is there when it releases its own.
type language struct {
	name, file, build, start string
	needs                    string // a command that succeeds where the driver can be played
	toolchain                bool   // make test does not install it
	right, wrong             string // in the driver's text
	silent                   bool   // a release does not tell whether the lock was held
	topology                 string // on which it is driven; empty: on one server
}

func TestMain(m *testing.M) { runtest.Main(m) }

func languages() []language {
	const right, wrong = "if redis.call('GET',KEYS[1]) == ARGV[1] then return redis.call('DEL',KEYS[1]) end return 0", "return redis.call('DEL',KEYS[1])"
	quoted := strings.NewReplacer("'", `"`)
	return []language{
		{name: "python", file: "python/redis_py.py", start: "./redis_py.py", needs: "/usr/bin/python3 -c 'import redis'", right: "lock.release()", wrong: "self.client.delete(lock.name)"},
		{
			name: "php", file: "symfony/driver.php", start: "./driver.php", needs: "php --version && ls /usr/share/php/Symfony/Component/Lock/autoload.php",
			right: "(new RedisStore($redis))->delete($holds[$q['hold']]);", wrong: "$redis->del((string) $holds[$q['hold']]);",
			silent: true, topology: topologies.Sentinels,
		},
		{name: "shell", file: "shell/driver.sh", start: "./driver.sh", needs: "redis-cli --version", right: quoted.Replace(right), wrong: quoted.Replace(wrong)},
		{name: "node", file: "node/set_nx.js", start: "node set_nx.js", needs: "node --version", toolchain: true, right: right, wrong: wrong},
		{name: "java", file: "java/SetNx.java", build: "javac -d . Lockchaos.java SetNx.java", start: "java SetNx", needs: "javac -version", toolchain: true, right: right, wrong: wrong},
		{name: "rust", file: "rust/set_nx.rs", build: "rustc --edition 2021 -O set_nx.rs", start: "./set_nx", needs: "rustc --version", toolchain: true, right: right, wrong: wrong},
		{name: "go", file: "go/set_nx.go", build: "go mod init driver && go build -o driver lockchaos.go set_nx.go", start: "./driver", needs: "go version", right: right, wrong: wrong},
	}
}

// need skips a test whose language is not on this machine, unless all that make test installs are required.
func need(t *testing.T, l language) {
	t.Helper()
	runtest.NeedStore(t, topologies.StoreRedis)
	err := exec.CommandContext(t.Context(), "/bin/sh", "-c", l.needs).Run()
	switch {
	case err != nil && l.toolchain:
		t.Skipf("%s: %v", l.needs, err)
	case err != nil:
		runtest.Lacks(t, fmt.Errorf("%s: %w (make drivers installs it)", l.needs, err))
	}
}

// command is that of a driver in its folder, built.
func (l language) command(t *testing.T, driver string) string {
	t.Helper()
	dir := filepath.Dir(driver)
	build := exec.CommandContext(t.Context(), "/bin/sh", "-c", l.build)
	build.Dir = dir
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	return "env -C " + dir + " " + l.start
}

// replaced is a copy of a driver with a bug in place of what is right, beside the file of its language.
func replaced(t *testing.T, file, right, wrong string) string {
	t.Helper()
	text := read(t, file)
	require.Equal(t, 1, strings.Count(text, right), "the driver has changed: plant the bug again")
	path := filepath.Join(t.TempDir(), filepath.Base(file))
	shared, err := filepath.Glob("*/[lL]ockchaos" + filepath.Ext(file))
	require.NoError(t, err)
	for _, beside := range shared {
		require.NoError(t, os.Symlink(absolute(t, beside), filepath.Join(filepath.Dir(path), filepath.Base(beside))))
	}
	require.NoError(t, os.WriteFile(path, []byte(strings.Replace(text, right, wrong, 1)), 0o755)) //nolint:gosec // a program
	return path
}

func absolute(t *testing.T, file string) string {
	t.Helper()
	path, err := filepath.Abs(file)
	require.NoError(t, err)
	return path
}

// check returns what `lockchaos driver check` finds wrong; with only, by the checks that have
// such words in their name.
func check(t *testing.T, command, topology string, only ...string) (wrong []string) {
	t.Helper()
	checks := slices.DeleteFunc(conformance.Checks(), func(c conformance.Check) bool {
		return len(only) > 0 && !slices.ContainsFunc(only, func(words string) bool { return strings.Contains(c.Name, words) })
	})
	require.GreaterOrEqual(t, len(checks), max(len(only), 1))
	err := conformance.Driver(t.Context(), runtest.Servers(), command, topology, checks, func(o conformance.Outcome) {
		t.Log(o.Log)
		if o.Wrong != nil {
			wrong = append(wrong, o.Name+": "+o.Wrong.Error())
		}
	})
	require.NoError(t, err)
	return wrong
}

// some are the checks of a driver that a change makes where the one in Go is checked with all, as this one is nightly.
func some(words ...string) []string {
	if runtest.Nightly() {
		return nil
	}
	return words
}

// run drives a driver's lock with a workload, and judges the record.
func run(t *testing.T, seed uint64, command, topology, workload, faults string, length time.Duration) (history.Run, *history.History, checker.Report) {
	t.Helper()
	spec, err := harness.Program(command, nil)
	require.NoError(t, err)
	dir := t.TempDir()
	r := harness.RandomRun{Topology: topology, Lock: spec, Kind: workload, Faults: faults, Length: length}
	r.Workload.Clients, r.Workload.Locks = 4, 1
	if workload == "late-release" {
		r.Workload.Lease = time.Second // a driver that starts a process for each request needs a part of it on a busy machine
		r.Workload.Wait = time.Second  // each grant to a client that waits is a hand-over, which the verdict needs
	}
	r.Options.Watchdog = 2 * time.Second
	if topologies.StoreOf(topology) != topologies.StoreRedis {
		r.Options.Watchdog = 20 * time.Second // a session that ends while a busy machine lets its client stand still ends the lock before the client knows
	}
	require.NoError(t, r.Run(t.Context(), harness.Config{Dir: dir, Backend: runtest.Servers(), BackendName: "process", Seed: seed}))
	return runtest.Judged(t, dir)
}

// judged runs a driver with one seed after the other until a run has the wanted verdict.
// Before it, a run may be unknown, since what a workload is there for, such as a
// hand-over, need not happen on a busy machine; and a lock with a defect may have no
// occasion to show it. A correct lock is never invalid.
func judged(t *testing.T, want checker.Verdict, command, topology, workload, mix string, length time.Duration) history.Run {
	t.Helper()
	for seed := uint64(1); ; seed++ {
		told, _, report := run(t, seed, command, topology, workload, mix, length)
		if report.Verdict == want {
			return told
		}
		require.NotEqual(t, checker.Invalid, report.Verdict, "%+v %+v", told, report)
		require.Less(t, seed, uint64(6), "no seed is %s: %+v %+v", want, told, report)
	}
}

// Each driver keeps the protocol, and its lock is acquitted; a copy that deletes
// whatever lock is there is caught by the check and convicted by a run, of which a change
// plays the one in Python.
func TestDrivers(t *testing.T) {
	t.Parallel()
	for _, l := range languages() {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			need(t, l)
			command, bug := l.command(t, replaced(t, l.file, l.right, l.right)), l.command(t, replaced(t, l.file, l.right, l.wrong))
			few := some("refused to another process", "late release", "exits")
			if l.name == "python" || l.toolchain {
				few = some("given back", "refused to another process", "late release", "late extension", "reply is lost is unknown", "unsupported", "exits")
			}
			require.Empty(t, check(t, command, topologies.Single, few...))
			require.Contains(t, strings.Join(check(t, bug, topologies.Single, "late release"), "\n"), "late release")

			told := judged(t, checker.Valid, command, cmp.Or(l.topology, topologies.Single), "late-release", faults.MixNone, 4*time.Second)
			if l.silent {
				require.Contains(t, told.Unpromised, promises.NoReleaseTells)
			}
			if l.name != "python" && !runtest.Nightly() {
				return // the check has caught it
			}
			// A late release does harm if another client was granted the lock before it: a matter
			// of chance, and a slow driver has few grants in a run.
			judged(t, checker.Invalid, bug, cmp.Or(l.topology, topologies.Single), "late-release", faults.MixNone, 4*time.Second)
		})
	}
}

// A lock on a majority of several servers is acquitted; a copy that is content with two
// votes of five is caught by the check, and convicted by a run.
func TestDrivers_Redlock(t *testing.T) {
	t.Parallel()
	need(t, languages()[0])
	const file = "python/redlock.py"
	command, bug := absolute(t, file), replaced(t, file, "votes > len(self.servers) // 2", "votes >= len(self.servers) // 2")
	require.Empty(t, check(t, command, topologies.Independent, some("majority of the servers", "refused to another process", "late release")...))
	require.Contains(t, strings.Join(check(t, bug, topologies.Independent, "majority of the servers"), "\n"), "the lock was granted with 2 of 5 servers")
	judged(t, checker.Valid, command, topologies.Independent, "contended", "latency", 2*time.Second)
	// A server that stands still leaves a majority, which the record says.
	_, h, report := run(t, 1, command, topologies.Independent, "contended", "pause", 3*time.Second)
	require.NotEqual(t, checker.Invalid, report.Verdict)
	require.True(t, slices.ContainsFunc(h.Events, func(e history.Event) bool { return slices.Contains(e.Effects, history.Minority) }))
	judged(t, checker.Invalid, bug, topologies.Independent, "contended", faults.MixNone, 2*time.Second)

	// One that asks the first server alone is no lock on a majority.
	first := replaced(t, file, `for at in addresses(q)]`, `for at in addresses(q)[:1]]`)
	_, _, report = run(t, 1, first, topologies.Independent, "contended", faults.MixNone, 2*time.Second)
	require.Equal(t, checker.Unknown, report.Verdict)
}

// A run of a lock that is no mutex shows also what comes of a late release, without a word on the workload.
func TestDrivers_Kinds(t *testing.T) {
	t.Parallel()
	need(t, languages()[0])
	path := absolute(t, "testdata/kinds.py")
	for kind, want := range map[string]checker.Verdict{"rw correct": checker.Valid, "semaphore correct": checker.Valid, "semaphore gives-back-any": checker.Invalid} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			judged(t, want, path+" "+kind, topologies.Single, "", faults.MixNone, 6*time.Second)
		})
	}
}

// A driver that gives the server the end of a lease by its own wall clock is convicted where that is wrong. One that reads no
// such clock is acquitted: redis-py takes its token from it. A driver in Go evades the library, and the fault has no effect.
func TestDrivers_WallClock(t *testing.T) {
	t.Parallel()
	need(t, languages()[0])
	runtest.NeedCompiler(t)
	bugs := absolute(t, "testdata/bugs.py")
	told := judged(t, checker.Invalid, bugs+" wall", topologies.Single, "contended", "client-clock-back", 6*time.Second)
	require.Equal(t, "client-clock-back", told.Faults)
	judged(t, checker.Valid, absolute(t, "python/redis_py.py"), topologies.Single, "contended", string(faults.Client), 6*time.Second)
	_, _, report := run(t, 1, built(t, "./go"), topologies.Single, "contended", "client-clock-forward", 6*time.Second)
	require.Equal(t, checker.Unknown, report.Verdict)
	require.Contains(t, fmt.Sprint(report.Results), "1 fault injected, and none took effect")
}

// A run of a driver that promises a watchdog, and grants nothing without a lease, is no evidence.
func TestDrivers_NothingWithoutALease(t *testing.T) {
	t.Parallel()
	need(t, languages()[0])
	_, _, report := run(t, 1, absolute(t, "testdata/bugs.py")+" leased", topologies.Single, "", faults.MixNone, 4*time.Second)
	require.Equal(t, checker.Unknown, report.Verdict)
	require.Contains(t, fmt.Sprint(report.Results), "there were no grants without a lease, and the workload is there for that")
}

// A driver in Go is a module of its own: no module of lockchaos lifts the versions under test, and the record of a run says which
// these were.
func TestDrivers_OwnVersions(t *testing.T) {
	t.Parallel()
	runtest.NeedStore(t, topologies.StoreRedis)
	path := replaced(t, "go/set_nx.go", `serve("set-nx"`, "serve(library.Path")
	command := language{start: "./driver", build: `mkdir library && echo 'package library; const Path = "example.com/library"' > library/library.go &&
		(cd library && go mod init example.com/library) && go mod init driver && sed -i 's/^import (/&"example.com\/library"/' set_nx.go &&
		go mod edit -require example.com/library@v1.2.3 -replace example.com/library=./library &&
		go build -o driver lockchaos.go set_nx.go && go list -m all > modules`}.command(t, path)
	require.Equal(t, "driver\nexample.com/library v1.2.3 => ./library\n", read(t, filepath.Join(filepath.Dir(path), "modules")))
	told, _, _ := run(t, 1, command, topologies.Single, "contended", faults.MixNone, time.Second)
	require.Equal(t, "v1.2.3 => ./library (devel)", told.Servers["example.com/library"])
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(text)
}

// The document shows one driver whole.
func TestDrivers_Document(t *testing.T) {
	t.Parallel()
	require.Contains(t, read(t, "../docs/your-own-lock.md"), "```python\n"+read(t, "python/redis_py.py")+"```")
}

// A lock of which a process keeps what the server granted, and hands it over among its
// clients, is correct if it says so; the same driver without the promise is unknown.
func TestDrivers_HandOver(t *testing.T) {
	t.Parallel()
	need(t, languages()[0])
	promising := absolute(t, "testdata/hand-over.py")
	require.Empty(t, check(t, promising, topologies.Single, some("refused to another process", "the next holder alone")...))
	judged(t, checker.Valid, promising, topologies.Single, "contended", faults.MixNone, 2*time.Second)

	silent := replaced(t, promising, `, "hands_over": True`, "")
	require.Contains(t, strings.Join(check(t, silent, topologies.Single, "a grant asks the servers"), "\n"), "a grant asks the servers: no request reached the servers")
}

// A client whose driver stands still, or is killed, is one of a script.
func TestDrivers_Paused(t *testing.T) {
	t.Parallel()
	python := languages()[0]
	need(t, python)
	spec, err := harness.Program(absolute(t, python.file), nil)
	require.NoError(t, err)
	for name, want := range map[string]checker.Verdict{"paused-holder": checker.Invalid, "holder-killed": checker.Valid} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, variant, err := scenarios.Find(name, locks.All())
			require.NoError(t, err)
			s, err = s.Under(spec, variant)
			require.NoError(t, err)
			dir := t.TempDir()
			require.NoError(t, s.Run(t.Context(), harness.Config{Dir: dir, Backend: runtest.Servers(), BackendName: "process"}))
			told, _, report := runtest.Judged(t, dir)
			require.Empty(t, told.AbortReason+told.Unsuited+told.DriverFault)
			require.Equal(t, want, report.Verdict, "%+v", report)
		})
	}
}

// A lock in Go behind the protocol follows a failover and a cluster's slots.
func TestDrivers_Go(t *testing.T) {
	t.Parallel()
	runtest.NeedStore(t, topologies.StoreRedis)
	path := built(t, "./go")
	var all []string // it starts in a hundredth of the time that Python does
	for _, c := range conformance.Checks() {
		all = append(all, c.Name)
	}
	for part := range slices.Chunk(all, (len(all)+2)/3) {
		t.Run("from "+part[0], func(t *testing.T) {
			t.Parallel()
			require.Empty(t, check(t, path, topologies.Single, part...))
		})
	}
	for kind, workload := range map[string]string{"rw": "readers-writers", "semaphore": "permits"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			command := path + " " + kind
			require.Empty(t, check(t, command, topologies.Single, some("a free lock", "refused to another process", "late release", "readers", "permits")...))
			judged(t, checker.Valid, command, topologies.Single, workload, faults.MixNone, 2*time.Second)
		})
	}
	for _, topology := range []string{topologies.Sentinels, topologies.Cluster} {
		t.Run(topology, func(t *testing.T) {
			t.Parallel()
			judged(t, checker.Valid, path, topology, "contended", "latency", 2*time.Second)
		})
	}
}

// built is the program of a folder.
func built(t *testing.T, folder string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "driver")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", path, folder).CombinedOutput()
	require.NoError(t, err, string(out))
	return path
}

// A lock on another store is checked and driven as one on Redis is, while its members are killed (those of
// ZooKeeper nightly).
func TestDrivers_Stores(t *testing.T) {
	t.Parallel()
	path := built(t, "./go")
	for store, topology := range map[string]string{topologies.StoreEtcd: topologies.EtcdCluster, topologies.StoreZooKeeper: topologies.ZooKeeperEnsemble} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			runtest.NeedStore(t, store)
			command := path + " " + store
			require.Empty(t, check(t, command, topology, some("a free lock", "refused to another process", "while the links are cut", "tokens grow", "exits")...))
			mix, length := "kill", 4*time.Second
			if store == topologies.StoreZooKeeper && !runtest.Nightly() {
				mix, length = faults.MixNone, 2*time.Second // a Java that starts again takes most of a second of processor time
			}
			judged(t, checker.Valid, command, topology, "contended", mix, length)
			spec, err := harness.Program(command, nil)
			require.NoError(t, err)
			require.ErrorContains(t, spec.On(topologies.Single, topologies.Options{}, harness.LockOptions{}), "is on "+store+", and topology single has redis servers")
		})
	}
}

// Symfony's store ends a lock up to a millisecond before its lease: the driver says so. Else
// two clients would be entitled to hold it at once for that long.
func TestDrivers_SymfonyEndsEarly(t *testing.T) {
	t.Parallel()
	php := languages()[1]
	need(t, php)
	spec, err := harness.Program(absolute(t, php.file), nil)
	require.NoError(t, err)
	at := harness.PlaceIn(runtest.Start(t, runtest.Servers(), topologies.Single, topologies.Options{}), "zone-a")
	l, closeLock, err := spec.Open(nil, harness.LockOptions{At: &at})
	require.NoError(t, err)
	defer closeLock()
	ctx := runtest.Within(t, time.Minute)
	acquire := func(owner string) *lock.Hold {
		for {
			h, err := l.Acquire(ctx, "orders", lock.Options{Owner: owner, Lease: 20 * time.Millisecond})
			if err == nil {
				return h
			}
			require.NoError(t, ctx.Err(), "%v", err) // it is held, or was granted too late on a busy machine
		}
	}
	for i := range 40 {
		h := acquire(fmt.Sprintf("zone-a.1#%d", i+1))
		acquire(fmt.Sprintf("zone-a.2#%d", i+1))
		early := time.Until(h.Lease().Expires)
		require.LessOrEqual(t, early, time.Duration(0), "the next client was granted the lock before the end of the first grant")
	}
}
