package scenarios_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/locks"
	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/scenarios"
	"github.com/lockchaos/lockchaos/topologies"
)

const headOfScript = "name: x\ntitle: y\ntopology: single\nlock: mutex\nclients: {a: zone-a, b: zone-b}\nexpect: {verdict: valid}\nsteps:\n"

func TestParseSaysWhereAStepIsWrong(t *testing.T) {
	tests := []struct{ name, give, want string }{
		{
			"the line", "  - {client: a, acquire: l}\n\n  # b is nobody\n  - {client: c, acquire: l}\n",
			`x.yaml:11: step 2: unknown client "c" (known: a, b)`,
		},
		{
			"what goes on", "  - {client: a, acquire: l, background: true}\n  - {client: a, release: l}\n  - {await: a}\n",
			"x.yaml:9: step 2: client a is busy in the background (a acquires l): await it first",
		},
		{"never awaited", "  - {client: a, acquire: l, background: true}\n", "x.yaml: client a is still busy in the background at the end (a acquires l): await it"},
		{"awaits nothing", "  - {await: a}\n", "step 1: client a does nothing in the background"},
		{"awaits nobody", "  - {await: hold-comand}\n", `await: unknown client or fault "hold-comand"`},
		{"told to nobody", "  - {await: a, until: lost}\n", "step 1: client a has asked for no lock yet"},
		{"told to a process", "  - {client: a, acquire: l}\n  - {inject: pause-client, target: a}\n  - {await: a, until: lost}\n", "client a is a process of its own"},
		{"not injected", "  - {await: hold-command}\n", "step 1: await hold-command: nothing has injected it"},
		{"not armed", "  - {inject: cut, target: client}\n  - {await: cut}\n", "cut does not wait for a message, so there is nothing to await"},
		{"one shot", "  - {inject: drop-reply, target: client, params: {command: SET}}\n  - {heal: drop-reply}\n", "drop-reply is over once it fired"},
		{"read in the background", "  - {client: a, read: r, background: true}\n", "only acquire, extend, release and write can go on in the background"},
		{"until in the background", "  - {client: a, acquire: l, background: true, until: granted}\n", `say "until" where the step in the background is awaited`},
		{"until of a release", "  - {client: a, acquire: l}\n  - {client: a, release: l, until: granted}\n", `unknown until "granted" (known: answered, done, refused, unknown, ended)`},
		{"until of what is awaited", "  - {client: a, acquire: l, background: true}\n  - {await: a, until: done}\n", `unknown until "done" (known: answered, granted, refused, unknown, ended)`},
		{"extend by nothing", "  - {client: a, acquire: l}\n  - {client: a, extend: l}\n", "extend needs a lease"},
		{"extend another", "  - {client: a, acquire: l}\n  - {client: a, extend: k, lease: 1s}\n", "client a extends k, and asked for l last"},
		{"no command", "  - {inject: drop-reply, target: client}\n", `say which command in the parameter "command"`},
		{"nth", "  - {inject: drop-reply, target: client, params: {command: SET, nth: 0}}\n", `nth must be a whole number from 1, not "0"`},
		{"then", "  - {inject: drop-reply, target: client, params: {command: SET, then: quiet}}\n", `unknown then "quiet"`},
		{"then of a hold", "  - {inject: hold-reply, target: client, params: {command: SET, then: reset}}\n", `hold-reply: unknown parameter "then"`},
		{"no delay", "  - {inject: delay-reply, target: client, params: {command: SET}}\n", `say for how many ms in the parameter "for"`},
		{"rate", "  - {inject: bandwidth, target: client}\n", `bandwidth: say how many bytes a second in the parameter "rate"`},
		{"late by nothing", "  - {inject: slow-close, target: client}\n", `say by how many ms in the parameter "by"`},
		{"turns", "  - {inject: flap, target: client, params: {down: soon}}\n", `flap: down must be a whole number of ms from 1, not "soon"`},
		{"partition of nobody", "  - {inject: partition, target: redis-9}\n", `partition: unknown party "redis-9"`},
		{"partition of one server", "  - {inject: partition-ring}\n", "partition-ring: topology single has no links between those"},
		{"no bridge", "  - {inject: partition-bridge, target: zone-a}\n", "partition-bridge: the target is the bridge: unknown server"},
		{"how", "  - {inject: partition, target: redis-1, params: {how: cot}}\n", "did you mean cut?"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := scenarios.Parse("x.yaml", []byte(headOfScript+tt.give), locks.All())
			require.ErrorContains(t, err, tt.want)
		})
	}
}

