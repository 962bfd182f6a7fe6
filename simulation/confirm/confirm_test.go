package confirm_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/locks"
	"github.com/lockchaos/lockchaos/simulation"
	"github.com/lockchaos/lockchaos/simulation/confirm"
	"github.com/lockchaos/lockchaos/simulation/world"
	"github.com/lockchaos/lockchaos/topologies"
)

// stepsOf is the part of a scenario below "steps", without its indentation.
func stepsOf(t *testing.T, s confirm.Script) string {
	t.Helper()
	_, steps, found := strings.Cut(string(s.YAML), "steps:\n")
	require.True(t, found, "%s", s.YAML)
	return strings.ReplaceAll(steps, "  - ", "")
}

// found runs a case, and returns its scenarios for the first violation of a kind.
func found(t *testing.T, c simulation.Case, kind string) ([]confirm.Script, error) {
	t.Helper()
	logging.Disable()
	l, err := locks.All().ByName(c.Lock)
	require.NoError(t, err)
	o, err := simulation.Run(new(testing.T), l, c)
	require.NoError(t, err)
	h, err := history.ReadAll(strings.NewReader(string(o.History)))
	require.NoError(t, err)
	for _, r := range harness.Judge(t.Context(), c.Record(l, o), h).Results {
		for _, v := range r.Violations {
			if v.Kind == kind {
				return confirm.Scripts(c, l, o, v)
			}
		}
	}
	require.Fail(t, "the simulated run shows no "+kind)
	return nil, nil
}

// base is a short case in which clients hold the lock long enough to meet a fault.
func base(topology, lock string, plan ...world.Fault) simulation.Case {
	return simulation.Case{
		Lock: lock, Topology: topology, Seed: 1, Plan: plan, Length: time.Second, Workload: "contended",
		Clients: 2, Lease: 6 * time.Second, Wait: 3 * time.Second, Hold: 300 * time.Millisecond,
	}
}

// A killed server becomes a restart between the two grants, and leases that nothing
// waits for are long.
func TestRestart(t *testing.T) {
	c := base(topologies.Single, "redislock", world.Fault{Name: world.Kill, Target: "redis-1", At: 100 * time.Millisecond, For: time.Millisecond})
	scripts, err := found(t, c, checker.DoubleGrant)
	require.NoError(t, err)
	require.Equal(t, confirm.Held, scripts[0].Form)
	steps := stepsOf(t, scripts[0])
	restart := strings.Index(steps, "{inject: restart, target: redis-1}")
	require.Positive(t, restart, steps)
	require.Contains(t, steps[:restart], "acquire: lock-1, lease: 30s")
	require.Contains(t, steps[restart:], "until: granted}")
	require.Contains(t, steps, "expect: {verdict: invalid, violation: double-grant}")
	require.Equal(t, checker.DoubleGrant, scripts[0].Scenario.Expect.Violation)
	require.NoError(t, scripts[0].Scenario.Validate())
}

// A server that keeps its data has a file on real servers.
func TestKeepsData(t *testing.T) {
	plan := []world.Fault{
		{Name: world.Kill, Target: "redis-1", At: 100 * time.Millisecond, For: time.Millisecond},
		{Name: world.Kill, Target: "redis-1", At: 50 * time.Millisecond, For: time.Millisecond, Keep: true},
	}
	scripts, err := found(t, base(topologies.Single, "redislock", plan...), checker.DoubleGrant)
	require.NoError(t, err)
	require.Contains(t, string(scripts[0].YAML), "servers: {persistence: always}")
	require.Contains(t, stepsOf(t, scripts[0]), "{inject: restart-empty, target: redis-1}")
	require.Contains(t, stepsOf(t, scripts[0]), "{inject: restart, target: redis-1}")
}

// Of a split-brain the first grant is made once the old master is alone, and its zone turns to
// the new master at the heal.
func TestSplitBrain(t *testing.T) {
	c := base(topologies.Sentinels, "redislock", world.Fault{
		Name: world.SplitBrain, At: 100 * time.Millisecond, By: 700 * time.Millisecond, For: 2500 * time.Millisecond,
	})
	c.Length, c.Think = 3500*time.Millisecond, 20*time.Millisecond
	scripts, err := found(t, c, checker.PrematureLoss)
	require.NoError(t, err)
	steps := stepsOf(t, scripts[0])
	split, acquire := strings.Index(steps, "{inject: split-brain, target: zone-a}"), strings.Index(steps, "acquire: lock-1")
	heal, release := strings.Index(steps, "{heal: split-brain}"), strings.Index(steps, "release: lock-1")
	require.NotEqual(t, -1, split, steps)
	require.IsIncreasing(t, []int{split, acquire, heal, release}, steps)
}

