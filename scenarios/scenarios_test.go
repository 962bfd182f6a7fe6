package scenarios_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/locks"
	"github.com/lockchaos/lockchaos/scenarios"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/process"
	"github.com/lockchaos/lockchaos/workload"
)

func TestMain(m *testing.M) {
	logging.Disable()
	if len(os.Args) == 2 && os.Args[1] == scenarios.WorkerCommand { // a client that is a process of its own
		if err := scenarios.ServeWorker(context.Background(), os.Stdin, os.Stdout, locks.All()); err != nil {
			panic(err)
		}
		return
	}
	goleak.VerifyTestMain(settled{m}, threads)
}

// threads is where processes are started from, for as long as there are tests.
var threads = goleak.IgnoreTopFunction("github.com/lockchaos/lockchaos/internal/spawn.thread.func1")

// settled gives what ends behind the tests the time to do so, which on a busy
// machine is more than goleak gives it.
type settled struct{ *testing.M }

func (m settled) Run() int {
	code := m.M.Run()
	end := time.Now().Add(time.Minute)
	for left := goleak.Find(threads); left != nil && time.Now().Before(end); {
		left = goleak.Find(threads)
	}
	return code
}

// setup prepares a run, or skips the test where servers can't be run.
func setup(t *testing.T) scenarios.Setup {
	t.Helper()
	if testing.Short() {
		t.Skip("needs real servers; -short leaves them out")
	}
	if _, err := process.FindBinary(t.Context()); err != nil {
		if os.Getenv("LOCKCHAOS_TEST_REQUIRE") == "1" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	return scenarios.Setup{Dir: t.TempDir(), Backend: process.Backend{}, Seed: 1, Program: "test", Command: "lockchaos test"}
}

// lockNamed is one of the locks of the program; a name that none has gives none.
func lockNamed(name string) harness.LockSpec {
	l, _ := locks.All().ByName(name)
	return l
}

// judged reads a run directory back and judges it.
func judged(t *testing.T, dir string) (history.Run, *history.History, checker.Report) {
	t.Helper()
	var run history.Run
	b, err := os.ReadFile(filepath.Join(dir, "run.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &run))
	f, err := os.Open(filepath.Join(dir, "history.jsonl"))
	require.NoError(t, err)
	defer f.Close()
	h, err := history.ReadAll(f)
	require.NoError(t, err)
	return run, h, scenarios.Judge(t.Context(), run, h)
}

// faultEvents are the injections and heals of a history that did not work out.
func failedFaults(h *history.History) []history.Event {
	return slices.DeleteFunc(slices.Clone(h.Events), func(e history.Event) bool {
		return e.Op != history.Inject && e.Op != history.Heal || e.Type != history.Fail
	})
}

func TestEveryScenarioGivesItsVerdict(t *testing.T) {
	all, err := scenarios.Catalogue(locks.All())
	require.NoError(t, err)
	require.NotEmpty(t, all)
	few := make(chan struct{}, 3)
	for _, s := range all {
		for _, variant := range append([]string{""}, s.VariantNames()...) {
			as := s.As(variant)
			t.Run(as.Name, func(t *testing.T) {
				t.Parallel()
				few <- struct{}{} // they are about time, and share the machine
				defer func() { <-few }()
				setup := setup(t)
				err := as.Run(t.Context(), setup)
				if errors.Is(err, topologies.ErrMissing) { // a compiler
					needCompiler(t)
				}
				require.NoError(t, err)
				run, h, report := judged(t, setup.Dir)
				require.Empty(t, run.Unmet)
				require.Empty(t, failedFaults(h))
				require.NoError(t, as.Expect.Met(run, report), "%+v", report)
				require.FileExists(t, filepath.Join(setup.Dir, "logs", "redis-1.log"))
			})
		}
	}
}

func TestAMutexOnOneServerIsValidUnderNetworkFaults(t *testing.T) {
	setup := setup(t)
	r := scenarios.Random{Topology: "single", Lock: lockNamed("mutex"), Length: 10 * time.Second, Options: harness.LockOptions{Watchdog: time.Second}}
	require.NoError(t, r.Run(t.Context(), setup))
	_, h, report := judged(t, setup.Dir)
	require.Empty(t, failedFaults(h))
	require.Equal(t, checker.Valid, report.Verdict, "%+v", report)
}

func TestASplitBrainIsFoundByARandomRun(t *testing.T) {
	setup := setup(t)
	r := scenarios.Random{Topology: "sentinel", Lock: lockNamed("mutex"), Faults: "split-brain", Length: 12 * time.Second, Options: harness.LockOptions{Watchdog: time.Second}}
	require.NoError(t, r.Run(t.Context(), setup))
	run, h, report := judged(t, setup.Dir)
	require.Empty(t, failedFaults(h))
	require.NoError(t, scenarios.Expectation{Verdict: "invalid", Violation: checker.DoubleGrant}.Met(run, report))
}

func TestBrokenLocksAreFoundAndTheirTwinIsNot(t *testing.T) {
	tests := []struct {
		lock string
		// late clients hold for longer than their lease, and do not care:
		// then most releases come when the lock is somebody else's.
		late bool
		want checker.Verdict
	}{
		{"memory", false, checker.Valid},
		{"mutex", false, checker.Valid},
		{"broken-plain-delete", true, checker.Invalid},
		{"broken-constant-token", false, checker.Invalid},
	}
	for _, tt := range tests {
		t.Run(tt.lock, func(t *testing.T) {
			setup := setup(t)
			r := scenarios.Random{
				Topology: "single", Lock: lockNamed(tt.lock), Faults: faults.MixNone, Length: 3 * time.Second,
				Workload: workload.Config{Lease: 100 * time.Millisecond, Wait: 500 * time.Millisecond, Locks: 1, Careless: tt.late},
			}
			if tt.late {
				r.Workload.Hold = 150 * time.Millisecond
			}
			require.NoError(t, r.Run(t.Context(), setup))
			run, _, report := judged(t, setup.Dir)
			require.Equal(t, tt.want, report.Verdict, "%+v", report)
			if tt.want == checker.Invalid {
				require.NoError(t, scenarios.Expectation{Verdict: "invalid", Violation: checker.DoubleGrant}.Met(run, report))
			}
		})
	}
}

func TestAnInterruptedRunKeepsWhatWasRecorded(t *testing.T) {
	setup := setup(t)
	ctx, interrupt := context.WithCancel(t.Context())
	setup.Progress = func(p scenarios.Progress) {
		if p.Grants > 20 {
			interrupt()
		}
	}
	r := scenarios.Random{Topology: "single", Lock: lockNamed("mutex"), Length: time.Minute}
	require.NoError(t, r.Run(ctx, setup))
	run, h, report := judged(t, setup.Dir)
	require.True(t, run.Interrupted)
	require.NotEmpty(t, h.Events)
	require.Equal(t, checker.Unknown, report.Verdict, "%+v", report)
}

func TestValidateSaysWhatIsWrongWithARun(t *testing.T) {
	tests := []struct {
		name string
		run  scenarios.Random
		want string
	}{
		{"topology", scenarios.Random{Topology: "sentinal", Lock: lockNamed("mutex"), Length: 1}, `unknown topology "sentinal" (did you mean sentinel?`},
		{"no lock", scenarios.Random{Topology: "single", Length: 1}, "a lock under test needs a name"},
		{"faults", scenarios.Random{Topology: "single", Lock: lockNamed("mutex"), Length: 1, Faults: "netwrk"}, `did you mean network?`},
		{"no failover", scenarios.Random{Topology: "single", Lock: lockNamed("mutex"), Length: 1, Faults: "failover"}, "nothing to fail over to"},
		{"duration", scenarios.Random{Topology: "single", Lock: lockNamed("mutex"), Length: -1}, "duration must be above 0"},
		{"clients", scenarios.Random{Topology: "single", Lock: lockNamed("mutex"), Length: 1, Workload: workload.Config{Clients: -1}}, "clients must not be negative"},
		{"lease", scenarios.Random{Topology: "single", Lock: lockNamed("mutex"), Length: 1, Workload: workload.Config{Lease: 10}}, "at least 10ms"},
		{"acks", scenarios.Random{Topology: "single", Lock: lockNamed("mutex"), Length: 1, Options: harness.LockOptions{ReplicaAcks: -1}}, "replica acks"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { require.ErrorContains(t, tt.run.Validate(), tt.want) })
	}
}

func TestParseSaysWhatIsWrongWithAScenario(t *testing.T) {
	const head = "name: x\ntitle: y\ntopology: single\nlock: mutex\nclients: {a: zone-a}\nexpect: {verdict: valid}\n"
	tests := []struct{ name, give, want string }{
		{"unknown field", head + "stepz: []\n", `[7:1] unknown field "stepz"`},
		{"not yaml", "name: [\n", "x.yaml"},
		{"no name", "topology: single\n", "needs a name"},
		{"no steps", head, "needs steps"},
		{"misspelt lock", head + "steps: [{client: a, acquire: l}, {client: a, release: k}]", "releases k, and asked for l last"},
		{"release amid an access", head + "steps: [{client: a, acquire: l}, {client: a, read: r}, {client: a, release: l}]", "must write it first"},
		{"lease", head + "steps: [{client: a, acquire: l, lease: 10us}]", "at least 10ms"},
		{"wait", head + "steps: [{client: a, acquire: l, wait: 45s}]", "how long a step may take"},
		{"nothing to fail over to", head + "steps: [{inject: crash-failover}]", "nothing to fail over to"},
		{"target", head + "steps: [{inject: cut, target: nonsense}]", "no link of topology single"},
		{"two things", head + "steps: [{client: a, acquire: l, inject: cut}]", "exactly one of client, inject"},
		{"nothing to do", head + "steps: [{client: a}]", "exactly one of acquire"},
		{"unknown client", head + "steps: [{client: c, acquire: l}]", `unknown client "c" (known: a)`},
		{"unknown fault", head + "steps: [{inject: cutt}]", "did you mean cut?"},
		{"unknown server", head + "steps: [{require: held, of: a, on: [redis-9]}]", `unknown server "redis-9"`},
		{"unknown variant", head + "steps: [{client: a, acquire: l, only: [z]}]", `unknown variant "z"`},
		{"unknown zone", "name: x\ntitle: y\ntopology: single\nlock: mutex\nclients: {a: zone-q}\nexpect: {verdict: valid}\n", `unknown zone "zone-q"`},
		{"memory apart", strings.Replace(head, "lock: mutex", "lock: memory", 1) + "steps: [{client: a, acquire: l}, {inject: pause-client, target: a}, {heal: pause-client}]", "the harness's own memory"},
		{"nothing to ask", strings.Replace(head, "lock: mutex", "lock: mutex-fair", 1) + "steps: [{client: a, acquire: l}, {require: held, of: a, on: [redis-1]}]", "require means nothing with lock mutex-fair"},
		{"verdict", "name: x\ntitle: y\ntopology: single\nlock: mutex\nexpect: {verdict: maybe}\n", `not "maybe"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := scenarios.Parse("x.yaml", []byte(tt.give), locks.All())
			require.ErrorContains(t, err, tt.want)
		})
	}
}

func TestTheScenarioInTheDocumentsGivesItsVerdict(t *testing.T) {
	doc, err := os.ReadFile("../docs/scenarios.md")
	require.NoError(t, err)
	_, block, found := strings.Cut(string(doc), "```yaml\n")
	require.True(t, found)
	block, _, _ = strings.Cut(block, "```")
	s, err := scenarios.Parse("scenarios.md", []byte(block), locks.All())
	require.NoError(t, err)
	setup := setup(t)
	require.NoError(t, s.Run(t.Context(), setup))
	run, _, report := judged(t, setup.Dir)
	require.NoError(t, s.Expect.Met(run, report))
}

func TestAScenarioThatCannotBePlayedIsUnknown(t *testing.T) {
	setup := setup(t)
	s, err := scenarios.Parse("x.yaml", []byte(`
name: x
title: no key can be lost that is not there
topology: single
lock: mutex
clients: {a: zone-a}
steps:
  - {client: a, acquire: l}
  - {inject: drop-key, target: redis-1, params: {pattern: "*orders*"}}
expect: {verdict: valid}
`), locks.All())
	require.NoError(t, err)
	require.NoError(t, s.Run(t.Context(), setup))
	run, _, report := judged(t, setup.Dir)
	require.Contains(t, run.Unmet, "step 2 (inject drop-key)")
	require.Equal(t, checker.Unknown, report.Verdict)
	require.Error(t, s.Expect.Met(run, report))
}
