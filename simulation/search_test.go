package simulation_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/locks"
	"github.com/lockchaos/lockchaos/simulation"
	"github.com/lockchaos/lockchaos/simulation/world"
	"github.com/lockchaos/lockchaos/topologies"
)

// serveArgument makes the test binary a worker.
const serveArgument = "serve-simulations"

func TestMain(m *testing.M) {
	logging.Disable()
	if len(os.Args) == 2 && os.Args[1] == serveArgument {
		if err := simulation.Serve(context.Background(), os.Stdin, os.Stdout, locks.All()); err != nil {
			panic(err)
		}
		return
	}
	os.Exit(m.Run()) //nolint:forbidigo // the tests are over
}

// workers are processes that simulate.
func workers(t *testing.T, n int) *simulation.Pool {
	t.Helper()
	path, err := os.Executable()
	require.NoError(t, err)
	p := simulation.NewPool(n, path, serveArgument)
	t.Cleanup(p.Close)
	return p
}

// What is known to be possible is found from random seeds, without a hint, and made
// small.
func TestKnownFailures_NoRace(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it searches for some seconds of processor time")
	}
	for _, x := range []struct {
		name, topology, lock, faults, kind string
		from, to                           uint64
		faultsLeft                         int
	}{
		{"failover", topologies.Sentinels, "mutex", "network,failover", checker.DoubleGrant, 1, 60, 3},
		{"failover", topologies.Cluster, "redislock", "failover", checker.DoubleGrant, 60, 90, 3},
		{"crash-restart", topologies.Independent, "redlock", "crash", checker.DoubleGrant, 1, 60, 3},
		{"clock jump", topologies.Independent, "redlock", "clock", checker.DoubleGrant, 1, 1000, 3},
		{"restart without data", topologies.Single, "mutex", "crash", checker.DoubleGrant, 1, 60, 3},
		{"paused holder", topologies.Single, "mutex", "client", checker.LostUpdate, 1, 200, 3},
		{"late write", topologies.Single, "broken-plain-delete", "network", checker.DoubleGrant, 1, 200, 3},
	} {
		t.Run(x.name+"/"+x.topology+"/"+x.lock, func(t *testing.T) {
			if x.to > 200 && os.Getenv(seedsVariable) == "" {
				t.Skip("in the nightly run: set " + seedsVariable)
			}
			l, pool := spec(t, x.lock), workers(t, 1)
			k := simulation.Campaign{Topology: x.topology, Faults: x.faults}
			for seed := x.from; seed <= x.to; seed++ {
				r, err := pool.Do(t.Context(), simulation.Job{Lock: l.Name, Campaign: k, Seed: seed})
				require.NoError(t, err)
				if !slices.Contains(r.Findings, x.kind) {
					continue
				}
				small, err := pool.Do(t.Context(), simulation.Job{Lock: l.Name, Case: &r.Case, Shrink: x.kind, Budget: 60, Again: 1})
				require.NoError(t, err)
				t.Logf("seed %d: %d faults made %d in %d runs: %v", seed, len(r.Case.Plan), len(small.Case.Plan), small.Runs, small.Case.Plan)
				require.LessOrEqual(t, len(small.Case.Plan), x.faultsLeft)
				require.Contains(t, small.Findings, x.kind)
				return
			}
			t.Errorf("none of the seeds %d to %d shows %s", x.from, x.to, x.kind)
		})
	}
}

// The same seed is the same run, in one process and in another.
func TestReplays(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it plays each case eight times")
	}
	for _, x := range []struct{ topology, lock string }{
		{topologies.Single, "mutex"},
		{topologies.Single, "redislock"},
		{topologies.Single, "redsync"},
		{topologies.Sentinels, "mutex"},
		{topologies.Cluster, "mutex"},
		{topologies.Independent, "redsync"},
		{topologies.Independent, "redlock"},
	} {
		t.Run(x.topology+"/"+x.lock, func(t *testing.T) {
			n := seeds(t, 2)
			same := 0
			var hashes [2][]string
			for i := range hashes {
				pool := workers(t, 1)
				for seed := 1; seed <= n; seed++ {
					r, err := pool.Do(t.Context(), simulation.Job{
						Lock: x.lock, Campaign: simulation.Campaign{Topology: x.topology}, Seed: uint64(seed), Again: 3,
					})
					require.NoError(t, err)
					same += r.Same
					hashes[i] = append(hashes[i], r.Hash)
				}
			}
			across := 0
			for i := range hashes[0] {
				if hashes[0][i] == hashes[1][i] {
					across++
				}
			}
			t.Logf("%d of %d repetitions in one process, and %d of %d seeds in another one, were the same run", same, 2*3*n, across, n)
			// Of timers of one instant, and of ready cases of a select, the runtime takes any: a few runs differ.
			require.NotZero(t, same)
			require.NotZero(t, across)
		})
	}
}