// A request that waits for the lock while the master dies begins after that.
func TestWaitingThroughAFailover(t *testing.T) {
	stall := func(replica string) world.Fault {
		return world.Fault{Name: world.Stall, Target: replica + ">redis-1", At: time.Millisecond, For: 1500 * time.Millisecond}
	}
	c := base(topologies.Sentinels, "redislock", stall("redis-2"), stall("redis-3"),
		world.Fault{Name: world.CrashFailover, At: 400 * time.Millisecond, By: time.Millisecond, For: 20 * time.Millisecond})
	c.Length, c.Hold = 3*time.Second, 1500*time.Millisecond
	scripts, err := found(t, c, checker.DoubleGrant)
	require.NoError(t, err)
	steps := stepsOf(t, scripts[0])
	require.Contains(t, steps, `{inject: stall, target: "redis-2>redis-1"}`)
	require.Regexp(t, `(?s)client: a, acquire.*inject: crash-failover.*heal: crash-failover.*client: b, acquire`, steps)
	require.NotContains(t, steps, "background")
}

// On a cluster a failover is one of the lock's own shard, whose servers have the same names.
func TestFailoverOfAShard(t *testing.T) {
	c := base(topologies.Cluster, "redislock", world.Fault{
		Name: world.CrashFailover, Lag: time.Millisecond, For: 3 * time.Second, After: &world.Anchor{Event: world.Write, Of: world.TheMaster, Nth: 1},
	})
	c.Length, c.Hold, c.Lease = 5*time.Second, 4*time.Second, 6*time.Second
	scripts, err := found(t, c, checker.DoubleGrant)
	require.NoError(t, err)
	require.Regexp(t, `(?s)inject: cut, target: "redis-(\d)>redis-(\d)/replication"}.*client: a, acquire: lock-1.*`+
		`inject: crash-failover, params: {shard: redis-\d}}.*client: b, acquire: lock-1`, stepsOf(t, scripts[0]))
	for server, want := range map[string][2]string{"redis-2": {"redis-2", "redis-5"}, "redis-6": {"redis-3", "redis-6"}} {
		master, replica := simulation.Shard(server)
		require.Equal(t, want, [2]string{master, replica})
	}
}

// A lock that is stuck is so at the end of the wait, and what came before has its part in it.
func TestStuckAfterACut(t *testing.T) {
	c := base(topologies.Single, "broken-no-expiry", world.Fault{Name: world.Cut, Target: "zone-a>redis-1", At: 100 * time.Millisecond, For: 300 * time.Millisecond})
	c.Seed, c.Length, c.Lease, c.Hold, c.Think = 2, 6*time.Second, 500*time.Millisecond, 150*time.Millisecond, 20*time.Millisecond
	scripts, err := found(t, c, checker.Stuck)
	require.NoError(t, err)
	steps := stepsOf(t, scripts[len(scripts)-1])
	require.Regexp(t, `(?s)inject: cut, target: "zone-[ab]>redis-1".*heal: cut`, steps)
	require.Contains(t, steps, "release: lock-1")
}

// The links of replicas are cut before the grant that no replica is to have.
func TestFailover(t *testing.T) {
	c := base(topologies.Sentinels, "redislock", world.Fault{
		Name: world.CrashFailover, Target: world.TheMaster, Lag: 5 * time.Millisecond, By: time.Millisecond, For: 20 * time.Millisecond,
		After: &world.Anchor{Event: world.Write, Of: world.TheMaster, Nth: 1},
	})
	scripts, err := found(t, c, checker.DoubleGrant)
	require.NoError(t, err)
	steps := stepsOf(t, scripts[0])
	cut, acquire, crash := strings.Index(steps, `{inject: cut, target: "redis>redis-1"}`), strings.Index(steps, "acquire: lock-1"), strings.Index(steps, "{inject: crash-failover}")
	require.NotEqual(t, -1, cut, steps)
	require.Less(t, cut, acquire, steps)
	require.Less(t, acquire, crash, steps)
}

// A clock that steps does so by more than any lease, since no step of a script can meet the
// last milliseconds of one; where a clock is too fast, a lease is as long as others wait.
func TestClocks(t *testing.T) {
	c := base(topologies.Single, "redislock", world.Fault{Name: world.ClockForward, Target: "redis-1", At: 100 * time.Millisecond, By: 7 * time.Second, For: time.Second})
	scripts, err := found(t, c, checker.DoubleGrant)
	require.NoError(t, err)
	require.Contains(t, stepsOf(t, scripts[0]), `{inject: clock-forward, target: redis-1, params: {by: "40000"}}`)
	require.Contains(t, stepsOf(t, scripts[0]), "acquire: lock-1, lease: 30s")

	c = base(topologies.Single, "redislock", world.Fault{Name: world.ClockRate, Target: "redis-1", Percent: 1000, For: 2 * time.Second})
	c.Lease = time.Second
	scripts, err = found(t, c, checker.DoubleGrant)
	require.NoError(t, err)
	require.Contains(t, stepsOf(t, scripts[0]), `{inject: clock-rate, target: redis-1, params: {percent: "1000"}}`)
	require.Contains(t, stepsOf(t, scripts[0]), "acquire: lock-1, lease: 6s")
}

