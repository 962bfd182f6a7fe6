package harness_test

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/locks"
	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/workload"
)

// violations are the kinds that a report found.
func violations(report checker.Report) map[string]bool {
	kinds := map[string]bool{}
	for _, r := range report.Results {
		for _, v := range r.Violations {
			kinds[v.Kind] = true
		}
	}
	return kinds
}

// Clients extend what they hold of locks of all kinds, not of drivers alone.
func TestLiveHoldsAreExtended(t *testing.T) {
	t.Parallel()
	setup := runtest.Setup(t)
	r := harness.RandomRun{
		Topology: "single", Lock: runtest.Lock("mutex"), Kind: "contended,late-release", Faults: faults.MixNone, Length: 3 * time.Second,
		Workload: workload.Config{Clients: 4, Wait: 500 * time.Millisecond},
	}
	_, _, report := runtest.Until(t, r, setup, "", func(h *history.History, _ checker.Report) bool {
		return len(accepted(h, history.Extend)) > 0
	})
	require.NotEqual(t, checker.Invalid, report.Verdict, "%+v", report)
}

// Each kind of lock is recorded so that its own property judges it: it holds, and
// that of the same lock with a bug does not.
func TestEveryKindOfLockIsJudgedByItsProperty(t *testing.T) {
	for _, tt := range []struct {
		lock, broken, property, violation string
		workload                          string
		clients                           int
	}{
		{"rwmutex", "broken-unseen-readers", "mutual-exclusion", checker.DoubleGrant, "readers-writers", 4}, // so that readers leave gaps
		{"semaphore-permit", "broken-one-more-permit", "capacity", checker.OverCapacity, "permits", 8},
		{"semaphore", "", "capacity", "", "permits", 8},
		{"multilock", "broken-first-member", "mutual-exclusion", checker.DoubleGrant, "several-locks", 8},
		{"mutex-fair", "broken-queue-jumping", "fairness", checker.Overtaken, "fair-queue", 8},
		{"mutex", "broken-uncounted-reentry", "mutual-exclusion", checker.DoubleGrant, "re-entrant", 8},
		{"mutex", "broken-plain-delete", "mutual-exclusion", checker.DoubleGrant, "release-twice", 8},
		{"mutex", "broken-plain-delete", "mutual-exclusion", checker.DoubleGrant, "late-release", 8},
		{"correct-queue", "", "mutual-exclusion", "", "late-release", 8},
		{"correct-hand-over", "", "mutual-exclusion", "", "late-release", 8},
	} {
		for lock, want := range map[string]checker.Verdict{tt.lock: checker.Valid, tt.broken: checker.Invalid} {
			if lock == "" {
				continue
			}
			t.Run(lock+" "+tt.workload, func(t *testing.T) {
				t.Parallel()
				r := harness.RandomRun{
					Topology: "single", Lock: runtest.Lock(lock), Kind: tt.workload, Faults: faults.MixNone, Length: 2 * time.Second,
					Workload: workload.Config{Clients: tt.clients, Wait: 500 * time.Millisecond},
				}
				_, _, report := runtest.Until(t, r, runtest.Setup(t), want, func(_ *history.History, r checker.Report) bool {
					return lock == tt.lock || violations(r)[tt.violation]
				})
				require.Equal(t, want, verdictOf(t, report, tt.property), "%+v", report)
			})
		}
	}
}

func TestEveryLockHasAWorkload(t *testing.T) {
	for _, name := range locks.All().Names() {
		topology := "single"
		if store := runtest.Lock(name).Store; store != "" {
			topology = topologies.NamesOf(store)[0]
		}
		r := harness.RandomRun{Topology: topology, Lock: runtest.Lock(name), Faults: faults.MixNone, Length: 1}
		if err := r.Validate(); err != nil {
			require.ErrorContains(t, err, "know nothing of each other", name)
		}
	}
}

// refusedAccesses counts the accesses that the resource refused.
func refusedAccesses(h *history.History) int {
	refused := 0
	for _, e := range h.Events {
		if e.Op == history.Access && e.Type == history.Fail {
			refused++
		}
	}
	return refused
}

