package harness_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/scenarios"
	"github.com/lockchaos/lockchaos/topologies"
)

// wrapped is a backend whose deployments are others than those that it starts.
type wrapped func(topologies.Deployment) topologies.Deployment

func (w wrapped) Start(ctx context.Context, t topologies.Topology) (topologies.Deployment, error) {
	d, err := runtest.Backend{}.Start(ctx, t)
	if err != nil {
		return nil, err
	}
	return w(d), nil
}

// twiceGranted reports whether a lock was granted to two clients at the same time; a lock
// with a bug may break other rules before.
func twiceGranted(_ *history.History, report checker.Report) bool {
	return violations(report)[checker.DoubleGrant]
}

// accepted are the operations of that kind that came to something.
func accepted(h *history.History, op history.Op) []history.Event {
	var all []history.Event
	for _, e := range h.Events {
		if e.Op == op && e.Type == history.OK {
			all = append(all, e)
		}
	}
	return all
}

func TestASplitBrainIsFoundByARandomRun(t *testing.T) {
	t.Parallel()
	setup := runtest.Setup(t)
	r := harness.RandomRun{Topology: "sentinel", Lock: runtest.Lock("mutex"), Faults: "split-brain", Length: 6 * time.Second, Options: harness.LockOptions{Watchdog: time.Second}}
	r.Workload.Think = 100 * time.Millisecond
	run, h, report := runtest.Until(t, r, setup, checker.Invalid, twiceGranted)
	require.Empty(t, runtest.FailedFaults(h))
	require.NoError(t, scenarios.Expectation{Verdict: "invalid", Violation: checker.DoubleGrant}.Met(run, report))
}

func TestAnInterruptedRunKeepsWhatWasRecorded(t *testing.T) {
	t.Parallel()
	setup := runtest.Setup(t)
	ctx, interrupt := context.WithCancel(t.Context())
	setup.Progress = func(p harness.Progress) {
		if p.Grants > 20 {
			interrupt()
		}
	}
	r := harness.RandomRun{Topology: "single", Lock: runtest.Lock("mutex"), Length: time.Minute}
	require.NoError(t, r.Run(ctx, setup))
	run, h, report := runtest.Judged(t, setup.Dir)
	require.True(t, run.Interrupted)
	require.NotEmpty(t, h.Events)
	require.Equal(t, checker.Unknown, report.Verdict, "%+v", report)
}
