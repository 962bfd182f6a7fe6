package scenarios_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/locks"
	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/scenarios"
)

// A release whose outcome is unknown is repeated until the lock answers, also by a client that
// is a process of its own: its connection may have led to a master that is no longer there.
func TestStepsRepeatAnUnknownRelease(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]string{"in process": "", "process": "  - {inject: pause-client, target: a}\n  - {heal: pause-client}\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			setup := runtest.Setup(t)
			s, err := scenarios.Parse("x.yaml", []byte(asking("redislock", "a: zone-a, b: zone-b", first+`
  - {client: a, acquire: l, lease: 30s, until: granted}
  - {client: a, acquire: m, again: true, lease: 30s, until: granted}
  - {client: a, acquire: n, again: true, lease: 30s, until: granted}
  - {client: a, acquire: o, again: true, lease: 30s, until: granted}
  - {client: a, acquire: p, again: true, lease: 30s, until: granted}
  - {client: b, acquire: p, until: refused}
  - {inject: drop-reply, target: "zone-a>redis-1", params: {command: release p, then: silent}}
  - {client: a, release: p}
  - {client: b, acquire: p, lease: 30s, until: granted}
  - {client: a, release: o, until: done}
  - {client: a, release: n, until: done}
`)), locks.All())
			require.NoError(t, err)
			require.NoError(t, s.Run(t.Context(), setup))
			run, h, report := runtest.Judged(t, setup.Dir)
			require.Empty(t, run.AbortReason)
			require.Equal(t, checker.Valid, report.Verdict, "%+v", report)
			var outcomes []history.Type
			for _, e := range h.Events {
				if e.Op == history.Release && e.Type != history.Invoke {
					outcomes = append(outcomes, e.Type)
				}
			}
			require.Greater(t, len(outcomes), 1)
			require.Equal(t, history.Info, outcomes[0])
			n := len(outcomes)
			require.Equal(t, []history.Type{history.Fail, history.OK, history.OK}, outcomes[n-3:])
		})
	}
}
