package harness_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
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

// Plans are drawn from what a topology can have, on all topologies and of all mixes: the same seed gives the same one,
// each leaves quiet phases, and none has a fault again before it had all. What is drawn can be given.
func TestPlans(t *testing.T) {
	t.Parallel()
	drawn := map[string]bool{}
	for _, topology := range topologies.Names() {
		options := []topologies.Options{{}}
		if topologies.StoreOf(topology) == topologies.StoreRedis {
			options = append(options, topologies.Options{Persistence: topologies.PersistAlways})
		}
		if topology == topologies.Single || topology == topologies.Sentinels {
			options = append(options, topologies.Options{Access: topologies.AccessName})
		}
		for _, servers := range options {
			for _, mix := range append(faults.Mixes(), "", "network,process", "cut,kill,network") {
				r := harness.RandomRun{Topology: topology, Servers: servers, Lock: runtest.Lock(locks.Default(topology)), Faults: mix, Length: 10 * time.Minute}
				if err := r.Validate(); err != nil {
					require.Regexp(t, "no processes of their own|nothing to fail over to|has no slots|topology (etcd|zookeeper) has none|evades the library|ZooKeeper counts|files of Redis alone", err.Error(), "%s %s", topology, mix)
					continue
				}
				planned(t, r, drawn)
			}
		}
	}
	driver := runtest.Lock("mutex")
	driver.Connects = true
	planned(t, harness.RandomRun{Topology: topologies.Single, Lock: driver, Faults: "client-clock-back,client-clock-forward", Length: 10 * time.Minute}, drawn)
	for _, spec := range faults.All() {
		require.Equal(t, spec.Candidates != nil, drawn[spec.Name], spec.Name)
	}
}

// planned looks at the plans of a run, and notes the faults that they have.
func planned(t *testing.T, r harness.RandomRun, drawn map[string]bool) {
	t.Helper()
	about := r.Topology + " " + r.Faults
	plan, first := harness.PlanOf(t, r, 0), harness.PlanOf(t, r, 1)
	require.Equal(t, plan, harness.PlanOf(t, r, 0), about)
	require.Equal(t, r.Faults == faults.MixNone, len(plan) == 0, about)
	if r.Faults == faults.MixNone {
		return
	}
	require.NotEqual(t, plan, first, about)
	seen := map[string]bool{}
	for _, step := range slices.Concat(plan, first) {
		seen[step.Fault], drawn[step.Fault] = true, true
	}
	for _, c := range harness.Candidates(t, r) {
		switch r.Faults {
		case faults.MixAll:
			require.True(t, seen[c.Spec.Name] || c.Seldom || c.Cant != "" || c.Mix == string(faults.Clock) || c.Mix == string(faults.Disk), "%s: %s", about, c.Spec.Name)
		case c.Mix:
			require.Equal(t, c.Cant == "", seen[c.Spec.Name] || c.Seldom, "%s: %s: %s", about, c.Spec.Name, c.Cant)
		}
	}
	for _, r.Length = range []time.Duration{time.Second, 3 * time.Second, 10 * time.Second, time.Minute} {
		r.Plan = nil
		r.Plan = harness.PlanOf(t, r, 1)
		require.NotEmpty(t, r.Plan, "%s %v", about, r.Length)
		end := time.Duration(0)
		for _, step := range r.Plan {
			require.Greater(t, step.At, end, "a pause comes before each")
			end = step.At + step.For
		}
		require.LessOrEqual(t, end, r.Length-faults.PaceOf(r.Length).End)
		require.NoError(t, r.Validate())
	}
}

// With more weight, a fault tends to come sooner.
func TestWeightsCount(t *testing.T) {
	t.Parallel()
	first := map[string]int{}
	for seed := range uint64(300) {
		first[harness.PlanOf(t, harness.RandomRun{Topology: "sentinel", Lock: runtest.Lock("mutex"), Length: 10 * time.Second}, seed)[0].Fault]++
	}
	require.Greater(t, first["split-brain"], 3*first["flap"], "%v", first)
	require.Greater(t, first["crash-failover"], 3*first["bandwidth"], "%v", first)
}

