package harness_test

import (
	"context"
	"reflect"
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

// randomRuns are runs on all topologies, with all mixes that they can have.
func randomRuns(t *testing.T) []harness.RandomRun {
	t.Helper()
	var all []harness.RandomRun
	for _, topology := range topologies.Names() {
		options := []topologies.Options{{}}
		if topologies.StoreOf(topology) == topologies.StoreRedis {
			options = append(options, harness.Persistent())
		}
		if topology == topologies.Single || topology == topologies.Sentinels {
			options = append(options, topologies.Options{Access: topologies.AccessName})
		}
		for _, servers := range options {
			for _, mix := range append(faults.Mixes(), "", "network,process", "cut,kill,network") {
				r := harness.RandomRun{
					Topology: topology, Servers: servers, Lock: runtest.Lock(locks.Default(topology)), Faults: mix, Length: time.Minute,
				}
				if err := r.Validate(); err != nil {
					require.Regexp(t, "nothing to fail over to|has no slots|topology (etcd|zookeeper) has none|evades the library|ZooKeeper counts|files of Redis alone", err.Error(), "%s %s", topology, mix)
					continue
				}
				all = append(all, r)
			}
		}
	}
	require.Greater(t, len(all), 60)
	return all
}

func TestTheSameSeedGivesTheSamePlan(t *testing.T) {
	t.Parallel()
	for _, r := range randomRuns(t) {
		differ := false
		var before faults.Schedule
		for seed := range uint64(3) {
			plan, err := r.Schedule(seed)
			require.NoError(t, err)
			again, err := r.Schedule(seed)
			require.NoError(t, err)
			require.Equal(t, plan, again, "%s %s", r.Topology, r.Faults)
			differ = differ || seed > 0 && !reflect.DeepEqual(plan, before)
			before = plan
			require.Equal(t, r.Faults == faults.MixNone, len(plan) == 0)
		}
		require.Equal(t, r.Faults != faults.MixNone, differ, "%s %s", r.Topology, r.Faults)
	}
}

// Plans of all lengths leave quiet phases, and begin with a fault as long as there
// is room for one.
func TestPlansHaveQuietPhases(t *testing.T) {
	t.Parallel()
	for _, r := range randomRuns(t) {
		if r.Faults == faults.MixNone {
			continue
		}
		for _, r.Length = range []time.Duration{time.Second, 3 * time.Second, 10 * time.Second, time.Minute} {
			for seed := range uint64(2) {
				plan, err := r.Schedule(seed)
				require.NoError(t, err)
				require.NotEmpty(t, plan, "%s %s %v", r.Topology, r.Faults, r.Length)
				end := time.Duration(0)
				for _, step := range plan {
					require.Greater(t, step.At, end, "a pause comes before each")
					end = step.At + step.For
				}
				require.LessOrEqual(t, end, r.Length-time.Duration(harness.QuietEnd(r)))
				r.Plan = plan
				require.NoError(t, r.Validate(), "what is drawn can be given")
				r.Plan = nil
			}
		}
	}
}

// Like a deck of cards: none comes again before all have come.
func TestEveryFaultOfAMixIsDrawn(t *testing.T) {
	t.Parallel()
	drawn := map[string]bool{}
	for _, r := range randomRuns(t) {
		all, err := harness.Picks(r)
		require.NoError(t, err)
		for seed := range uint64(5) {
			r.Length = 10 * time.Minute
			plan, err := r.Schedule(seed)
			require.NoError(t, err)
			seen := map[string]int{}
			for _, step := range plan {
				seen[step.Fault]++
				drawn[step.Fault] = true
			}
			for _, p := range all {
				switch r.Faults {
				case faults.MixAll:
					if p.Cant == "" && p.Mix != string(faults.Clock) && p.Mix != string(faults.Disk) {
						require.NotZero(t, seen[p.Fault], "%s on %s", p.Fault, r.Topology)
					}
				case p.Mix:
					require.Equal(t, p.Cant == "", seen[p.Fault] > 0, "%s on %s: %s", p.Fault, r.Topology, p.Cant)
				case faults.MixSafe:
					if !slices.ContainsFunc(all, func(o harness.Drawn) bool { return o.Fault == p.Fault && o.Cant == "" && o.Breaks == "" }) {
						require.Zero(t, seen[p.Fault], "%s on %s breaks a promise: %s", p.Fault, r.Topology, p.Breaks)
					}
				}
			}
		}
	}
	for _, spec := range faults.All() {
		require.Equal(t, spec.Candidates != nil, drawn[spec.Name], spec.Name)
	}
}

// With more weight, a fault tends to come sooner.
func TestWeightsCount(t *testing.T) {
	t.Parallel()
	first := map[string]int{}
	for seed := range uint64(300) {
		plan, err := harness.RandomRun{Topology: "sentinel", Lock: runtest.Lock("mutex"), Length: 10 * time.Second}.Schedule(seed)
		require.NoError(t, err)
		first[plan[0].Fault]++
	}
	require.Greater(t, first["split-brain"], 3*first["flap"], "%v", first)
	require.Greater(t, first["crash-failover"], 3*first["bandwidth"], "%v", first)
}

func TestWhatBreaksAPromiseIsNotSafe(t *testing.T) {
	byName := topologies.Options{Access: topologies.AccessName}
	tests := []struct {
		name   string
		run    harness.RandomRun
		safe   string
		unsafe string
	}{
		{"single", harness.RandomRun{Topology: "single", Lock: runtest.Lock("mutex")}, "cut stall out-of-memory pause busy-script script-flush partition", "kill restart flush evict clock-forward power-cut"},
		{"append-only file", harness.RandomRun{Topology: "single", Lock: runtest.Lock("mutex"), Servers: harness.Persistent()}, "kill restart shutdown pause", "restart-empty flush drop-key corrupt-key"},
		{"replicas", harness.RandomRun{Topology: "sentinel", Lock: runtest.Lock("mutex")}, "cut out-of-memory pause-writes", "crash-failover split-brain failover pause partition-halves"},
		{"acks of some", harness.RandomRun{Topology: "sentinel", Lock: runtest.Lock("mutex"), Options: harness.LockOptions{ReplicaAcks: 1}}, "cut", "crash-failover split-brain"},
		{"acks of all", harness.RandomRun{Topology: "sentinel", Lock: runtest.Lock("mutex"), Options: harness.LockOptions{ReplicaAcks: 2}}, "crash-failover split-brain failover partition-halves pause", "kill flush"},
		{"cluster", harness.RandomRun{Topology: "cluster", Lock: runtest.Lock("mutex")}, "migrate-slot cut", "pause kill crash-failover"},
		{"independent", harness.RandomRun{Topology: "independent", Lock: runtest.Lock("redlock")}, "partition-halves pause", "restart flush clock-back"},
		{"no server is replaced by itself", harness.RandomRun{Topology: "single", Lock: runtest.Lock("mutex"), Servers: byName}, "planned-failover pause partition-halves", "kill flush"},
		{"sentinels replace one behind a name", harness.RandomRun{Topology: "sentinel", Lock: runtest.Lock("mutex"), Servers: byName}, "cut", "failover pause"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			all, err := harness.Picks(tt.run)
			require.NoError(t, err)
			breaks := map[string]string{}
			for _, p := range all {
				breaks[p.Fault] = p.Breaks
			}
			for name := range strings.FieldsSeq(tt.safe) {
				require.Empty(t, breaks[name], name)
			}
			for name := range strings.FieldsSeq(tt.unsafe) {
				require.NotEmpty(t, breaks[name], name)
			}
		})
	}
}

