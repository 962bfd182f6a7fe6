package scenarios_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/internal/locks"
	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/scenarios"
	"github.com/lockchaos/lockchaos/topologies"
)

// Of the variants of a scenario a change plays one for each verdict, which shows that the violation comes and that
// it can be kept away; a night plays all.
func TestEveryScenarioGivesItsVerdict(t *testing.T) {
	all, err := scenarios.Catalogue(locks.All())
	require.NoError(t, err)
	require.NotEmpty(t, all)
	for _, own := range []string{"etcd-faults", "zookeeper-faults"} { // what docs/stores.md says, and no other plays
		s, err := scenarios.Load(filepath.Join("testdata", own+".yaml"), locks.All(), false)
		require.NoError(t, err)
		all = append(all, s)
	}
	// Servers that agree on everything are the dearest to start: the scenarios of such a
	// store follow each other on two deployments.
	groups, count := map[string][]scenarios.Scenario{}, map[string]int{}
	var atOnce []scenarios.Scenario
	for _, s := range all {
		played := map[string]bool{}
		for _, variant := range append([]string{""}, s.VariantNames()...) {
			as := s.As(variant)
			if played[as.Expect.Verdict] && !runtest.Nightly() {
				continue
			}
			played[as.Expect.Verdict] = true
			if store := topologies.StoreOf(as.Topology); store != topologies.StoreRedis {
				group := fmt.Sprintf("%s-%d", store, count[store]%2+1)
				groups[group] = append(groups[group], as)
				count[store]++
			} else {
				atOnce = append(atOnce, as)
			}
		}
	}
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		t.Run(group, func(t *testing.T) {
			t.Parallel()
			for _, s := range groups[group] {
				t.Run(s.Name, func(t *testing.T) { givesItsVerdict(t, s) })
			}
		})
	}
	for _, s := range atOnce {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			givesItsVerdict(t, s)
		})
	}
}

func givesItsVerdict(t *testing.T, s scenarios.Scenario) {
	t.Helper()
	again := 2 // one that does not give its verdict every time may have missed it
	if s.EveryTime {
		again = 0
	}
	for {
		setup := runtest.Setup(t)
		err := s.Run(t.Context(), setup)
		if errors.Is(err, topologies.ErrMissing) { // a compiler, or the servers of a store
			runtest.NeedCompiler(t)
			runtest.NeedStore(t, topologies.StoreOf(s.Topology))
		}
		require.NoError(t, err)
		run, h, report := runtest.Judged(t, setup.Dir)
		if err := s.Expect.Met(run, report); err != nil && again > 0 {
			t.Logf("once more: %v", err)
			again--
			continue
		}
		require.Empty(t, run.AbortReason)
		require.Empty(t, runtest.FailedFaults(h))
		require.NoError(t, s.Expect.Met(run, report), "%+v", report)
		require.FileExists(t, filepath.Join(setup.Dir, "logs", run.Topology.Nodes[0].Name+".log"))
		return
	}
}

