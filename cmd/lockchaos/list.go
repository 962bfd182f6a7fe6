package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/findings"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/scenarios"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/workload"
)

func (a *app) listCommand() *cobra.Command {
	kindNames := []string{"topologies", "locks", "libraries", "workloads", "faults", "mixes", "scenarios"}
	kinds := []func() (table, error){listTopologies, a.listLocks, listLibraries, a.listWorkloads, listFaults, listMixes, a.listScenarios}
	var asJSON, asMarkdown bool
	cmd := &cobra.Command{
		Use:       "list " + strings.Join(kindNames, "|"),
		Short:     "List topologies, locks, libraries that have a driver, workloads, faults, mixes of faults or scenarios",
		ValidArgs: kindNames,
		Args:      cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			at := slices.Index(kindNames, args[0])
			if at < 0 {
				return names.Unknown("kind of list", args[0], kindNames)
			}
			if asJSON && asMarkdown {
				return errors.New("--json and --markdown exclude each other")
			}
			switch {
			case asJSON && args[0] == "topologies":
				return a.topologiesJSON()
			case asMarkdown && args[0] == "faults":
				a.printf("%s", faults.Markdown())
				return nil
			}
			l, err := kinds[at]()
			if err != nil {
				return harnessError{err}
			}
			switch {
			case asJSON:
				return a.json(l.objects())
			case asMarkdown:
				a.printf("%s", l.markdown())
				return nil
			default:
				return l.text(a.stdout)
			}
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&asMarkdown, "markdown", false, "print a Markdown table")
	return cmd
}

// topologiesJSON prints the topologies whole: their nodes and links.
func (a *app) topologiesJSON() error {
	var all []topologies.Topology
	for _, name := range topologies.Names() {
		t, err := topologies.ByName(name)
		if err != nil {
			return harnessError{err}
		}
		all = append(all, t)
	}
	return a.json(all)
}

func listTopologies() (table, error) {
	l := table{columns: []string{"name", "store", "servers", "sentinels", "zones", "links", "options"}}
	for _, name := range topologies.Names() {
		t, err := topologies.ByName(name)
		if err != nil {
			return l, err
		}
		count := func(k topologies.Kind) string { return fmt.Sprint(len(t.Of(k))) }
		l.add(
			name, t.Store(), fmt.Sprint(len(t.Servers())), count(topologies.Sentinel), count(topologies.Zone), fmt.Sprint(len(t.Links)),
			strings.Join(topologies.ShapeOf(name).Options, ", "),
		)
	}
	return l, nil
}

func (a *app) listLocks() (table, error) {
	l := table{columns: []string{"name", "about"}}
	for _, lock := range a.locks {
		l.add(lock.Name, lock.About)
	}
	return l, nil
}

// listLibraries are the locks of published libraries that can be run by name.
func listLibraries() (table, error) {
	l := table{columns: []string{"lock", "library", "version", "language", "topologies"}}
	all, known, err := findings.Subjects()
	for _, name := range known {
		s := all[name]
		l.add(findings.Prefix+name, s.Name, s.Version, s.Language, strings.Join(s.Topologies, ", "))
	}
	return l, err
}

func (a *app) listWorkloads() (table, error) {
	l := table{columns: []string{"name", "default for", "meets", "about"}}
	defaults := map[string][]string{}
	for _, lock := range a.locks {
		if w := lock.DefaultWorkload(); w != workload.Contended && !strings.HasPrefix(lock.Name, "broken-") {
			defaults[w] = append(defaults[w], lock.Name)
		}
	}
	defaults[workload.Contended] = []string{"all others"}
	for w := range strings.SplitSeq(harness.ProgramWorkload, ",") {
		defaults[w] = append(defaults[w], "drivers")
	}
	for _, w := range workload.Kinds() {
		l.add(w.Name, strings.Join(defaults[w.Name], ", "), strings.Join(w.Meets, ", "), w.About)
	}
	return l, nil
}

func listFaults() (table, error) {
	l := table{columns: []string{"name", "mix", "target", "params", "about"}}
	for _, f := range faults.All() {
		l.add(f.Name, string(f.Family), string(f.Target), f.ParamWords(), f.Summary)
	}
	return l, nil
}

// listMixes are the faults of random runs, and for each topology whether a correct lock
// stays valid under them; "-" where they are not drawn.
func listMixes() (table, error) {
	l := table{columns: append([]string{"faults", "mix", "weight", "target"}, faults.DrawEnvironments()...)}
	draws, err := faults.Draws()
	if err != nil {
		return l, err
	}
	for _, d := range draws {
		row := []string{strings.Join(d.Faults, ", "), d.Mix, strconv.Itoa(d.Weight), cmp.Or(d.Target, "-")}
		for _, safe := range d.On {
			row = append(row, cmp.Or(safe, "-"))
		}
		l.add(row...)
	}
	return l, nil
}

func (a *app) listScenarios() (table, error) {
	l := table{columns: []string{"name", "aliases", "topology", "expected", "title"}}
	catalogue, err := scenarios.Catalogue(a.locks)
	if err != nil {
		return l, err
	}
	for _, s := range catalogue {
		for _, variant := range append([]string{""}, s.VariantNames()...) {
			as := s.As(variant)
			aliases := ""
			if variant == "" {
				aliases = strings.Join(s.Aliases, ", ")
			}
			expected := as.Expect.Verdict
			if as.Expect.Violation != "" {
				expected += " (" + as.Expect.Violation + ")"
			}
			l.add(as.Name, aliases, as.Topology, expected, as.Title)
		}
	}
	return l, nil
}