// On a store with sessions a plan keeps clients from it until a session is over: around one that goes on holding a lock, where
// the workload has such clients, and else in either zone. On Redis there is none.
func TestPlansOutlastSessions(t *testing.T) {
	t.Parallel()
	driver := runtest.Lock("etcd-mutex")
	driver.Connects, driver.Foreign, driver.Watchdog = true, true, true
	driver.Commands, driver.Lease = harness.OwnCommands(), 2*time.Second
	for name, tt := range map[string]struct {
		run    harness.RandomRun
		target string
		least  int // how many plans of ten have such a fault; 0: none has
	}{
		"a driver with a watchdog":        {harness.RandomRun{Topology: topologies.EtcdCluster, Lock: driver}, faults.TargetOfHolder, 9},
		"a driver that is asked for less": {harness.RandomRun{Topology: topologies.EtcdCluster, Lock: driver, Kind: "release-twice"}, "zone", 0},
		"holds of a moment":               {harness.RandomRun{Topology: topologies.EtcdCluster, Lock: runtest.Lock("etcd-mutex")}, "zone", 9},
		"on ZooKeeper":                    {harness.RandomRun{Topology: topologies.ZooKeeperEnsemble, Lock: runtest.Lock("zookeeper-lock")}, "zone", 9},
		"on Redis":                        {harness.RandomRun{Topology: topologies.Sentinels, Lock: runtest.Lock("mutex"), Kind: "watchdog", Faults: "cut,partition,failover"}, "zone", 0},
	} {
		tt.run.Length, tt.run.Options.Watchdog = 20*time.Second, 2*time.Second
		found := 0
		for seed := range uint64(10) {
			plan := harness.PlanOf(t, tt.run, seed)
			require.NotEmpty(t, plan, name)
			if slices.ContainsFunc(plan, func(s faults.Step) bool { return s.For > 3*time.Second }) {
				found++
			}
			for _, step := range plan {
				if step.For > 3*time.Second {
					require.True(t, strings.HasPrefix(step.Target, tt.target), "%s: %+v", name, step)
				}
			}
		}
		require.Equal(t, tt.least > 0, found > 0, name)
		require.GreaterOrEqual(t, found, tt.least, name)
	}
}

// A fault that is aimed at a holder hits the zone of a client that holds a lock without a lease: the record has the links that
// were hit, and its plan can be played again around whatever client holds one then.
func TestFaultsHitAHolder(t *testing.T) {
	t.Parallel()
	setup := runtest.Setup(t)
	r := harness.RandomRun{
		Topology: topologies.Single, Lock: runtest.Lock("mutex"), Kind: "watchdog", Length: 8 * time.Second,
	}
	for at := range 3 {
		r.Plan = append(r.Plan, faults.Step{At: time.Duration(1+at) * time.Second, For: 300 * time.Millisecond, Fault: "stall", Target: "holder>redis"})
	}
	require.NoError(t, r.Run(t.Context(), setup))
	run, h, _ := runtest.Judged(t, setup.Dir)
	require.Equal(t, "holder>redis", run.Plan[0].Target)
	holder, before, hits := "", "", 0 // the lock may change hands between the choice and the fault, but seldom
	for _, e := range h.Events {
		switch {
		case e.Op == history.Acquire && e.Type == history.OK:
			zone, _, _ := strings.Cut(e.LockOwner(), ".")
			before, holder = holder, zone+">redis-1"
		case e.Op == history.Inject && e.Type == history.Invoke:
			require.Contains(t, []string{holder, before}, e.Target)
			if e.Target == holder {
				hits++
			}
		}
	}
	require.GreaterOrEqual(t, hits, 2)
	again, err := harness.Replay(run, locks.All(), false)
	require.NoError(t, err)
	require.Equal(t, run.Plan, again.Plan)
}

