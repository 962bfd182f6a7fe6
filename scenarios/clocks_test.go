package scenarios_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/locks"
	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/scenarios"
	"github.com/lockchaos/lockchaos/topologies"
)

// A plain backend is one that can interfere with nothing.
type plain struct{ topologies.Backend }

func TestFaultsOfClocksAreRefusedWhereTheyCannotBe(t *testing.T) {
	t.Parallel()
	s, _, err := scenarios.Find("clock-jump-double-grant", locks.All())
	require.NoError(t, err)
	setup := harness.Config{Dir: t.TempDir(), Backend: plain{runtest.Backend{}}}
	err = s.As("").Run(t.Context(), setup)
	require.ErrorIs(t, err, harness.ErrImpossible)
	require.ErrorContains(t, err, "clock-forward can't be done here: it takes servers that are local processes")
	require.NoFileExists(t, filepath.Join(setup.Dir, history.RunFile))
	r := harness.RandomRun{Topology: "single", Lock: runtest.Lock("mutex"), Faults: string(faults.Clock), Length: time.Second}
	require.ErrorIs(t, r.Run(t.Context(), setup), harness.ErrImpossible)
}

func TestParseSaysWhatIsWrongWithFaultsOfClocksAndClients(t *testing.T) {
	t.Parallel()
	const head = "name: x\ntitle: y\ntopology: single\nlock: mutex\nclients: {a: zone-a}\nexpect: {verdict: valid}\n"
	tests := []struct{ name, give, want string }{
		{"no such client", "inject: pause-client, target: b", `unknown client "b" (known: a)`},
		{"a parameter of a client's fault that there is not", `inject: pause-client, target: a, params: {by: "5"}`, `pause-client has no parameters, and "by" is one`},
		{"no step", "inject: clock-forward, target: redis-1", `clock-forward: say by how many ms in the parameter "by"`},
		{"a step that is no number", `inject: clock-back, target: redis-1, params: {by: "1s"}`, `clock-back: by must be a whole number of ms from 100, not "1s"`},
		{"no rate", "inject: clock-rate, target: redis-1", `above -100 and not 0, and not ""`},
		{"backwards", `inject: clock-rate, target: redis-1, params: {percent: "-100"}`, "above -100"},
		{"no such server", "inject: clock-freeze, target: zone-a", `unknown server "zone-a"`},
		{"no disk", "inject: power-cut, target: redis-2", `unknown server "redis-2"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := scenarios.Parse("x.yaml", []byte(head+"steps:\n  - {"+tt.give+"}\n"), locks.All())
			require.ErrorContains(t, err, tt.want)
		})
	}
}

// What a client that is a process of its own recorded stands in the history
// where it was stamped, and its complaints are kept.
func TestAClientThatStandsStillIsAProcessOfItsOwn(t *testing.T) {
	setup := runtest.Setup(t)
	s, err := scenarios.Parse("x.yaml", []byte(`
name: x
title: a client that stands still for a moment changes nothing
topology: single
lock: mutex
clients: {a: zone-a, b: zone-b}
steps:
  - {client: a, acquire: orders, lease: 30s}
  - {client: a, read: stock}
  - {inject: pause-client, target: a}
  - {client: b, acquire: orders, lease: 30s, until: refused}
  - {heal: pause-client}
  - {client: a, write: stock}
  - {client: a, extend: orders, lease: 30s, until: done}
  - {client: a, release: orders}
  - {client: b, acquire: orders, lease: 30s, until: granted}
  - {client: b, access: stock}
expect: {verdict: valid}
`), locks.All())
	require.NoError(t, err)
	require.NoError(t, s.Run(t.Context(), setup))
	run, h, report := runtest.Judged(t, setup.Dir)
	require.Empty(t, run.AbortReason)
	require.NoError(t, s.Expect.Met(run, report), "%+v", report)
	require.FileExists(t, filepath.Join(setup.Dir, "logs", "client-a.log"))
	require.NoFileExists(t, filepath.Join(setup.Dir, "logs", "client-b.log"))
	var ops []string
	for _, e := range h.Events {
		switch {
		case e.Op == history.Access && e.Type == history.OK:
			ops = append(ops, e.Owner+" "+e.Value)
		case e.Op == history.Inject || e.Op == history.Heal || e.Op == history.Extend:
			ops = append(ops, string(e.Op)+" "+string(e.Type))
		}
	}
	require.Equal(t, []string{
		"inject invoke", "inject ok", "heal invoke", "heal ok", "a#1 0>1", "extend invoke", "extend ok", "b#2 1>2",
	}, ops)
}
