package scenarios_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/internal/locks"
	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/scenarios"
)

func TestAScriptThatRequiresAnotherOrderOfWritesIsUnknown(t *testing.T) {
	const head = `
name: x
title: y
topology: single
lock: mutex-fenced
resource: ledger
clients: {a: zone-a, b: zone-b}
expect: {verdict: valid}
steps:
  - {client: a, acquire: orders, lease: 30s}
  - {client: a, access: stock, until: done}
  - {client: a, release: orders}
  - {client: b, acquire: orders, lease: 30s, until: granted}
  - {client: b, access: prices, until: done}
`
	tests := []struct{ name, give, unmet string }{
		{"written before", "  - {require: unwritten, of: a, in: stock}\n", "stock has a change by a#1: true"},
		{"not written", "  - {require: written, of: b, in: stock}\n", "stock has a change by b#1: false"},
		{"as it was", "  - {require: written, of: a, in: stock}\n  - {require: unwritten, of: a, in: prices}\n", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, err := scenarios.Parse("x.yaml", []byte(head+tt.give), locks.All())
			require.NoError(t, err)
			setup := runtest.Setup(t)
			require.NoError(t, s.Run(t.Context(), setup))
			run, _, report := runtest.Judged(t, setup.Dir)
			if tt.unmet == "" {
				require.Empty(t, run.AbortReason)
				return
			}
			require.Contains(t, run.AbortReason, tt.unmet)
			require.Equal(t, checker.Unknown, report.Verdict)
			require.Error(t, s.Expect.Met(run, report))
		})
	}
}

func TestParseSaysWhatIsWrongWithARequirementOfALedger(t *testing.T) {
	const head = "name: x\ntitle: y\ntopology: single\nlock: mutex\nresource: ledger\nclients: {a: zone-a}\nexpect: {verdict: valid}\n" +
		"variants: [{name: v, title: z, resource: register, expect: {verdict: valid}}, {name: w, title: z, expect: {verdict: valid}}]\n"
	tests := []struct{ name, give, want string }{
		{"which one", "{require: written, of: a}", `needs a resource in "in"`},
		{"servers as well", "{require: written, of: a, in: stock, on: [redis-1]}", `no servers in "on"`},
		{"of servers", "{require: held, of: a, in: stock, on: [redis-1]}", `not in "in"`},
		{"no ledger", "{require: unwritten, of: a, in: stock}", "x/v: require written and unwritten need resource: ledger"},
		{
			"misspelt", "{client: a, access: stock}, {require: unwritten, of: a, in: stok}",
			"x: require unwritten in stok: no step reads, writes or accesses it",
		},
		{
			"not in this variant", "{client: a, access: stock, except: [w]}, {require: unwritten, of: a, in: stock}",
			"x/w: require unwritten in stock: no step reads",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := scenarios.Parse("x.yaml", []byte(head+"steps: [{client: a, acquire: l}, "+tt.give+"]"), locks.All())
			require.ErrorContains(t, err, tt.want)
		})
	}
}

func TestAScenarioHasAResource(t *testing.T) {
	const head = "name: x\ntitle: y\ntopology: single\nclients: {a: zone-a}\nsteps: [{client: a, acquire: l}]\n"
	for _, tt := range []struct{ name, give, want string }{
		{"unknown", "lock: mutex\nresource: fencd\nexpect: {verdict: valid}\n", `unknown resource "fencd" (did you mean fenced?`},
		{"no tokens", "lock: mutex\nresource: fenced-redis\nexpect: {verdict: valid}\n", "gives no fencing tokens"},
		{"property", "lock: mutex\nexpect: {verdict: valid, holds: [fencing]}\n", `unknown property "fencing" (did you mean fencing-order?`},
	} {
		_, err := scenarios.Parse("x.yaml", []byte(head+tt.give), locks.All())
		require.ErrorContains(t, err, tt.want, tt.name)
	}
	_, err := scenarios.Parse("x.yaml", []byte(head+"lock: mutex-fenced\nresource: fenced-ledger\nexpect: {verdict: valid, holds: [capacity]}\n"), locks.All())
	require.NoError(t, err)
}
