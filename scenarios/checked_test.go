package scenarios_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/internal/locks"
	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/scenarios"
)

func TestACheckedResourceTakesTheWriteOfWhoeverBeganLast(t *testing.T) {
	for _, resource := range []string{"checked", "checked-ledger", "checked-redis"} {
		t.Run(resource, func(t *testing.T) {
			t.Parallel()
			s, err := scenarios.Parse("x.yaml", []byte(`
name: x
title: three changes that are begun before the others are written, without regard to the lock
topology: single
lock: mutex
resource: `+resource+`
clients: {a: zone-a, b: zone-b, c: zone-b}
expect: {verdict: valid}
steps:
  - {client: a, acquire: orders, lease: 30s}
  - {client: b, acquire: invoices, lease: 30s}
  - {client: c, acquire: orders, lease: 30s, until: refused}
  - {client: a, read: stock}
  - {client: b, read: stock}
  - {client: b, write: stock, until: done}
  - {client: a, write: stock, until: refused}
  - {client: a, access: stock, until: done}
  - {client: a, read: stock}
  - {client: b, access: other, until: done}
  - {client: a, write: stock, until: done}
`), locks.All())
			require.NoError(t, err)
			setup := runtest.Setup(t)
			require.NoError(t, s.Run(t.Context(), setup))
			run, _, report := runtest.Judged(t, setup.Dir)
			require.Empty(t, run.AbortReason)
			require.NoError(t, s.Expect.Met(run, report), "%+v", report)
		})
	}
}