// What is asked for by name and can't be is refused with the reason.
func TestFaultsThatCannotBeAreRefusedWithTheReason(t *testing.T) {
	for _, tt := range []struct{ topology, lock, faults, want string }{
		{"single", "mutex", "crash-failover", "crash-failover: topology single has nothing to fail over to"},
		{"single", "mutex", "failover", "topology single has nothing to fail over to"},
		{"single", "mutex", "cut,migrate-slot", "migrate-slot: topology single has no slots"},
		{"sentinel", "mutex", "cluster", "topology sentinel has no slots"},
		{"single", "mutex", "kill-client", "kill-client: the clients of a random run are no processes of their own"},
		{"single", "mutex", "client", "faults of clients are for scenarios only"},
		{"single", "mutex", "power-cut", "power-cut: the servers have no append-only file (say --persistence always, everysec or no)"},
		{"single", "mutex-spin", "drop-message", "drop-message: no client subscribes to a channel with lock mutex-spin"},
		{"single", "memory", "hold-reply", "hold-reply: lock memory says nothing to any server"},
		{"independent", "redlock", "partition-rings", "did you mean partition-ring?"},
		{"single", "mutex", "partition-bridge", "topology single has no links between those"},
		{"single", "mutex", "network,all", `"all" stands alone`},
		{"single", "mutex", "netwrk", "did you mean network?"},
		{"single", "mutex", "", ""},
	} {
		err := harness.RandomRun{Topology: tt.topology, Lock: runtest.Lock(tt.lock), Faults: tt.faults, Length: time.Second}.Validate()
		if tt.want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, tt.want)
	}
}