// play plays a script on one server.
func play(t *testing.T, steps string) (history.Run, checker.Report) {
	t.Helper()
	s, err := scenarios.Parse("x.yaml", []byte(headOfScript+steps), locks.All())
	require.NoError(t, err)
	setup := runtest.Setup(t)
	require.NoError(t, s.Run(t.Context(), setup))
	run, _, report := runtest.Judged(t, setup.Dir)
	return run, report
}

func TestAFaultThatLayInWaitInVainMakesARunUnknown(t *testing.T) {
	const contend = "  - {client: a, acquire: l, lease: 30s}\n  - {client: b, acquire: l, until: refused}\n"
	const set = "  - {inject: hold-command, target: zone-a>redis-1, params: {command: PUBLISH}}\n"
	const why = "hold-command never fired: the first PUBLISH never came (0 of that kind passed)"
	for name, steps := range map[string]string{
		"at the end":  set + contend,
		"at its heal": set + contend + "  - {heal: hold-command}\n",
		"one shot":    strings.ReplaceAll(set, "hold-command", "drop-command") + contend,
	} {
		t.Run(name, func(t *testing.T) {
			run, report := play(t, steps)
			want := why
			if name == "one shot" {
				want = strings.ReplaceAll(why, "hold-command", "drop-command")
			}
			require.Contains(t, run.AbortReason, want)
			require.Equal(t, checker.Unknown, report.Verdict, "%+v", report)
		})
	}
}

func TestAStepThatEndsOtherwiseIsUnmet(t *testing.T) {
	tests := []struct{ name, give, want string }{
		{
			"awaited", "  - {client: a, acquire: l, lease: 30s, background: true}\n  - {await: a, until: refused}\n",
			"step 2 (await a): it was granted, and should have been refused",
		},
		{
			"a release", "  - {client: a, acquire: l, lease: 400ms, until: granted}\n  - {client: b, acquire: l, lease: 30s, wait: 5s, until: granted}\n" +
				"  - {client: a, release: l, until: done}\n",
			"step 3 (a releases l): it was refused, and should have been done",
		},
		{
			"no answer expected", "  - {client: a, acquire: l, lease: 30s, until: unknown}\n",
			"step 1 (a acquires l): it was granted, and should have been unknown",
		},
		{"nothing to extend", "  - {client: a, acquire: l}\n  - {client: b, acquire: l, until: refused}\n  - {client: b, extend: l, lease: 1s}\n", "it was granted nothing that it could extend"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			run, report := play(t, tt.give)
			require.Contains(t, run.AbortReason, tt.want)
			require.NotEqual(t, checker.Valid, report.Verdict)
		})
	}
}

// simple starts deployments whose links can do no more than those of somebody
// else's toxiproxy.
type simple struct{ topologies.Backend }

func (b simple) Start(ctx context.Context, t topologies.Topology) (topologies.Deployment, error) {
	d, err := b.Backend.Start(ctx, t)
	return simpleDeployment{d}, err
}

type simpleDeployment struct{ topologies.Deployment }

func (d simpleDeployment) Proxy(name string) topologies.Proxy {
	return struct{ topologies.Proxy }{d.Deployment.Proxy(name)}
}

func (simpleDeployment) Unsupported() map[topologies.Capability]string {
	return map[topologies.Capability]string{
		topologies.Messages: "what passes these links is not read", topologies.Pace: "the pace of these links can't be changed",
	}
}

func TestWhatLinksCannotDoIsSaidBeforeAnythingBegins(t *testing.T) {
	for fault, want := range map[string]string{
		"{inject: drop-reply, target: client, params: {command: SET}}": "drop-reply can't be done here: what passes these links is not read",
		"{inject: bandwidth, target: client, params: {rate: 1000}}":    "bandwidth can't be done here: the pace of these links can't be changed",
	} {
		s, err := scenarios.Parse("x.yaml", []byte(headOfScript+"  - "+fault+"\n"), locks.All())
		require.NoError(t, err)
		setup := runtest.Setup(t)
		setup.Backend = simple{setup.Backend}
		err = s.Run(t.Context(), setup)
		require.ErrorIs(t, err, harness.ErrImpossible)
		require.ErrorContains(t, err, want)
		require.NoFileExists(t, filepath.Join(setup.Dir, history.EventsFile))
	}
}