// What is wrong with a run is said before anything is started.
func TestRandomRun_Validate(t *testing.T) {
	t.Parallel()
	byName := topologies.Options{Access: topologies.AccessName}
	on := func(topology, lock, faults string) harness.RandomRun {
		return harness.RandomRun{Topology: topology, Lock: runtest.Lock(lock), Faults: faults, Length: time.Second}
	}
	named := func(topology, faults string) harness.RandomRun {
		r := on(topology, "mutex", faults)
		r.Servers = byName
		return r
	}
	with := func(lock string, change func(*harness.RandomRun)) harness.RandomRun {
		r := on("single", lock, "")
		change(&r)
		return r
	}
	kind := func(lock, workload string) harness.RandomRun {
		return with(lock, func(r *harness.RandomRun) { r.Kind = workload })
	}
	home := func(change func(*harness.LockSpec)) harness.RandomRun {
		return with("redislock", func(r *harness.RandomRun) { change(&r.Lock) })
	}
	for _, tt := range []struct {
		run  harness.RandomRun
		want string
	}{
		{on("single", "mutex", ""), ""},
		{home(func(*harness.LockSpec) {}), ""},
		{named("single", "failover,planned-failover"), ""},
		{on("sentinal", "mutex", ""), `unknown topology "sentinal" (did you mean sentinel?`},
		// What is asked for by name and can't be is refused with the reason.
		{on("single", "mutex", "crash-failover"), "crash-failover: topology single has nothing to fail over to"},
		{on("single", "mutex", "failover"), "topology single has nothing to fail over to"},
		{on("single", "mutex", "cut,migrate-slot"), "migrate-slot: topology single has no slots"},
		{on("sentinel", "mutex", "cluster"), "topology sentinel has no slots"},
		{on("single", "mutex", "kill-client"), "kill-client: the clients of a random run are no processes of their own"},
		{on("single", "mutex", "client"), "no processes of their own, but with a driver"},
		{on("single", "mutex", "power-cut"), "power-cut: the servers have no append-only file (say --persistence always, everysec or no)"},
		{on("single", "mutex-spin", "drop-message"), "drop-message: no client subscribes to a channel with lock mutex-spin"},
		{on("single", "broken-queue-jumping", "drop-message"), "no client subscribes to a channel with lock broken-queue-jumping"}, // its waiters poll
		{on("single", "memory", "hold-reply"), "hold-reply: lock memory says nothing to any server"},
		{on("independent", "redlock", "partition-rings"), "did you mean partition-ring?"},
		{on("single", "mutex", "partition-bridge"), "topology single has no links between those"},
		{on("single", "mutex", "network,all"), `"all" stands alone`},
		{on("single", "mutex", "netwrk"), "did you mean network?"},
		// A planned failover needs servers whose operator makes it.
		{on("single", "mutex", "planned-failover"), "planned-failover: needs servers that replace no master by themselves, and clients that find it by a name"},
		{named("sentinel", "planned-failover"), "planned-failover: needs servers that replace no master by themselves"},
		{named("single", "crash-failover"), "crash-failover: the servers of topology single replace no master by themselves; planned-failover makes"},
		{named("single", "split-brain"), "replace no master by themselves"},
		// Not every lock can have every workload, resource and option.
		{kind("mutex", "readers-writers"), "lock mutex can't have workload readers-writers: it does not tell readers from writers: use rwmutex"},
		{kind("mutex", "contended,permits"), "it has no permits: use semaphore or semaphore-permit"},
		{kind("semaphore-permit", "several-locks"), "as many as it has permits"},
		{kind("semaphore", "crash"), "its grants have no end"},
		{kind("broken-plain-delete", "re-entrant"), "it is not re-entrant"},
		{kind("mutex", "fair-queue"), "use mutex-fair"},
		{kind("mutex", "re-entrent"), `unknown workload "re-entrent" (did you mean re-entrant?`},
		{with("mutex", func(r *harness.RandomRun) { r.Resource.Fencing = true }), "lock mutex gives no fencing tokens for a resource to check: use mutex-fenced"},
		{with("mutex", func(r *harness.RandomRun) { r.Resource.Kind = "leger" }), `unknown resource "leger" (did you mean ledger?`},
		{with("mutex", func(r *harness.RandomRun) { r.Length = -1 }), "duration must be above 0"},
		{with("mutex", func(r *harness.RandomRun) { r.Workload.Clients = -1 }), "clients must not be negative"},
		{with("mutex", func(r *harness.RandomRun) { r.Workload.Lease = 10 }), "at least 10ms"},
		{with("mutex", func(r *harness.RandomRun) { r.Options.ReplicaAcks = -1 }), "replica acks"},
		{home(func(l *harness.LockSpec) { l.Name = "" }), "a lock under test needs a name"},
		{home(func(l *harness.LockSpec) { l.Open = nil }), "lock redislock can't be opened"},
		{home(func(l *harness.LockSpec) { l.Kind = "rww" }), `unknown kind of lock "rww"`},
	} {
		if err := tt.run.Validate(); tt.want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, tt.want)
		}
	}
}