// A planned failover needs servers whose operator makes it.
func TestFailoversThatDoNotFitTheServersAreRefusedWithTheReason(t *testing.T) {
	byName := topologies.Options{Access: topologies.AccessName}
	for _, tt := range []struct {
		topology string
		servers  topologies.Options
		faults   string
		want     string
	}{
		{"single", topologies.Options{}, "planned-failover", "planned-failover: needs servers that replace no master by themselves, and clients that find it by a name"},
		{"sentinel", byName, "planned-failover", "planned-failover: needs servers that replace no master by themselves"},
		{"single", byName, "crash-failover", "crash-failover: the servers of topology single replace no master by themselves; planned-failover makes"},
		{"single", byName, "split-brain", "replace no master by themselves"},
		{"single", byName, "failover,planned-failover", ""},
	} {
		err := harness.RandomRun{Topology: tt.topology, Servers: tt.servers, Lock: runtest.Lock("mutex"), Faults: tt.faults, Length: time.Second}.Validate()
		if tt.want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, tt.want)
	}
}

// The master's role moves as planned, in each of the ways that there are, and the
// name follows it. No kind of lock is blamed.
func TestANameFollowsPlannedFailovers(t *testing.T) {
	fourLocks := []string{"mutex-fair", "mutex", "mutex-fenced", "rwmutex-write"}
	for i, how := range []string{"failover", "replicaof"} {
		for j, pubsub := range []string{"keep", "close"} {
			lock := fourLocks[2*i+j]
			t.Run(how+" "+pubsub+" "+lock, func(t *testing.T) {
				t.Parallel()
				setup := runtest.Setup(t)
				r := harness.RandomRun{
					Topology: "single", Servers: topologies.Options{Access: topologies.AccessName}, Lock: runtest.Lock(lock), Length: 3 * time.Second,
					Plan: faults.Schedule{
						{At: 500 * time.Millisecond, Fault: "planned-failover", Params: map[string]string{"how": how, "pubsub": pubsub}},
						{At: 1500 * time.Millisecond, Fault: "planned-failover", Params: map[string]string{"how": how, "pubsub": pubsub}},
					},
				}
				r.Workload.Wait = r.Wait() // those who wait subscribe
				run, h, _ := runtest.Until(t, r, setup, checker.Valid, nil)
				given, err := harness.Replay(run, locks.All(), false)
				require.NoError(t, err)
				require.Equal(t, r.Servers, given.Servers, "the record says how clients find the master")
				var effects, leads []string
				for _, e := range h.Events {
					switch {
					case e.Op == history.Inject && e.Type == history.OK:
						effects = append(effects, e.Target+": "+e.Value)
					case e.Op == history.Observe && e.Node == topologies.Primary:
						leads = append(leads, e.What+" "+e.Value)
					}
				}
				require.NotEmpty(t, effects) // a slow machine has no time for the second
				require.Len(t, leads, len(effects)+1, "%v", leads)
				fate := map[string]string{"keep": "left open", "close": "closed"}[pubsub]
				require.Regexp(t, `^redis-1: redis-[23] took over from redis-1, [1-9][0-9]* connections of subscribers `+fate+`$`, effects[0])
				require.Equal(t, "master redis-1", leads[0])
				for i, effect := range effects {
					require.NotEqual(t, leads[i], leads[i+1])
					require.Contains(t, effect, strings.TrimPrefix(leads[i+1], "master ")+" took over")
				}
			})
		}
	}
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
	plan, err := r.Schedule(setup.Seed)
	require.NoError(t, err)
	require.Equal(t, plan, given.Plan)
	drawn, err := given.Schedule(99)
	require.NoError(t, err)
	require.Equal(t, plan, drawn, "nothing is drawn again, whatever the seed")
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
	landed := 0
	for _, e := range h.Events {
		if e.Op == history.Inject && e.Type == history.OK {
			landed++
		}
	}
	require.Positive(t, landed)
}

