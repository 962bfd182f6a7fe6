package scenarios_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/topologies"
)

// A stolen backend's deployments are somebody else's after a number of questions.
type stolen struct {
	topologies.Backend

	after int64
}

func (b stolen) Start(ctx context.Context, t topologies.Topology) (topologies.Deployment, error) {
	d, err := b.Backend.Start(ctx, t)
	if err != nil {
		return nil, err
	}
	return &stolenDeployment{Deployment: d, left: b.after}, nil
}

type stolenDeployment struct {
	topologies.Deployment

	left int64
}

func (d *stolenDeployment) CheckClaim() error {
	if d.left--; d.left < 0 {
		return errors.New("another run drives it now: somebody else")
	}
	return nil
}

// A script stops before the next fault when somebody else has the deployment, and
// what it saw is no answer; nor is it if that is seen at the end.
func TestAScriptWithoutItsClaimIsUnknown(t *testing.T) {
	s := parsed(t, `
name: x
title: two faults, and somebody takes the deployment
topology: single
lock: mutex
clients: {a: zone-a, b: zone-b}
steps:
  - {inject: script-flush, target: redis-1}
  - {client: a, acquire: orders, lease: 30s, until: granted}
  - {client: b, acquire: orders, lease: 30s, until: refused}
  - {inject: script-flush, target: redis-1}
  - {client: a, release: orders}
expect: {verdict: valid}
`)
	const taken = "what was seen may be the work of another run: another run drives it now: somebody else"
	for after, want := range map[int64]string{
		0: "step 1 (inject script-flush): inject script-flush: another run drives it now: somebody else",
		1: "step 4 (inject script-flush): inject script-flush: another run drives it now: somebody else",
		2: "",
		3: "",
	} {
		setup := runtest.Setup(t)
		setup.Backend = stolen{runtest.Backend{}, after}
		require.NoError(t, s.Run(t.Context(), setup))
		run, _, report := runtest.Judged(t, setup.Dir)
		require.Equal(t, want, run.AbortReason)
		require.Equal(t, after == 3, report.Verdict == checker.Valid, "%+v", report)
		require.Equal(t, after < 3, slices.ContainsFunc(report.Results, func(r checker.Result) bool { return r.Summary == taken }))
		if after == 2 {
			require.EqualError(t, s.Expect.Met(run, report), taken)
		}
	}
}

// A random run has no script that could be cut short.
func TestARandomRunWithoutItsClaimIsUnknown(t *testing.T) {
	setup := runtest.Setup(t)
	setup.Backend = stolen{runtest.Backend{}, 0}
	r := harness.RandomRun{Topology: "single", Lock: runtest.Lock("mutex"), Faults: "none", Length: 300 * time.Millisecond}
	require.NoError(t, r.Run(t.Context(), setup))
	run, _, report := runtest.Judged(t, setup.Dir)
	require.Empty(t, run.AbortReason)
	require.Equal(t, "another run drives it now: somebody else", run.ClaimLostTo)
	require.Equal(t, checker.Unknown, report.Verdict)
	require.Equal(t, "what was seen may be the work of another run: "+run.ClaimLostTo, report.Results[len(report.Results)-1].Summary)
}