// What the warm-up of a control lock with a watchdog does is not judged.
func TestTheWarmUpIsNotRecorded(t *testing.T) {
	t.Parallel()
	setup := runtest.Setup(t)
	under := harness.RandomRun{Topology: "single", Lock: runtest.Lock("mutex"), Kind: "watchdog", Length: time.Second}
	r, err := under.Control(history.Run{}, runtest.Lock("correct-key"))
	require.NoError(t, err)
	require.NoError(t, r.Run(t.Context(), setup))
	_, h, report := runtest.Judged(t, setup.Dir)
	require.NotEqual(t, checker.Invalid, report.Verdict, report)
	require.False(t, slices.ContainsFunc(h.Events, func(e history.Event) bool { return e.Lock != "" && e.Lock != "lock-1" }))
}

// A record is enough to run a run again, with the plan that it followed.
func TestARunIsReplayedFromItsRecord(t *testing.T) {
	t.Parallel()
	setup := runtest.Setup(t)
	r := harness.RandomRun{
		Topology: "independent", Servers: topologies.Options{Nodes: 3, Persistence: topologies.PersistEverySec}, Lock: runtest.Lock("redlock"),
		Faults: "network,pause", Length: 2 * time.Second, Options: harness.LockOptions{Watchdog: 900 * time.Millisecond},
		Resource: harness.ResourceConfig{Kind: harness.ResourceLedger},
		Workload: workload.Config{Clients: 5, Locks: 2, Hold: 10 * time.Millisecond, Think: 15 * time.Millisecond, Wait: 300 * time.Millisecond, Careless: true},
	}
	setup.Seed = 11
	require.NoError(t, r.Run(t.Context(), setup))
	run, _, _ := runtest.Judged(t, setup.Dir)
	require.NotEmpty(t, run.Plan)
	given, err := harness.Replay(run, locks.All(), false)
	require.NoError(t, err)
	plan := harness.PlanOf(t, r, setup.Seed)
	require.Equal(t, plan, given.Plan)
	want := r
	want.Plan, want.Kind = plan, "contended"
	want.Workload.Permits = 3 // a default, which may be another one day
	require.Equal(t, want.Lock.Name, given.Lock.Name)
	compared := given
	want.Lock, compared.Lock = harness.LockSpec{}, harness.LockSpec{} // functions can't be compared
	require.Equal(t, want, compared)

	setup.Dir = t.TempDir()
	require.NoError(t, given.Run(t.Context(), setup))
	again, h, _ := runtest.Judged(t, setup.Dir)
	require.Equal(t, run.Plan, again.Plan)
	require.JSONEq(t, string(run.Settings), string(again.Settings))
	require.Equal(t, run.Topology, again.Topology)
	require.Equal(t, run.Faults, again.Faults)
	require.NotEmpty(t, accepted(h, history.Inject))
}

func TestARecordThatCannotBeReplayedSaysWhy(t *testing.T) {
	good := history.Run{
		Topology: history.Topology{Name: "single"}, Lock: "mutex", Workload: "contended", Settings: []byte(`{"length":1000000000}`),
	}
	r, err := harness.Replay(good, locks.All(), false)
	require.NoError(t, err)
	require.NotNil(t, r.Plan, "a record without faults is replayed without")
	step := func(s history.PlannedStep) func(*history.Run) {
		return func(r *history.Run) { r.Plan = append(r.Plan, s) }
	}
	for _, tt := range []struct {
		want   string
		change func(*history.Run)
	}{
		{"it has no settings", func(r *history.Run) { r.Settings = nil }},
		{"lockchaos reproduce ghost-lock", func(r *history.Run) { r.Scenario = "ghost-lock" }},
		{`unknown topology "sngle"`, func(r *history.Run) { r.Topology.Name = "sngle" }},
		{`unknown lock "mutx"`, func(r *history.Run) { r.Lock = "mutx" }},
		{"duration must be above 0", func(r *history.Run) { r.Settings = []byte("{}") }},
		{"rate must be 0 or more", func(r *history.Run) { r.Settings = []byte(`{"length":1,"rate":-0.5}`) }},
		{"read its settings: json:", func(r *history.Run) { r.Settings = []byte(`{"length":"1s"}`) }},
		{`step 1 of the plan: unknown fault "cutt" (did you mean cut?`, step(history.PlannedStep{Fault: "cutt"})},
		{"step 1 of the plan: no link of topology single", step(history.PlannedStep{Fault: "cut", Target: "redis-9"})},
		{`step 1 of the plan: unknown server "redis-9"`, step(history.PlannedStep{Fault: "kill", Target: "redis-9"})},
		{"step 1 of the plan: kill-client: the clients", step(history.PlannedStep{Fault: "kill-client", Target: "a"})},
		{"step 1 of the plan: cut begins at -1s", step(history.PlannedStep{Fault: "cut", Target: "client", At: -time.Second})},
		{"step 2 of the plan: cut begins at 1ms", func(r *history.Run) {
			step(history.PlannedStep{Fault: "cut", Target: "client", For: time.Second})(r)
			step(history.PlannedStep{Fault: "cut", Target: "client", At: time.Millisecond})(r)
		}},
	} {
		bad := good
		tt.change(&bad)
		_, err := harness.Replay(bad, locks.All(), false)
		require.ErrorContains(t, err, tt.want)
	}
}