func TestParseSaysWhatIsWrongWithAScenario(t *testing.T) {
	const head = "name: x\ntitle: y\ntopology: single\nlock: mutex\nclients: {a: zone-a}\nexpect: {verdict: valid}\n"
	tests := []struct{ name, give, want string }{
		{"unknown field", head + "stepz: []\n", `[7:1] unknown field "stepz"`},
		{"not yaml", "name: [\n", "x.yaml"},
		{"no name", "topology: single\n", "needs a name"},
		{"no steps", head, "needs steps"},
		{"misspelt lock", head + "steps: [{client: a, acquire: l}, {client: a, release: k}]", "releases k, and asked for l last"},
		{"release amid an access", head + "steps: [{client: a, acquire: l}, {client: a, read: r}, {client: a, release: l}]", "must write it first"},
		{"lease", head + "steps: [{client: a, acquire: l, lease: 10us}]", "at least 10ms"},
		{"wait", head + "steps: [{client: a, acquire: l, wait: 45s}]", "how long a step may take"},
		{"nothing to fail over to", head + "steps: [{inject: crash-failover}]", "nothing to fail over to"},
		{"target", head + "steps: [{inject: cut, target: nonsense}]", "no link of topology single"},
		{"two things", head + "steps: [{client: a, acquire: l, inject: cut}]", "exactly one of client, inject"},
		{"nothing to do", head + "steps: [{client: a}]", "exactly one of acquire"},
		{"unknown client", head + "steps: [{client: c, acquire: l}]", `unknown client "c" (known: a)`},
		{"unknown fault", head + "steps: [{inject: cutt}]", "did you mean cut?"},
		{"unknown server", head + "steps: [{require: held, of: a, on: [redis-9]}]", `unknown server "redis-9"`},
		{"unknown variant", head + "steps: [{client: a, acquire: l, only: [z]}]", `unknown variant "z"`},
		{"unknown zone", "name: x\ntitle: y\ntopology: single\nlock: mutex\nclients: {a: zone-q}\nexpect: {verdict: valid}\n", `unknown zone "zone-q"`},
		{"memory apart", strings.Replace(head, "lock: mutex", "lock: memory", 1) + "steps: [{client: a, acquire: l}, {inject: pause-client, target: a}, {heal: pause-client}]", "the harness's own memory"},
		{"nothing to ask", strings.Replace(head, "lock: mutex", "lock: memory", 1) + "steps: [{client: a, acquire: l}, {require: held, of: a, on: [redis-1]}]", "require asks servers, and lock memory has none"},
		{"verdict", "name: x\ntitle: y\ntopology: single\nlock: mutex\nexpect: {verdict: maybe}\n", `not "maybe"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := scenarios.Parse("x.yaml", []byte(tt.give), locks.All())
			require.ErrorContains(t, err, tt.want)
		})
	}
}

func TestTheScenarioInTheDocumentsGivesItsVerdict(t *testing.T) {
	doc, err := os.ReadFile("../docs/scenarios.md")
	require.NoError(t, err)
	_, block, found := strings.Cut(string(doc), "```yaml\n")
	require.True(t, found)
	block, _, _ = strings.Cut(block, "```")
	s, err := scenarios.Parse("scenarios.md", []byte(block), locks.All())
	require.NoError(t, err)
	setup := runtest.Setup(t)
	require.NoError(t, s.Run(t.Context(), setup))
	run, _, report := runtest.Judged(t, setup.Dir)
	require.NoError(t, s.Expect.Met(run, report))
}

func TestAScenarioThatCannotBePlayedIsUnknown(t *testing.T) {
	setup := runtest.Setup(t)
	s, err := scenarios.Parse("x.yaml", []byte(`
name: x
title: no key can be lost that is not there
topology: single
lock: mutex
clients: {a: zone-a}
steps:
  - {client: a, acquire: l}
  - {inject: drop-key, target: redis-1, params: {pattern: "*orders*"}}
expect: {verdict: valid}
`), locks.All())
	require.NoError(t, err)
	require.NoError(t, s.Run(t.Context(), setup))
	run, _, report := runtest.Judged(t, setup.Dir)
	require.Contains(t, run.AbortReason, "step 2 (inject drop-key)")
	require.Equal(t, checker.Unknown, report.Verdict)
	require.Error(t, s.Expect.Met(run, report))
}

func TestMain(m *testing.M) {
	runtest.FewAtOnce(4)
	runtest.Main(m)
}

// A scenario is in the file of its name, where Find looks for it.
func TestFind_EveryName(t *testing.T) {
	t.Parallel()
	all, err := scenarios.Catalogue(locks.All())
	require.NoError(t, err)
	for _, s := range all {
		found, variant, err := scenarios.Find(s.Name, locks.All())
		require.NoError(t, err)
		require.Equal(t, s.Name, found.Name)
		require.Empty(t, variant)
		for _, variant := range s.VariantNames() {
			_, found, err := scenarios.Find(s.Name+"/"+variant, locks.All())
			require.NoError(t, err)
			require.Equal(t, variant, found)
		}
	}
	found, _, err := scenarios.Find("KL6", locks.All())
	require.NoError(t, err)
	require.Equal(t, "redlock-clock-jump", found.Name, "an alias")
}
