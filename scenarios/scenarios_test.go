package scenarios_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/locks"
	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/reports"
	"github.com/lockchaos/lockchaos/scenarios"
	"github.com/lockchaos/lockchaos/topologies"
)

// script is one for clients that ask for locks on one server.
func script(lock, clients, steps string) string {
	return fmt.Sprintf("name: x\ntitle: y\ntopology: single\nlock: %s\nclients: {%s}\nexpect: {verdict: valid}\nsteps:\n%s", lock, clients, steps)
}

const (
	two   = "a: zone-a, b: zone-b"
	three = "a: zone-a, b: zone-b, c: zone-a"
)

func parsed(t *testing.T, text string) scenarios.Scenario {
	t.Helper()
	s, err := scenarios.Parse("x.yaml", []byte(text), locks.All())
	require.NoError(t, err)
	return s
}

// play plays a scenario, and judges what was recorded.
func play(t *testing.T, s scenarios.Scenario) (history.Run, *history.History, checker.Report) {
	t.Helper()
	setup := runtest.Setup(t)
	require.NoError(t, s.Run(t.Context(), setup))
	return runtest.Judged(t, setup.Dir)
}

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
	// store follow each other, those of etcd, which last longest, on two deployments.
	groups, ofEtcd := map[string][]scenarios.Scenario{}, 0
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
				group := store
				if store == topologies.StoreEtcd {
					group = fmt.Sprintf("%s-%d", store, ofEtcd%2+1)
					ofEtcd++
				}
				groups[group] = append(groups[group], as)
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

// keysOfPlantedBugs are what the report of a planted bug says of whose key a server had: here
// that of a client that had given up.
var keysOfPlantedBugs = map[string]string{
	"abandoned-wait":            "redis-1 still had the key of client b (whose request was refused at",
	"late-release-double-grant": "redis-1 had client b as the holder of orders",
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
		require.Contains(t, strings.Join(reports.Summarize(reports.Input{Run: run, History: h, Report: report}).Story.Lines(), " "), keysOfPlantedBugs[s.Name])
		return
	}
}

// What is wrong with a script is said before anything begins. testdata/wrong.txtar has a script for each sentence.
func TestParseSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	archive, err := txtar.ParseFile("testdata/wrong.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, archive.Files)
	for _, f := range archive.Files {
		name, want, _ := strings.Cut(f.Name, " :: ")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := string(f.Data)
			if lock, steps, _ := strings.Cut("\n"+text, "\nsteps:\n"); !strings.Contains(lock, "name: ") && steps != "" {
				lock = strings.TrimPrefix(strings.TrimSpace(lock), "lock: ")
				text = script(cmp.Or(lock, "mutex"), two, steps)
			}
			_, err := scenarios.Parse("x.yaml", []byte(text), locks.All())
			require.ErrorContains(t, err, want)
		})
	}
}

func TestTheScenarioInTheDocumentsGivesItsVerdict(t *testing.T) {
	doc, err := os.ReadFile("../docs/scenarios.md")
	require.NoError(t, err)
	_, block, found := strings.Cut(string(doc), "```yaml\n")
	require.True(t, found)
	block, _, _ = strings.Cut(block, "```")
	s := parsed(t, block)
	run, _, report := play(t, s)
	require.NoError(t, s.Expect.Met(run, report))
}

func TestAScenarioThatCannotBePlayedIsUnknown(t *testing.T) {
	s := parsed(t, `
name: x
title: no key can be lost that is not there
topology: single
lock: mutex
clients: {a: zone-a}
steps:
  - {client: a, acquire: l}
  - {inject: drop-key, target: redis-1, params: {pattern: "*orders*"}}
expect: {verdict: valid}
`)
	run, _, report := play(t, s)
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

// The variants that a cure names are there, and must be valid, or keep a property in which the failure itself is invalid.
func TestCuresNameVariants(t *testing.T) {
	catalogue, err := scenarios.Catalogue(locks.All())
	require.NoError(t, err)
	shows, named := map[string]bool{}, 0
	for _, s := range catalogue {
		for _, v := range s.Variants {
			shows[s.Name+"/"+v.Name] = v.Expect.Verdict == string(checker.Valid) || len(v.Expect.Holds) > 0
		}
	}
	for _, s := range catalogue {
		see := strings.Join(regexp.MustCompile(`\(see [^)]*\)`).FindAllString(strings.Join(s.Cures, " "), -1), " ")
		for _, variant := range regexp.MustCompile(`[a-z0-9-]*/[a-z0-9-]+`).FindAllString(see, -1) {
			if strings.HasPrefix(variant, "/") {
				variant = s.Name + variant
			}
			named++
			require.True(t, shows[variant], "%s: %s", s.Name, variant)
		}
	}
	require.Greater(t, named, 30)
}

// The title of a script that must be invalid says that the lock is at fault where it is, and of no other: one with a planted bug
// has a variant with another lock that is valid, and so it is known to be at fault.
func TestTitlesTellPlantedBugs(t *testing.T) {
	catalogue, err := scenarios.Catalogue(locks.All())
	require.NoError(t, err)
	for _, s := range catalogue {
		variants := []scenarios.Scenario{s.As("")}
		for _, name := range s.VariantNames() {
			variants = append(variants, s.As(name))
		}
		for _, as := range variants {
			planted := strings.HasPrefix(as.LockName, "broken-")
			if as.Expect.Verdict == string(checker.Invalid) {
				require.Equal(t, planted, strings.Contains(as.Title, "planted bug"), "%s: %s", as.Name, as.Title)
			}
			require.True(t, !planted || slices.ContainsFunc(variants, func(other scenarios.Scenario) bool {
				return other.LockName != as.LockName && other.Expect.Verdict == string(checker.Valid)
			}), as.Name)
		}
	}
}

func TestAPropertyThatIsToHoldIsLookedAt(t *testing.T) {
	report := checker.Report{Verdict: checker.Invalid, Results: []checker.Result{
		{Name: "mutual-exclusion", Verdict: checker.Invalid, Violations: []checker.Violation{{Kind: checker.DoubleGrant}}},
		{Name: "protected-resource", Verdict: checker.Valid},
	}}
	e := scenarios.Expectation{Verdict: "invalid", Violation: checker.DoubleGrant, Holds: []string{"protected-resource"}}
	require.NoError(t, e.Met(history.Run{}, report))
	report.Results[1].Verdict = checker.Unknown
	require.ErrorContains(t, e.Met(history.Run{}, report), "expected protected-resource to hold, and it is unknown")
	e.Holds = []string{"capacity"}
	require.ErrorContains(t, e.Met(history.Run{}, report), "expected capacity to hold, and it was not judged")
}