// A deployment goes on to the next run without anything of the one before. One
// whose master has changed does not.
func TestRunsReuseADeployment(t *testing.T) {
	t.Parallel()
	setup := runtest.Setup(t)
	var boots atomic.Int64
	backend, closeAll := harness.Pool(wrapped(func(d topologies.Deployment) topologies.Deployment {
		boots.Add(1)
		return d
	}))
	t.Cleanup(func() { require.NoError(t, closeAll()) })
	setup.Backend = backend
	play := func(faults string) *history.History {
		setup.Dir = t.TempDir()
		r := harness.RandomRun{Topology: "sentinel", Lock: runtest.Lock("mutex"), Faults: faults, Length: time.Second}
		r.Workload.Clients = 2
		require.NoError(t, r.Run(t.Context(), setup))
		_, h, _ := runtest.Judged(t, setup.Dir)
		return h
	}
	play("cut")
	play("out-of-memory,busy-script")
	require.EqualValues(t, 1, boots.Load())
	topology, err := topologies.ByName("sentinel")
	require.NoError(t, err)
	d, err := backend.Start(t.Context(), topology)
	require.NoError(t, err)
	require.EqualValues(t, 1, boots.Load())
	keys, err := d.Server("redis-1").Observer().Keys(t.Context(), "*lock-*").Result()
	require.NoError(t, err)
	require.Empty(t, keys)
	require.NoError(t, d.Close())
	h := play("crash-failover")
	require.Empty(t, runtest.FailedFaults(h))
	require.EqualValues(t, 1, boots.Load())
	d, err = backend.Start(t.Context(), topology)
	require.NoError(t, err)
	require.NoError(t, d.Close())
	require.EqualValues(t, 2, boots.Load(), "redis-1 was no master any more")
	require.NoError(t, closeAll())
	_, err = d.Server("redis-1").Observer().Ping(t.Context()).Result()
	require.Error(t, err, "it is closed")
}

// partial is a backend whose deployments have no wires of zone-a, or none at all once they were
// asked whether they are whole.
func partial(gone bool) topologies.Backend {
	return wrapped(func(d topologies.Deployment) topologies.Deployment {
		return &partialDeployment{Deployment: d, gone: gone}
	})
}

type partialDeployment struct {
	topologies.Deployment

	gone  bool
	asked atomic.Bool
}

func (d *partialDeployment) Proxy(name string) topologies.Proxy {
	if d.asked.Load() || !d.gone && strings.HasPrefix(name, "zone-a>") {
		return nil
	}
	return d.Deployment.Proxy(name)
}

func (d *partialDeployment) AwaitReady(ctx context.Context) error {
	d.asked.Store(d.gone)
	return d.Deployment.AwaitReady(ctx)
}

// Where one zone's links can be broken and the other's can't, faults hit the one.
func TestAFaultWithOneTargetOfTwoIsDrawnForThat(t *testing.T) {
	t.Parallel()
	setup := runtest.Setup(t)
	setup.Backend = partial(false)
	r := harness.RandomRun{Topology: "single", Lock: runtest.Lock("mutex"), Faults: "cut", Length: 2 * time.Second}
	require.NoError(t, r.Run(t.Context(), setup))
	run, h, _ := runtest.Judged(t, setup.Dir)
	require.NotEmpty(t, run.Plan)
	for _, step := range run.Plan {
		require.Equal(t, "zone-b>redis", step.Target)
	}
	require.Contains(t, run.SkippedFaults[0], "cut can't be done here: nothing can be done to zone-a>redis here")
	require.Empty(t, runtest.FailedFaults(h))
}

