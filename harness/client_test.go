package harness_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
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

// apart is a client that is a process of its own, and its run.
func apart(t *testing.T) (harness.Config, *harness.Session, *harness.Client) {
	t.Helper()
	setup := runtest.Setup(t)
	topology, err := topologies.ByName(topologies.Single)
	require.NoError(t, err)
	st, err := harness.Open(t.Context(), setup, harness.Start{Run: history.Run{Scenario: "x", Lock: "mutex"}, Topology: topology})
	require.NoError(t, err)
	st.SetLock(runtest.Lock("mutex"), harness.LockOptions{})
	st.Declare("orders")
	c, err := st.Client(t.Context(), "a", "zone-a", true)
	require.NoError(t, err)
	return setup, st, c
}

// A client that is a process of its own does nothing while it stands still, goes on as if nothing had been, and is gone once
// it is killed.
func TestClient_IsAProcessOfItsOwn(t *testing.T) {
	t.Parallel()
	setup, st, c := apart(t)
	do := func(act string, limit time.Duration) history.Type {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		outcome, _ := c.Do(ctx, workload.Act{Do: act, Ask: workload.Request{Locks: []string{"orders"}, Lease: time.Minute}, Lease: time.Minute}, nil)
		return outcome
	}
	require.Equal(t, history.OK, do(workload.DoAsk, time.Minute))
	fault := func(name string) faults.Planned {
		p, err := faults.Environment{Script: true, Clients: []string{"a"}}.Resolve(faults.Step{Fault: name, Target: "a"})
		require.NoError(t, err)
		return p
	}
	throttled := fault("throttle-client")
	throttled.Params = map[string]string{"stopped": "300", "runs": "1"}
	for _, f := range []faults.Planned{fault("pause-client"), throttled} {
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

// A client's process that ends by itself, and by no fault, is told of, and the run is not valid.
func TestClient_ThatDiesByItself(t *testing.T) {
	t.Parallel()
	setup, st, c := apart(t)
	require.NoError(t, syscall.Kill(-c.Group(), syscall.SIGKILL))
	ask := workload.Act{Do: workload.DoAsk, Ask: workload.Request{Locks: []string{"orders"}, Lease: time.Minute}}
	outcome, _ := c.Do(t.Context(), ask, nil)
	require.Equal(t, history.Info, outcome, "nothing is there to answer")
	require.NoError(t, st.Close(t.Context(), nil))
	run, _, report := runtest.Judged(t, setup.Dir)
	require.Contains(t, run.DriverFault, "client a: ")
	require.Equal(t, checker.Unknown, report.Verdict)
}

// harnessToKill has this program be a harness that is killed.
const harnessToKill = "LOCKCHAOS_TEST_HARNESS_TO_KILL"

// No client outlives a harness that is killed, not even one that stands still.
func TestClient_EndsWithItsHarness(t *testing.T) {
	if os.Getenv(harnessToKill) != "" {
		_, _, c := apart(t)
		_, _ = fmt.Fprintf(os.Stdout, "client %d\n", c.Group())
		<-t.Context().Done() // it is killed before
	}
	t.Parallel()
	path, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), path, "-test.run", "^TestClient_EndsWithItsHarness$")
	cmd.Env = append(os.Environ(), harnessToKill+"=1")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	client := 0
	for lines := bufio.NewScanner(out); client == 0 && lines.Scan(); {
		_, _ = fmt.Sscanf(lines.Text(), "client %d", &client)
	}
	require.Positive(t, client)
	proc := fmt.Sprintf("/proc/%d", client)
	require.DirExists(t, proc)
	require.NoError(t, syscall.Kill(-client, syscall.SIGSTOP)) // so that it does not end by itself
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	require.Eventually(t, func() bool {
		stat, err := os.ReadFile(proc + "/stat")
		return err != nil || strings.Contains(string(stat), ") Z ") // what inherited it may not have looked yet
	}, time.Minute, 5*time.Millisecond)
}
