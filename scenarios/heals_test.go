package scenarios_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/internal/locks"
	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/scenarios"
)

// At the end of a run a replaced master is awaited to follow the new one. A link between them
// that an older fault cut is mended before.
func TestLinksAreMendedBeforeAMasterIsAwaited(t *testing.T) {
	t.Parallel()
	s, err := scenarios.Parse("x.yaml", []byte(`
name: x
title: y
topology: sentinel
lock: mutex
clients: {a: zone-a, b: zone-b}
steps:
  - {client: a, acquire: orders, lease: 30s}
  - {client: b, acquire: orders, lease: 30s, until: refused}
  - {inject: cut, target: "redis-1>redis-2/replication"}
  - {inject: cut, target: "redis-1>redis-3/replication"}
  - {inject: split-brain, target: zone-a}
  - {client: b, acquire: orders, lease: 30s, until: refused} # a request that meets a fault
expect: {verdict: valid}
`), locks.All())
	require.NoError(t, err)
	setup := runtest.Setup(t)
	require.NoError(t, s.Run(t.Context(), setup))
	run, _, report := runtest.Judged(t, setup.Dir)
	require.Empty(t, run.AbortReason)
	require.NoError(t, s.Expect.Met(run, report), "%+v", report)
}