func TestDrawIsFixedBySeed(t *testing.T) {
	for _, topology := range simulation.Topologies() {
		for _, l := range locks.All() {
			k := simulation.Campaign{Topology: topology, Faults: "all"}
			if k.Validate(l) != nil {
				continue
			}
			for seed := range uint64(10) {
				a, err := k.Draw(l, seed)
				require.NoError(t, err)
				b, err := k.Draw(l, seed)
				require.NoError(t, err)
				require.Equal(t, a, b)
				require.NoError(t, a.Validate(l), "%+v", a)
				encoded, err := json.Marshal(a)
				require.NoError(t, err)
				var c simulation.Case
				require.NoError(t, json.Unmarshal(encoded, &c))
				require.Equal(t, a, c, "a case is plain data")
			}
		}
	}
}

func TestShrinkKeepsWhatIsNeeded(t *testing.T) {
	needed := world.Fault{Name: world.Kill, Target: "redis-1", At: 1234567 * time.Microsecond, For: 777 * time.Millisecond, After: &world.Anchor{Event: world.Write, Nth: 5}}
	c := simulation.Case{Clients: 5, Zones: 4, Length: 8 * time.Second}
	for i := range 7 {
		c.Plan = append(c.Plan, world.Fault{Name: world.Flush, Target: "redis-1", At: time.Duration(i)})
	}
	c.Plan = append(c.Plan, needed)
	small, runs := simulation.Shrink(c, 500, func(c simulation.Case) bool {
		return c.Clients >= 2 && c.Zones >= 2 && c.Length >= time.Second && slices.ContainsFunc(c.Plan, func(f world.Fault) bool {
			return f.Name == world.Kill && f.At >= time.Second && f.For >= 300*time.Millisecond && f.After.Nth >= 3
		})
	})
	require.Len(t, small.Plan, 1)
	require.Equal(t, "at 1.2s, write 3: kill redis-1 for 389ms", small.Plan[0].String())
	require.Equal(t, []any{2, 2, time.Second}, []any{small.Clients, small.Zones, small.Length.Truncate(time.Second)})
	require.Less(t, runs, 200)
	require.Equal(t, 5, needed.After.Nth, "what was given is not changed")

	_, runs = simulation.Shrink(c, 10, func(simulation.Case) bool { return true })
	require.Equal(t, 10, runs, "the budget")
}

func TestSweepFindsALostReleaseReply(t *testing.T) {
	l, pool := spec(t, "broken-retry-refused"), workers(t, 1)
	base := simulation.SweepBase(l, simulation.Campaign{Topology: topologies.Single}, 1)
	quiet, err := pool.Do(t.Context(), simulation.Job{Lock: l.Name, Case: &base})
	require.NoError(t, err)
	require.Empty(t, quiet.Findings)
	w := simulation.NewSweep(base, quiet.Links)
	requests := 0
	for _, n := range quiet.Links {
		requests += n
	}
	require.Equal(t, 8*requests, w.Faults())
	for i := range w.Faults() {
		require.Len(t, w.Case(i).Plan, 1)
		require.NoError(t, w.Case(i).Validate(l))
	}
	require.Len(t, w.Case(0, 1).Plan, 2)
	require.Empty(t, base.Plan, "what was given is not changed")
}