// Careless clients that outlive their lease lose updates, unless the resource
// refuses their stale tokens.
func TestFencingIsTheCureOfCarelessness(t *testing.T) {
	for _, tt := range []struct {
		name string
		harness.ResourceConfig
		want checker.Verdict
	}{
		{"ledger", harness.ResourceConfig{Kind: harness.ResourceLedger}, checker.Invalid},
		{"fenced ledger", harness.ResourceConfig{Kind: harness.ResourceLedger, Fencing: true}, checker.Valid},
		{"redis", harness.ResourceConfig{Kind: harness.ResourceRedis}, checker.Invalid},
		{"fenced redis", harness.ResourceConfig{Kind: harness.ResourceRedis, Fencing: true}, checker.Valid},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var run history.Run
			var h *history.History
			var report checker.Report
			var dir string
			// As long as no client was late at the resource, the run is repeated longer.
			for length := 3 * time.Second; length < 20*time.Second; length *= 2 {
				setup := runtest.Setup(t)
				r := harness.RandomRun{
					Topology: "single", Lock: runtest.Lock("mutex-fenced"), Kind: "slow-holder", Faults: faults.MixNone, Length: length,
					Resource: tt.ResourceConfig,
					Workload: workload.Config{Locks: 1, Wait: 500 * time.Millisecond, Lease: 100 * time.Millisecond, Careless: true},
				}
				require.NoError(t, r.Run(t.Context(), setup))
				run, h, report = runtest.Judged(t, setup.Dir)
				dir = setup.Dir
				if tt.Fencing && refusedAccesses(h) > 0 || !tt.Fencing && verdictOf(t, report, "protected-resource") == checker.Invalid {
					break
				}
			}
			require.Equal(t, tt.want, verdictOf(t, report, "protected-resource"), "%+v", report)
			require.Equal(t, checker.Valid, verdictOf(t, report, "mutual-exclusion"))
			if !tt.Fencing { // which refuses some of it
				require.Equal(t, checker.Invalid, verdictOf(t, report, "use-within-lease"), "what careless clients do on purpose")
			}
			require.Equal(t, tt.Fencing, refusedAccesses(h) > 0)
			require.Equal(t, tt.Fencing, run.Fencing)
			if tt.Kind == harness.ResourceLedger {
				audited(t, dir, run, h, tt.Fencing)
			}
		})
	}
}

// audited compares a ledger with the record of the accesses.
func audited(t *testing.T, dir string, run history.Run, h *history.History, fencing bool) {
	t.Helper()
	done := map[string]int{} // by owner
	changes := 0
	for _, e := range h.Events {
		if e.Op == history.Access && e.Type == history.OK {
			done[e.Owner]++
			changes++
		}
	}
	f, err := os.Open(filepath.Join(dir, harness.LedgerFile))
	require.NoError(t, err)
	defer f.Close()
	newest := int64(0)
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var e struct {
			Resource, Owner string
			Value, Token    int64
		}
		require.NoError(t, json.Unmarshal(lines.Bytes(), &e))
		require.Equal(t, "lock-1", e.Resource)
		done[e.Owner]--
		if fencing {
			require.GreaterOrEqual(t, e.Token, newest)
			newest = e.Token
		}
	}
	for owner, n := range done {
		require.Zero(t, n, "%s changed it as often as it was told", owner)
	}
	require.NotNil(t, run.Ledger)
	require.Equal(t, changes, run.Ledger.Changes)
	require.Equal(t, !fencing, run.Ledger.Forks > 0 && run.Ledger.Stale > 0, "%+v", run.Ledger)
}

func TestALedgerThatTheRecordCannotExplainIsADoubt(t *testing.T) {
	run := history.Run{Duration: time.Second, Ledger: &history.Ledger{Changes: 9, Forks: 1}}
	report := harness.Judge(t.Context(), run, &history.History{})
	require.Equal(t, checker.Unknown, report.Verdict)
	require.Contains(t, report.Results[len(report.Results)-1].Summary, "the ledger has a version twice 1 times")
}

func TestWhatAWorkloadIsForIsAskedOfTheRun(t *testing.T) {
	const contended = `
{"time":1,"process":1,"type":"invoke","op":"acquire","lock":"l","owner":"a","lease":1000000000}
{"time":2,"process":1,"type":"ok","op":"acquire","lock":"l","owner":"a"}
{"time":3,"process":2,"type":"invoke","op":"acquire","lock":"l","owner":"b"}
{"time":4,"process":2,"type":"fail","op":"acquire","lock":"l","owner":"b"}
`
	h, err := history.ReadAll(strings.NewReader(contended))
	require.NoError(t, err)
	for _, tt := range []struct{ workload, want string }{
		{"contended", ""},
		{"re-entrant", "there were no re-entries, and the workload is there for that"},
		{"contended,crash", "there were no crashes, and the workload is there for that"},
		{"fair-queue", "no grant said its place in a queue, and the workload is there for that; there were no hand-overs, and the workload is there for that"},
		{"of-the-future", ""},
	} {
		report := harness.Judge(t.Context(), history.Run{Duration: time.Second, Workload: tt.workload}, h)
		require.Equal(t, "assumptions", report.Results[0].Name)
		require.Equal(t, tt.want != "", report.Results[0].Verdict == checker.Unknown, tt.workload)
		if tt.want != "" {
			require.Equal(t, tt.want, report.Results[0].Summary)
		}
	}
}

func TestEveryWorkloadIsDocumented(t *testing.T) {
	b, err := os.ReadFile("../docs/workloads.md")
	require.NoError(t, err)
	doc := string(b)
	for _, k := range workload.Kinds() {
		require.Contains(t, doc, "\n| `"+k.Name+"` |")
		for _, name := range k.Meets {
			require.Contains(t, doc, "\n| `"+name+"` |")
		}
	}
	for _, name := range harness.ResourceNames() {
		require.Contains(t, doc, "\n| `"+name+"` |")
	}
}
