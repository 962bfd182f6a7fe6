package scenarios_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/locks"
	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/scenarios"
	"github.com/lockchaos/lockchaos/topologies"
)

// Clients read and write, take several permits, and are granted several locks together, also
// where they are processes of their own. Each step says how it must end.
func TestStepsAsk(t *testing.T) {
	t.Parallel()
	const readers = `
  - {client: a, acquire: l, mode: read, lease: 30s, until: granted}
  - {client: b, acquire: l, mode: read, lease: 30s, until: granted}
  - {client: c, acquire: l, mode: write, lease: 30s, until: refused}
  - {client: a, release: l, until: done}
  - {client: b, release: l, until: done}
  - {client: c, acquire: l, mode: write, lease: 30s, until: granted}
  - {client: b, acquire: l, mode: read, lease: 30s, until: refused}
  - {client: c, acquire: l, mode: read, again: true, lease: 30s, until: granted}
  - {client: c, release: l, first: true, until: done}
  - {client: b, acquire: l, mode: read, lease: 30s, until: granted}
  - {client: c, release: l, until: done}
`
	for _, c := range []struct{ name, lock, steps string }{
		{"readers and writers", "rwmutex", readers},
		{"processes", "rwmutex", "  - {inject: pause-client, target: c}\n  - {heal: pause-client}\n" + readers},
		{"permits", "semaphore-permit\npermits: 3", `
  - {client: a, acquire: l, permits: 2, lease: 30s, until: granted}
  - {client: b, acquire: l, permits: 2, lease: 30s, until: refused}
  - {client: b, acquire: l, lease: 30s, until: granted}
  - {client: c, acquire: l, lease: 30s, until: refused}
  - {client: a, release: l, until: done}
  - {client: c, acquire: l, permits: 2, lease: 30s, until: granted}
`},
		{"a permit", "semaphore-permit", `
  - {client: a, acquire: l, lease: 30s, until: granted}
  - {client: b, acquire: l, lease: 30s, until: refused}
`},
		{"together", "multilock", `
  - {client: a, acquire: l, and: [m, n], lease: 30s, until: granted}
  - {client: b, acquire: n, lease: 30s, until: refused}
  - {client: a, release: l, until: done}
  - {client: b, acquire: n, and: [l], lease: 30s, until: granted}
`},
		{"several by one owner", "mutex", `
  - {client: a, acquire: l, lease: 30s, until: granted}
  - {client: a, acquire: m, again: true, lease: 30s, until: granted}
  - {client: a, acquire: n, again: true, lease: 30s, until: granted}
  - {client: a, release: l, first: true, until: done}
  - {client: b, acquire: l, lease: 30s, until: granted}
  - {client: c, acquire: n, lease: 30s, until: refused}
  - {client: a, release: n, until: done}
  - {client: a, release: m, until: done}
  - {client: c, acquire: m, lease: 30s, until: granted}
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := parsed(t, script(c.lock, three, c.steps))
			run, h, report := play(t, s)
			require.Empty(t, run.AbortReason)
			require.Equal(t, checker.Valid, report.Verdict, "%+v", report)
			for _, e := range h.Events {
				if e.Op == history.Acquire {
					require.Equal(t, strings.HasPrefix(c.lock, "rwmutex"), e.Mode == history.Read || e.Mode == history.Write)
					require.Equal(t, strings.HasPrefix(c.lock, "semaphore"), e.Mode == history.Permit)
				}
			}
		})
	}
}

// A step that gives back or extends what its client does not hold ends the script, also in the
// background and where the client holds another lock.
func TestStepsGiveBackWhatIsHeld(t *testing.T) {
	t.Parallel()
	const none, other = "it was granted nothing that it could extend or release", "what it was granted first is l, and not m"
	const refused = `
  - {client: b, acquire: l, lease: 30s, until: granted}
  - {client: a, acquire: l, lease: 30s, until: refused}
`
	const both = `
  - {client: a, acquire: l, lease: 30s, until: granted}
  - {client: a, acquire: m, again: true, lease: 30s, until: granted}
`
	for _, c := range []struct{ name, steps, want string }{
		{"release", refused + "  - {client: a, release: l, first: true}\n", "step 3 (a releases l): " + none},
		{"release in the background", refused + "  - {client: a, release: l, background: true}\n  - {await: a}\n", "step 3 (a releases l): " + none},
		{"extend in the background", refused + "  - {client: a, extend: l, lease: 1s, background: true}\n  - {await: a}\n", "step 3 (a extends l): " + none},
		{"again after an unknown one", "  - {client: a, acquire: l, lease: 30s}\n  - {inject: drop-command, target: zone-a>redis-1, params: {command: release}}\n" +
			"  - {client: a, release: l, until: unknown}\n  - {client: a, release: l, until: ended}\n  - {client: b, acquire: l, until: granted}\n", ""},
		{"first of another lock", both + "  - {client: a, release: m, first: true}\n", "step 3 (a releases m): " + other},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := parsed(t, script("mutex", three, c.steps))
			run, _, report := play(t, s)
			require.Contains(t, run.AbortReason, c.want)
			require.Equal(t, c.want == "", run.AbortReason == "")
			require.Equal(t, checker.Unknown, report.Verdict)
		})
	}
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
			run, _, report := play(t, parsed(t, script("mutex", two, steps)))
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
			run, _, report := play(t, parsed(t, script("mutex", two, tt.give)))
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
		topologies.Messages: "what passes these links is not read", topologies.Bandwidth: "no bandwidth can be proven",
	}
}

func TestWhatLinksCannotDoIsSaidBeforeAnythingBegins(t *testing.T) {
	for fault, want := range map[string]string{
		"{inject: drop-reply, target: client, params: {command: SET}}": "drop-reply can't be done here: what passes these links is not read",
		"{inject: bandwidth, target: client, params: {rate: 1}}":       "bandwidth can't be done here: no bandwidth can be proven",
	} {
		s := parsed(t, script("mutex", two, "  - "+fault+"\n"))
		setup := runtest.Setup(t)
		setup.Backend = simple{setup.Backend}
		err := s.Run(t.Context(), setup)
		require.ErrorIs(t, err, faults.ErrImpossible)
		require.ErrorContains(t, err, want)
		require.NoFileExists(t, filepath.Join(setup.Dir, history.EventsFile))
	}
}

// A release whose outcome is unknown is repeated until the lock answers, also by a client that
// is a process of its own: its connection may have led to a master that is no longer there.
func TestStepsRepeatAnUnknownRelease(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]string{"in process": "", "process": "  - {inject: pause-client, target: a}\n  - {heal: pause-client}\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			setup := runtest.Setup(t)
			s := parsed(t, script("redislock", two, first+`
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
`))
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

func TestACheckedResourceTakesTheWriteThatWasBegunLast(t *testing.T) {
	for _, resource := range []string{"checked", "checked-ledger", "checked-redis"} {
		t.Run(resource, func(t *testing.T) {
			t.Parallel()
			s := parsed(t, `
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
`)
			run, _, report := play(t, s)
			require.Empty(t, run.AbortReason)
			require.NoError(t, s.Expect.Met(run, report), "%+v", report)
		})
	}
}

// At the end of a run a replaced master is awaited to follow the new one. A link between them
// that an older fault cut is mended before.
func TestLinksAreMendedBeforeAMasterIsAwaited(t *testing.T) {
	t.Parallel()
	s := parsed(t, `
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
`)
	run, _, report := play(t, s)
	require.Empty(t, run.AbortReason)
	require.NoError(t, s.Expect.Met(run, report), "%+v", report)
}

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
			s := parsed(t, head+tt.give)
			run, _, report := play(t, s)
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

// A plain backend is one that can interfere with nothing.
type plain struct{ topologies.Backend }

func TestFaultsOfClocksAreRefusedWhereTheyCannotBe(t *testing.T) {
	t.Parallel()
	s, _, err := scenarios.Find("clock-jump-double-grant", locks.All())
	require.NoError(t, err)
	setup := harness.Config{Dir: t.TempDir(), Backend: plain{runtest.Backend{}}}
	err = s.As("").Run(t.Context(), setup)
	require.ErrorIs(t, err, faults.ErrImpossible)
	require.ErrorContains(t, err, "clock-forward can't be done here: it takes servers that are local processes")
	require.NoFileExists(t, filepath.Join(setup.Dir, history.RunFile))
	r := harness.RandomRun{Topology: "single", Lock: runtest.Lock("mutex"), Faults: string(faults.Clock), Length: time.Second}
	require.ErrorIs(t, r.Run(t.Context(), setup), faults.ErrImpossible)
}

// What a client that is a process of its own recorded stands in the history
// where it was stamped, and its complaints are kept.
func TestAClientThatStandsStillIsAProcessOfItsOwn(t *testing.T) {
	setup := runtest.Setup(t)
	s := parsed(t, `
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
`)
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