// A request that was refused and left its key is seen at once, and not only when the lock was free for long.
func TestSearchFindsARefusalThatHolds(t *testing.T) {
	l, pool := spec(t, "broken-wait-leftover"), workers(t, 1)
	found := 0
	for seed := uint64(1); seed <= 300 && found == 0; seed++ {
		r, err := pool.Do(t.Context(), simulation.Job{Lock: l.Name, Campaign: simulation.Campaign{Topology: topologies.Sentinels, ReplicaAcks: 1}, Seed: seed, Keep: true})
		require.NoError(t, err)
		if slices.Contains(r.Findings, checker.Stuck) && strings.Contains(string(r.Outcome.History), `"what":"left"`) {
			found++
		}
	}
	require.Positive(t, found)
}

// Pairs of what is rare come first; what fails by itself, and what changes nothing, is in
// none with its like.
func TestSweepOrdersPairs(t *testing.T) {
	w := simulation.NewSweep(simulation.Case{Topology: topologies.Single}, map[string]int{"zone-a>redis-1": 1})
	require.Equal(t, 8, w.Faults())
	shapes, failed := []string{"quiet", "often", "rare", "often", "quiet", "", "", ""}, []bool{5: true, 6: true, 7: true}
	require.Equal(t, [][]int{{0, 2}, {1, 2}, {2, 3}, {2, 4}, {0, 1}, {0, 3}, {1, 3}, {1, 4}, {3, 4}}, w.Pairs(shapes, failed, "quiet", 100))
	failed[2] = true
	require.Equal(t, [][]int{{0, 1}, {0, 3}}, w.Pairs(shapes, failed, "quiet", 2), "the budget")
	require.Empty(t, w.Pairs(shapes, []bool{true, true, true, true, false, true, true, true}, "quiet", 2))
}

// A killed process does nothing more: what it had under way is unknown, and what it held
// lasts for its lease.
func TestKilledClient(t *testing.T) {
	l := spec(t, "mutex")
	c := simulation.SweepBase(l, simulation.Campaign{Topology: topologies.Single}, 1)
	o := run(t, l, c)
	w, killed := simulation.NewSweep(c, o.Links), 0
	for i := range w.Faults() {
		c := w.Case(i)
		if c.Plan[0].Name != world.KillClient {
			continue
		}
		killed++
		o := run(t, l, c)
		h, err := history.ReadAll(bytes.NewReader(o.History))
		require.NoError(t, err)
		crashed, others := false, 0
		for _, e := range h.Events {
			crashed = crashed || e.Op == history.Crash
			if crashed && e.Process != history.NoProcess && e.Op != history.Crash {
				require.False(t, strings.HasPrefix(e.Owner, c.Plan[0].Target+"."), "%v", e)
				others++
			}
		}
		require.True(t, crashed)
		require.NotZero(t, others, "the other process goes on")
		found, err := c.Findings(t.Context(), l, o)
		require.NoError(t, err)
		require.Empty(t, found, "%v", c.Plan)
	}
	require.NotZero(t, killed)
}

// Each of two copies of a request that arrive after its client has released the lock takes
// it for a lease, which is longer than a lock may be stuck otherwise.
func TestLateCopiesTakeALockForTheirLeases(t *testing.T) {
	l := spec(t, "mutex")
	w := simulation.NewSweep(simulation.SweepBase(l, simulation.Campaign{Topology: topologies.Single}, 1), map[string]int{"zone-a>redis-1": 9})
	var late []int
	for i := range w.Faults() {
		if f := w.Case(i).Plan[0]; f.Name == world.RepeatCommand && f.By > 0 && (f.After.Nth == 3 || f.After.Nth == 8) {
			late = append(late, i)
		}
	}
	c := w.Case(late...)
	require.Len(t, c.Plan, 2)
	require.Empty(t, judged(t, l, c))
}

// A request that arrives when the client that sent it twice has released its lock joins the
// queue again, and keeps its place there for a lease. This case shows it.
func TestLateRequestsKeepAPlaceForTheirLeases(t *testing.T) {
	l := spec(t, "correct-queue")
	c := readCase(t, "testdata/late-requests.json")
	require.Empty(t, judged(t, l, c))
	c.Progress = 0
	c.Progress = simulation.Patience(l, c)
	require.NotEmpty(t, judged(t, l, c), "it is stuck for longer than without late requests")
}

