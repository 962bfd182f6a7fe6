//go:build linux

package attach_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/locks"
	"github.com/lockchaos/lockchaos/scenarios"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/attach"
)

// A random run gets those faults of the default mix that there can be, and says
// which it leaves out.
func aRunSaysWhichFaultsItLeavesOut(t *testing.T, i *installation) {
	t.Helper()
	var notices []string
	dir := t.TempDir()
	setup := harness.Config{Dir: dir, Backend: i.backend(), Seed: 1, Notice: func(what string) { notices = append(notices, what) }}
	r := harness.RandomRun{Topology: topologies.Sentinels, Lock: lockNamed(t, "mutex"), Length: 5 * time.Second}
	require.NoError(t, r.Run(t.Context(), setup))

	var run history.Run
	b, err := os.ReadFile(filepath.Join(dir, history.RunFile))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &run))
	require.Equal(t, "network,failover", run.Faults)
	require.NotEmpty(t, run.Plan)
	for _, step := range run.Plan {
		require.Equal(t, "failover", step.Fault)
	}
	left := run.SkippedFaults
	require.Len(t, left, 2, "%q", notices)
	if late := run.Late(); late != "" {
		left = append(slices.Clone(left), late)
	}
	require.Len(t, notices, len(left))
	for i, why := range left {
		require.Equal(t, "left out: "+why, notices[i])
	}
	require.Contains(t, notices[0]+notices[1], "crash-failover can't be done here: no compose project is named")
	require.Regexp(t, `cut, .*latency, .*partition, .*reset, .*split-brain, stall can't be done here: no toxiproxy is named`, notices[0]+notices[1])

	b, err = os.ReadFile(filepath.Join(dir, history.EventsFile))
	require.NoError(t, err)
	require.Regexp(t, `"type":"ok","op":"inject".*"fault":"failover"`, injections(b))

	for name, r := range map[string]harness.RandomRun{
		"by name": {Topology: topologies.Sentinels, Lock: lockNamed(t, "mutex"), Length: time.Second, Faults: "crash-failover"},
		"a mix":   {Topology: topologies.Sentinels, Lock: lockNamed(t, "mutex"), Length: time.Second, Faults: "failover,process"},
		"servers": {Topology: topologies.Sentinels, Lock: lockNamed(t, "mutex"), Length: time.Second, Faults: faults.MixNone, Servers: topologies.Options{MinReplicas: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			err := r.Run(t.Context(), harness.Config{Dir: filepath.Join(t.TempDir(), "run"), Backend: i.backend()})
			require.ErrorIs(t, err, faults.ErrImpossible)
		})
	}
	b2 := i.backend()
	b2.Yes = false
	r.Length = time.Second
	require.ErrorContains(t, r.Run(t.Context(), harness.Config{Dir: t.TempDir(), Backend: b2}),
		"no fault of this topology is possible, and --faults none was not said")
}

// injections are the lines of a history that tell of one.
func injections(events []byte) string {
	var found []string
	for line := range strings.Lines(string(events)) {
		if strings.Contains(line, `"op":"inject"`) {
			found = append(found, line)
		}
	}
	return strings.Join(found, "")
}

// play plays a scenario on somebody's deployment, and returns why it can't be
// played.
func play(t *testing.T, b attach.Backend, script string) error {
	t.Helper()
	s, err := scenarios.Parse("x.yaml", []byte(script), locks.All())
	require.NoError(t, err)
	dir := filepath.Join(t.TempDir(), "run")
	err = s.Run(t.Context(), harness.Config{Dir: dir, Backend: b})
	if err != nil {
		require.ErrorIs(t, err, faults.ErrImpossible)
		require.NoDirExists(t, dir, "nothing was recorded, so nothing was done")
	}
	return err
}

// head is a script but for its lock, its topology and what it asks of servers.
const head = "name: x\ntitle: y\nlock: %s\ntopology: %s\nclients: {a: zone-a}\nexpect: {verdict: valid}\n%s\nsteps:\n  - {client: a, acquire: l}\n"

// A script is checked against the servers that there are, which may be other
// than those of the topology in its usual size.
func TestAScriptThatTheServersCantPlayIsRefused(t *testing.T) {
	t.Parallel()
	t.Run("fewer replicas", func(t *testing.T) {
		topology, err := topologies.ByName(topologies.Sentinels)
		require.NoError(t, err)
		topology.Nodes = slices.DeleteFunc(topology.Nodes, func(n topologies.Node) bool { return n.Name == "redis-3" })
		i := installSized(t, topology)
		script := fmt.Sprintf(head, "mutex", topologies.Sentinels, "replica-acks: 2")
		require.ErrorContains(t, play(t, i.backend(), script), "2 replica acks can't come: redis-")
		require.ErrorContains(t, play(t, i.backend(), script), "has 1 replicas")
	})
	t.Run("persistence", func(t *testing.T) {
		i := install(t, topologies.Single, "--appendonly", "yes", "--appendfsync", "always")
		require.NoError(t, play(t, i.backend(), fmt.Sprintf(head, "mutex", topologies.Single, "servers: {persistence: always}")))
		require.ErrorContains(t, play(t, i.backend(), fmt.Sprintf(head, "mutex", topologies.Single, "servers: {persistence: everysec}")),
			"persistence everysec was asked for, and the servers have always")
	})
}

func fewerServersThanTheScript(t *testing.T, i *installation) {
	t.Helper()
	b := i.backend()
	b.Endpoints = b.Endpoints[:3]
	script := fmt.Sprintf(head, "redlock", topologies.Independent, "")
	require.NoError(t, play(t, b, script))
	require.ErrorContains(t, play(t, b, script+"  - {require: held, of: a, on: [redis-4]}\n"), `step 2: unknown server "redis-4"`)
	require.ErrorContains(t, play(t, b, fmt.Sprintf(head, "redlock", topologies.Independent, "servers: {nodes: 5}")), "nodes 5 was asked for, and the servers have 3")
}

// A node of a cluster behind a toxiproxy is never alone, so that nobody can split
// its brain.
func aSplitBrainIsRefused(t *testing.T, i *installation) {
	t.Helper()
	upstreams := map[string]string{}
	for _, name := range i.topology.Of(topologies.Redis) {
		for _, zone := range i.topology.Of(topologies.Zone) {
			upstreams[zone+">"+name] = i.endpoint(name)
		}
	}
	b := i.backend()
	b.Toxiproxy = proxied(t, upstreams).api
	d := attached(t, i, b)
	require.NotContains(t, d.Unsupported(), topologies.Proxies)
	require.NotContains(t, d.Unsupported(), topologies.Failovers)
	require.NoError(t, d.Close())
	const script = "name: x\ntitle: y\nlock: mutex\ntopology: cluster\nclients: {a: zone-a}\nexpect: {verdict: valid}\n" +
		"steps:\n  - {client: a, acquire: l}\n  - {inject: split-brain}\n"
	require.ErrorContains(t, play(t, b, script), "split-brain can't be done here: a toxiproxy can't cut a node of a cluster off")
}

// lockNamed is one of the locks of the program.
func lockNamed(t *testing.T, name string) harness.LockSpec {
	t.Helper()
	l, err := locks.All().ByName(name)
	require.NoError(t, err)
	return l
}
