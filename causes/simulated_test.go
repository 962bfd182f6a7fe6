package causes_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/causes"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/locks"
	"github.com/lockchaos/lockchaos/mutants"
	"github.com/lockchaos/lockchaos/simulation"
	"github.com/lockchaos/lockchaos/topologies"
)

// lockNamed is a lock of the program.
func lockNamed(t *testing.T, name string) harness.LockSpec {
	t.Helper()
	l, err := locks.All().ByName(name)
	require.NoError(t, err)
	return l
}

// find is what a case of one of the program's locks shows.
func find(t *testing.T) func(context.Context, simulation.Case) ([]string, error) {
	t.Helper()
	return func(ctx context.Context, c simulation.Case) ([]string, error) {
		l := lockNamed(t, c.Lock)
		o, err := simulation.Run(new(testing.T), l, c) //nolint:contextcheck // a run in virtual time has a context of its own
		if err != nil {
			return nil, err
		}
		return c.Findings(ctx, l, o)
	}
}

// violations are the first cases of a campaign that show a kind of violation, made small.
func violations(t *testing.T, k simulation.Campaign, lock, kind string, n int, but func(simulation.Case) bool) []simulation.Case {
	t.Helper()
	shows := func(c simulation.Case) bool {
		kinds, err := find(t)(t.Context(), c)
		return err == nil && slices.Contains(kinds, kind)
	}
	var found []simulation.Case
	for seed := uint64(1); seed <= 120 && len(found) < n; seed++ {
		c, err := k.Draw(lockNamed(t, lock), seed)
		require.NoError(t, err)
		if shows(c) && (but == nil || !but(c)) {
			small, _ := simulation.Shrink(c, 50, shows)
			found = append(found, small)
		}
	}
	return found
}

// Of violations whose cause is known, the measurement says that cause: a planted bug under faults that a
// correct lock withstands, and a correct lock under faults that none withstands.
func TestMeasuredCausesAreRight_NoRace(t *testing.T) {
	type known struct {
		want string
		kind string
		c    simulation.Case
	}
	var all []known
	for _, name := range []string{
		"abandoned-wait", "constant-token", "half-quorum", "no-cleanup", "no-expiry", "passed-recounted", "passed-to-all", "plain-delete",
		"renew-any", "renew-unchecked", "retry-recounted", "set-then-expire", "stale-waiter", "watchdog-outlives", "retry-refused",
	} {
		m, err := mutants.FindMutant(name)
		require.NoError(t, err)
		k := simulation.Campaign{Topology: m.Topology, Servers: 3, Faults: "network,process,client", ReplicaAcks: m.Acks()}
		if m.Topology == topologies.Sentinels {
			if k.Faults = "network"; m.Acks() == 2 {
				k.Faults = "network,failover"
			}
		}
		control := locks.Control(m.Topology)
		for _, c := range violations(t, k, m.Lock(), m.Violation, 2, func(c simulation.Case) bool {
			c.Lock = control
			kinds, err := find(t)(t.Context(), c)
			return err != nil || slices.Contains(kinds, m.Violation)
		}) {
			all = append(all, known{history.CauseLock, m.Violation, c})
		}
	}
	bugs := len(all)
	for _, x := range []struct{ topology, lock, faults string }{
		{topologies.Single, "mutex", "crash"}, {topologies.Single, "mutex-spin", "crash"}, {topologies.Single, "redislock", "crash"}, {topologies.Single, "mutex-fair", "crash"},
		{topologies.Sentinels, "mutex", "failover"}, {topologies.Sentinels, "redislock", "failover"},
		{topologies.Independent, "redlock", "crash"}, {topologies.Independent, "redsync", "crash"},
	} {
		for _, c := range violations(t, simulation.Campaign{Topology: x.topology, Servers: 3, Faults: x.faults}, x.lock, "double-grant", 3, nil) {
			all = append(all, known{history.CauseDeployment, "double-grant", c})
		}
	}
	right := 0
	t.Logf("%d planted bugs, %d correct locks", bugs, len(all)-bugs)
	for _, x := range all {
		begin := time.Now()
		e := causes.Simulated(x.c, x.kind, lockNamed(t, locks.Control(x.c.Topology)), find(t))
		cause, err := e.Measure(t.Context())
		require.NoError(t, err)
		t.Logf("%s on %s, seed %d, %v: %s (%v)", x.c.Lock, x.c.Topology, x.c.Seed, x.c.Plan, cause.Text, time.Since(begin).Round(time.Millisecond))
		switch cause.Verdict {
		case x.want:
			right++
		case history.CauseUndecided:
		default:
			t.Errorf("want %s, got %s", x.want, cause.Verdict)
		}
	}
	require.GreaterOrEqual(t, right, 40)
}