func TestCasesThatCantBe(t *testing.T) {
	require.ErrorContains(t, simulation.Simulable(spec(t, "rueidislock"), topologies.Single), "lock rueidislock needs client-side caching")
	l := spec(t, "mutex")
	for _, x := range []struct {
		change func(*simulation.Case)
		want   string
	}{
		{func(c *simulation.Case) { c.Topology = "clutser" }, `unknown simulated topology "clutser"`},
		{func(c *simulation.Case) { c.Topology = topologies.Independent }, "lock mutex"},
		{func(c *simulation.Case) { c.Workload = "permits" }, "can't have workload permits"},
		{func(c *simulation.Case) { c.Workload = "sleep" }, "workload"},
		{func(c *simulation.Case) { c.Clients = 0 }, "clients"},
		{func(c *simulation.Case) { c.Length = 0 }, "length"},
		{func(c *simulation.Case) { c.Length = 1000 * time.Hour }, "length"},
		{func(c *simulation.Case) { c.Progress = -time.Second }, "no time may be below 0"},
		{func(c *simulation.Case) { c.Locks = 1 << 40 }, "at most 1000 clients and locks"},
		{func(c *simulation.Case) { c.Servers = -1 }, "1 to 99 servers"},
		{func(c *simulation.Case) { c.Plan = []world.Fault{{Name: world.Kill, Target: "redis-9"}} }, "fault 1 of the plan"},
	} {
		c := quiet(topologies.Single, l)
		x.change(&c)
		_, err := simulation.Run(new(testing.T), l, c)
		require.ErrorContains(t, err, x.want)
	}
}

// A record has the case, and says that it is simulated.
func TestRecord(t *testing.T) {
	l := spec(t, "mutex")
	c := quiet(topologies.Single, l)
	c.Plan = []world.Fault{{Name: world.ClockRate, Target: "redis-1", Percent: -10, For: time.Second}}
	o := run(t, l, c)
	r := c.Record(l, o)
	require.Equal(t, history.Simulated, r.Backend)
	record, err := simulation.RecordOf(r)
	require.NoError(t, err)
	require.Equal(t, o.Hash, record.Hash)
	require.Equal(t, o.Hash, run(t, l, record.Case).Hash, "what was recorded runs again")
	h, err := o.Read()
	require.NoError(t, err)
	require.Regexp(t, `^access ok \d+, acquire .*release ok \d+$`, simulation.Shape(h.Events))
	r.Backend = "process"
	_, err = simulation.RecordOf(r)
	require.ErrorContains(t, err, "no record of a simulated run")
}

func TestServe(t *testing.T) {
	var in, out bytes.Buffer
	jobs := json.NewEncoder(&in)
	require.NoError(t, jobs.Encode(simulation.Job{Lock: "no-such-lock"}))
	require.NoError(t, jobs.Encode(simulation.Job{Lock: "memory", Campaign: simulation.Campaign{Topology: topologies.Single}, Seed: 3}))
	require.NoError(t, simulation.Serve(t.Context(), &in, &out, locks.All()))
	results := json.NewDecoder(&out)
	var r simulation.Result
	require.NoError(t, results.Decode(&r))
	require.Contains(t, r.Error, "no-such-lock")
	r = simulation.Result{}
	require.NoError(t, results.Decode(&r))
	require.Empty(t, r.Error)
	require.Empty(t, r.Findings)
	require.Positive(t, r.Granted)
	require.ErrorIs(t, results.Decode(&r), io.EOF)
	require.ErrorContains(t, simulation.Serve(t.Context(), strings.NewReader("{"), io.Discard, nil), "read job")
}

// A worker that has crashed is replaced.
func TestPoolReplacesAWorker(t *testing.T) {
	path, err := os.Executable()
	require.NoError(t, err)
	pool := simulation.NewPool(1, path, "-test.run=none")
	t.Cleanup(pool.Close)
	for range 2 {
		_, err = pool.Do(t.Context(), simulation.Job{Lock: "memory"})
		require.ErrorContains(t, err, "simulate lock memory")
	}
}
