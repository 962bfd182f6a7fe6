package harness_test

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/workload"
)

// Clients find the master, redis-1, by a name, and ask no other server for anything.
func TestFaultsAreMetByTheRequestsThatTheyConcern(t *testing.T) {
	const second = time.Second
	one := func(fault, target string, params map[string]string) faults.Step {
		return faults.Step{At: second / 4, For: second / 2, Fault: fault, Target: target, Params: params}
	}
	momentary := func(fault, target string, params map[string]string) faults.Step {
		return faults.Step{At: second / 4, Fault: fault, Target: target, Params: params}
	}
	for name, tt := range map[string]struct {
		step faults.Step
		acks int
		met  bool
	}{
		"the link of a zone to the master":                {step: one("cut", "zone-a>redis-1", nil), met: true},
		"the link of a zone to a replica":                 {step: one("cut", "zone-a>redis-2", nil)},
		"latency of all links of clients":                 {step: one("latency", "client", map[string]string{"latency": "5", "jitter": "1"}), met: true},
		"a partition of a replica":                        {step: one("partition", "redis-3", nil), met: true}, // from its master, which is asked
		"replication from the master":                     {step: one("stall", "redis-2>redis-1", nil), met: true},
		"replication between two replicas":                {step: one("stall", "redis-2>redis-3", nil)},
		"the master, which stands still":                  {step: one("pause", "redis-1", nil), met: true},
		"a replica, which stands still":                   {step: one("pause", "redis-2", nil)},
		"a replica that stands still and is waited for":   {step: one("pause", "redis-2", nil), acks: 1, met: true},
		"a replica that was started again":                {step: momentary("restart", "redis-3", nil)},
		"the master, which forgets its scripts":           {step: momentary("script-flush", "redis-1", nil), met: true},
		"a replica that forgets its scripts":              {step: momentary("script-flush", "redis-2", nil)},
		"a planned failover":                              {step: momentary("planned-failover", "", nil), met: true},
		"one message, which is by definition a request's": {step: momentary("drop-reply", "zone-a>redis-1", map[string]string{"command": "EVALSHA"}), met: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			setup := runtest.Setup(t)
			r := harness.RandomRun{
				Topology: "single", Servers: topologies.Options{Access: topologies.AccessName}, Lock: runtest.Lock("mutex-fair"),
				Options: harness.LockOptions{ReplicaAcks: tt.acks}, Workload: workload.Config{Clients: 4, Wait: 300 * time.Millisecond},
				Plan: []faults.Step{tt.step}, Length: second,
			}
			require.NoError(t, r.Run(t.Context(), setup))
			_, h, report := runtest.Judged(t, setup.Dir)
			told := slices.DeleteFunc(h.Events, func(e history.Event) bool { return e.Op != history.Observe || e.What != history.ObserveMet })
			require.NotEmpty(t, told) // of the one fault that there is
			require.Equal(t, history.ObserveClients, told[0].Node)
			n, err := strconv.Atoi(told[len(told)-1].Value)
			require.NoError(t, err)
			require.Equal(t, tt.met, n > 0, "%v", told)
			want := checker.Unknown // no fault counts
			if tt.met {
				want = checker.Valid
			}
			require.Equal(t, want, report.Verdict, "%+v", report)
		})
	}
}