// A planned fault that can't be made when its time has come is in the record. A run whose only fault waited in vain for its
// message has shown nothing, so that the fault waits once more.
func TestFaultsThatFailAreRecorded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		backend topologies.Backend
		length  time.Duration
		step    faults.Step
		failed  int
	}{
		{partial(true), time.Second, faults.Step{For: 50 * time.Millisecond, Fault: "cut"}, 1},
		{runtest.Servers(), 3 * time.Second, faults.Step{Fault: "hold-command", Params: map[string]string{"command": "getdel"}}, 2},
	} {
		t.Run(c.step.Fault, func(t *testing.T) {
			t.Parallel()
			setup := runtest.Setup(t)
			c.step.At, c.step.Target, setup.Backend = 50*time.Millisecond, "zone-a>redis", c.backend
			r := harness.RandomRun{Topology: "single", Lock: runtest.Lock("mutex"), Length: c.length, Plan: []faults.Step{c.step}, Workload: workload.Config{Think: 100 * time.Millisecond}}
			require.NoError(t, r.Run(t.Context(), setup))
			_, h, report := runtest.Judged(t, setup.Dir)
			require.Len(t, runtest.FailedFaults(h), c.failed)
			require.Equal(t, checker.Unknown, report.Verdict)
		})
	}
}

// A sized backend starts more servers than it is asked for, as those may be many
// that somebody runs.
type sized struct{ topologies.Backend }

func (b sized) Start(ctx context.Context, _ topologies.Topology) (topologies.Deployment, error) {
	t, err := topologies.New(topologies.Independent, topologies.Options{Nodes: 7})
	if err != nil {
		return nil, err
	}
	return b.Backend.Start(ctx, t)
}

// The plan of a record of somebody else's servers is checked against those that
// there are.
func TestARecordOfServersOfAnotherSizeIsReplayed(t *testing.T) {
	t.Parallel()
	setup := runtest.Setup(t)
	record := history.Run{
		Backend: "attach", Topology: history.Topology{Name: "independent"}, Lock: "redlock", Workload: "contended",
		Settings: []byte(`{"length":1000000000,"clients":2,"locks":1,"hold":1000000,"think":1000000,"wait":100000000,"watchdog":1000000000}`),
		Plan:     []history.PlannedStep{{At: 50 * time.Millisecond, For: 50 * time.Millisecond, Fault: "pause", Target: "redis-7"}},
	}
	r, err := harness.Replay(record, locks.All(), false)
	require.NoError(t, err)
	require.ErrorContains(t, r.Run(t.Context(), setup), `step 1 of the plan: unknown server "redis-7"`)
	setup.Backend = sized{runtest.Backend{}}
	require.NoError(t, r.Run(t.Context(), setup))
	run, h, _ := runtest.Judged(t, setup.Dir)
	require.Equal(t, record.Plan, run.Plan)
	require.Empty(t, runtest.FailedFaults(h))
	record.Backend = "process"
	_, err = harness.Replay(record, locks.All(), false)
	require.ErrorContains(t, err, `unknown server "redis-7"`)
}

// What a correct lock survives leaves it valid, on each topology, and some of it is
// of effect also in a short run.
func TestWhatIsSafeIsSurvived(t *testing.T) {
	for _, topology := range topologies.NamesOf(topologies.StoreRedis) {
		t.Run(topology, func(t *testing.T) {
			t.Parallel()
			setup := runtest.Setup(t)
			r := harness.RandomRun{
				Topology: topology, Lock: runtest.Lock(locks.Default(topology)), Faults: faults.MixSafe, Length: 2 * time.Second,
				Workload: workload.Config{Clients: 4},
			}
			if topology == topologies.Cluster {
				r.Servers = steady
			}
			run, _, _ := runtest.Until(t, r, setup, checker.Valid, func(h *history.History, _ checker.Report) bool {
				return len(accepted(h, history.Inject)) > 0
			})
			require.NotEmpty(t, run.Plan)
			require.Equal(t, "safe", run.Faults)
		})
	}
}