func TestARecordThatCannotBeReplayedSaysWhy(t *testing.T) {
	good := history.Run{
		Topology: history.Topology{Name: "single"}, Lock: "mutex", Workload: "contended", Settings: []byte(`{"length":1000000000}`),
	}
	r, err := harness.Replay(good, locks.All(), false)
	require.NoError(t, err)
	plan, err := r.Schedule(1)
	require.NoError(t, err)
	require.Empty(t, plan, "a record without faults is replayed without")
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

// counting counts what a backend boots.
type counting struct {
	topologies.Backend

	boots atomic.Int64
}

func (c *counting) Start(ctx context.Context, t topologies.Topology) (topologies.Deployment, error) {
	c.boots.Add(1)
	return c.Backend.Start(ctx, t)
}

// A deployment goes on to the next run without anything of the one before. One
// whose master has changed does not.
func TestRunsReuseADeployment(t *testing.T) {
	t.Parallel()
	setup := runtest.Setup(t)
	boots := &counting{Backend: runtest.Backend{}}
	backend, closeAll := harness.Pool(boots)
	t.Cleanup(func() { require.NoError(t, closeAll()) })
	setup.Backend = backend
	play := func(topology, faults string) (history.Run, *history.History) {
		setup.Dir = t.TempDir()
		r := harness.RandomRun{Topology: topology, Lock: runtest.Lock("mutex"), Faults: faults, Length: time.Second}
		require.NoError(t, r.Run(t.Context(), setup))
		run, h, _ := runtest.Judged(t, setup.Dir)
		return run, h
	}
	play("sentinel", "cut")
	play("sentinel", "out-of-memory,busy-script")
	require.EqualValues(t, 1, boots.boots.Load())
	topology, err := topologies.ByName("sentinel")
	require.NoError(t, err)
	d, err := backend.Start(t.Context(), topology)
	require.NoError(t, err)
	require.EqualValues(t, 1, boots.boots.Load())
	keys, err := d.Server("redis-1").Observer().Keys(t.Context(), "*lock-*").Result()
	require.NoError(t, err)
	require.Empty(t, keys)
	require.Implements(t, (*topologies.Failover)(nil), d)
	require.NoError(t, d.Close())
	_, h := play("sentinel", "crash-failover")
	require.Empty(t, runtest.FailedFaults(h))
	require.EqualValues(t, 1, boots.boots.Load())
	play("sentinel", "none")
	require.EqualValues(t, 2, boots.boots.Load(), "redis-1 was no master any more")
	require.NoError(t, closeAll())
	_, err = d.Server("redis-1").Observer().Ping(t.Context()).Result()
	require.Error(t, err, "it is closed")
}

// A partial backend's deployments have no wires of zone-a, or none at all once
// they were asked whether they are whole.
type partial struct {
	topologies.Backend

	gone bool
}

func (b partial) Start(ctx context.Context, t topologies.Topology) (topologies.Deployment, error) {
	d, err := b.Backend.Start(ctx, t)
	if err != nil {
		return nil, err
	}
	return &partialDeployment{Deployment: d, gone: b.gone}, nil
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
	setup.Backend = partial{Backend: runtest.Backend{}}
	r := harness.RandomRun{Topology: "single", Lock: runtest.Lock("mutex"), Faults: "cut", Length: 2 * time.Second}
	require.NoError(t, r.Run(t.Context(), setup))
	run, h, _ := runtest.Judged(t, setup.Dir)
	require.NotEmpty(t, run.Plan)
	for _, step := range run.Plan {
		require.Equal(t, "zone-b>redis", step.Target)
	}
	require.Contains(t, run.SkippedFaults[0], "cut: nothing can be done to zone-a>redis here")
	require.Empty(t, runtest.FailedFaults(h))
}

// A planned fault that can't be made when its time has come is in the record.
func TestAFaultThatCannotBeMadeIsRecorded(t *testing.T) {
	t.Parallel()
	setup := runtest.Setup(t)
	setup.Backend = partial{Backend: runtest.Backend{}, gone: true}
	r := harness.RandomRun{
		Topology: "single", Lock: runtest.Lock("mutex"), Length: time.Second,
		Plan: faults.Schedule{{At: 50 * time.Millisecond, For: 50 * time.Millisecond, Fault: "cut", Target: "zone-a>redis"}},
	}
	require.NoError(t, r.Run(t.Context(), setup))
	_, h, report := runtest.Judged(t, setup.Dir)
	require.Len(t, runtest.FailedFaults(h), 1)
	require.Equal(t, checker.Unknown, report.Verdict)
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
				Topology: topology, Lock: runtest.Lock(locks.Default(topology)), Faults: faults.MixSafe, Length: 4 * time.Second,
			}
			if topology == topologies.Cluster {
				r.Servers = steady
			}
			run, _, _ := runtest.Until(t, r, setup, checker.Valid, func(h *history.History, _ checker.Report) bool {
				return slices.ContainsFunc(h.Events, func(e history.Event) bool {
					return e.Op == history.Inject && e.Type == history.OK
				})
			})
			require.NotEmpty(t, run.Plan)
			require.Equal(t, "safe", run.Faults)
		})
	}
}
