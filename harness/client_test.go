package harness_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/workload"
)

// A client that is a process of its own does nothing while it stands still, goes on as if nothing had been, and is gone once
// it is killed.
func TestClient_IsAProcessOfItsOwn(t *testing.T) {
	t.Parallel()
	setup := runtest.Setup(t)
	topology, err := topologies.ByName(topologies.Single)
	require.NoError(t, err)
	st, err := harness.Open(t.Context(), setup, harness.Start{Run: history.Run{Scenario: "x", Lock: "mutex"}, Topology: topology})
	require.NoError(t, err)
	st.SetLock(runtest.Lock("mutex"), harness.LockOptions{})
	st.Declare("orders")
	c, err := st.Client(t.Context(), "a", "zone-a", true)
	require.NoError(t, err)
	do := func(act string, limit time.Duration) history.Type {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		outcome, _ := c.Do(ctx, workload.Act{Do: act, Ask: workload.Request{Locks: []string{"orders"}, Lease: time.Minute}, Lease: time.Minute}, nil)
		return outcome
	}
	require.Equal(t, history.OK, do(workload.DoAsk, time.Minute))
	fault := func(name string) faults.Step { return faults.Step{Fault: name, Target: "a"} }
	throttled := fault("throttle-client")
	throttled.Params = map[string]string{"stopped": "300", "runs": "1"}
	for _, f := range []faults.Step{fault("pause-client"), throttled} {
		require.NoError(t, st.Inject(t.Context(), f))
		require.Eventually(t, func() bool { return do(workload.DoExtend, 50*time.Millisecond) == history.Info }, time.Minute, time.Millisecond, f.Fault)
		require.NoError(t, st.Heal(t.Context(), f.Fault))
		require.Equal(t, history.OK, do(workload.DoExtend, time.Minute), f.Fault)
	}
	require.NoError(t, st.Inject(t.Context(), fault("kill-client")))
	require.Equal(t, history.Info, do(workload.DoRelease, time.Minute), "nothing is there to answer")
	require.ErrorContains(t, st.Inject(t.Context(), fault("pause-client")), "is gone")
	require.NoError(t, st.Close(t.Context(), nil))

	run, h, _ := runtest.Judged(t, setup.Dir)
	require.Empty(t, run.DriverFault, "it was killed by a fault")
	crash := slices.IndexFunc(h.Events, func(e history.Event) bool { return e.Op == history.Crash })
	require.GreaterOrEqual(t, crash, 0)
	require.Equal(t, "orders a#1", h.Events[crash].Lock+" "+h.Events[crash].Owner)
	require.Positive(t, h.Events[crash].From)
	require.LessOrEqual(t, h.Events[crash].From, h.Events[crash].Time)
}