// A command that is late is one of a script, by its SHA-1, and is held back until its
// place; the lease that ends in between stays short.
func TestLateCommand(t *testing.T) {
	c := simulation.Case{}
	var scripts []confirm.Script
	l, err := locks.All().ByName("broken-plain-delete")
	require.NoError(t, err)
	for seed := uint64(1); scripts == nil; seed++ {
		require.Less(t, seed, uint64(200), "no seed shows the violation")
		c, err = simulation.Campaign{Topology: topologies.Single, Faults: "network"}.Draw(l, seed)
		require.NoError(t, err)
		c.Plan = slices.DeleteFunc(c.Plan, func(f world.Fault) bool { return f.Name != world.DelayCommand })
		o, err := simulation.Run(new(testing.T), l, c)
		require.NoError(t, err)
		kinds, err := c.Findings(t.Context(), l, o)
		require.NoError(t, err)
		if len(kinds) > 0 && kinds[0] == checker.DoubleGrant {
			scripts, err = found(t, c, checker.DoubleGrant)
			require.NoError(t, err)
		}
	}
	steps := stepsOf(t, scripts[len(scripts)-1])
	require.Regexp(t, `inject: hold-command, target: "zone-[ab]>redis-1", params: \{command: "[0-9a-f]{40}", nth: "\d+"\}`, steps)
	require.Contains(t, steps, "acquire: warm-up")
}

// Readers, writers, permits and several locks are asked for as they were in the simulated run. A
// writer that goes on as a reader gives back what it was granted first.
func TestOtherThanOneHolder(t *testing.T) {
	failover := world.Fault{
		Name: world.CrashFailover, Target: world.TheMaster, Lag: 5 * time.Millisecond, By: time.Millisecond, For: 20 * time.Millisecond,
		After: &world.Anchor{Event: world.Write, Of: world.TheMaster, Nth: 1},
	}
	for _, c := range []struct {
		topology, lock, workload, kind string
		plan                           []world.Fault
		head, steps                    []string
	}{
		{
			topologies.Single, "broken-one-more-permit", "permits", checker.OverCapacity, nil,
			[]string{"permits: 3"},
			[]string{"permits: 3", "again: true"},
		},
		{
			topologies.Single, "broken-unseen-readers", "readers-writers", checker.DoubleGrant, nil,
			nil,
			[]string{"mode: write", "mode: read"},
		},
		{
			topologies.Sentinels, "multilock", "several-locks", checker.DoubleGrant,
			[]world.Fault{failover},
			nil,
			[]string{"and: [lock-"},
		},
	} {
		t.Run(c.lock, func(t *testing.T) {
			one := base(c.topology, c.lock, c.plan...)
			one.Workload, one.Clients, one.Permits, one.Locks = c.workload, 4, 3, 2
			one.Length, one.Hold = 3*time.Second, time.Second
			scripts, err := found(t, one, c.kind)
			require.NoError(t, err)
			full := scripts[len(scripts)-1]
			for _, want := range c.head {
				require.Contains(t, string(full.YAML), want+"\n")
			}
			for _, want := range c.steps {
				require.Contains(t, stepsOf(t, full), want)
			}
		})
	}
}

// A writer that goes on as a reader gives back what it was granted first.
func TestDowngrade(t *testing.T) {
	for seed := uint64(1); ; seed++ {
		require.Less(t, seed, uint64(50), "no writer went on as a reader")
		c := base(topologies.Single, "broken-unseen-readers")
		c.Workload, c.Clients, c.Seed, c.Hold = "readers-writers", 4, seed, 20*time.Millisecond
		scripts, err := found(t, c, checker.DoubleGrant)
		require.NoError(t, err)
		steps := stepsOf(t, scripts[len(scripts)-1])
		again, first := strings.Index(steps, "mode: read, again: true"), strings.Index(steps, "release: lock-1, first: true")
		if again >= 0 && first >= 0 {
			require.Less(t, again, first, steps)
			return
		}
	}
}

// What can't be played is said.
func TestNoScript(t *testing.T) {
	l, err := locks.All().ByName("mutex")
	require.NoError(t, err)
	_, err = confirm.Scripts(base("moon", "mutex"), l, simulation.Outcome{}, checker.Violation{})
	require.ErrorContains(t, err, "topology moon")
	_, err = confirm.Scripts(base(topologies.Single, "mutex"), l, simulation.Outcome{}, checker.Violation{Kind: checker.DoubleGrant})
	require.ErrorContains(t, err, "proved by no operation")
}
