package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/scenarios"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/workload"
)

// A listing is what `list` prints of one kind of thing: as a table, or as JSON
// with the same columns.
type listing struct {
	columns []string
	rows    [][]string
}

func (a *app) listCommand() *cobra.Command {
	kinds := map[string]func() (listing, error){
		"topologies": listTopologies,
		"locks":      listLocks,
		"workloads":  listWorkloads,
		"faults":     listFaults,
		"scenarios":  listScenarios,
	}
	kindNames := []string{"topologies", "locks", "workloads", "faults", "scenarios"}
	var asJSON bool
	cmd := &cobra.Command{
		Use:       "list " + strings.Join(kindNames, "|"),
		Short:     "List what can be run",
		ValidArgs: kindNames,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("say what to list: topologies, locks, workloads, faults or scenarios")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			list, ok := kinds[args[0]]
			if !ok {
				return names.Unknown("kind of list", args[0], kindNames)
			}
			if asJSON && args[0] == "topologies" {
				return a.topologiesJSON()
			}
			l, err := list()
			if err != nil {
				return harnessError{err}
			}
			if asJSON {
				return a.rowsJSON(l)
			}
			table := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
			fmt.Fprintln(table, strings.ToUpper(strings.Join(l.columns, "\t")))
			for _, row := range l.rows {
				fmt.Fprintln(table, strings.Join(row, "\t"))
			}
			return asHarness(table.Flush())
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) rowsJSON(l listing) error {
	rows := []map[string]string{}
	for _, row := range l.rows {
		m := map[string]string{}
		for i, column := range l.columns {
			m[column] = row[i]
		}
		rows = append(rows, m)
	}
	return a.json(rows)
}

func (a *app) json(v any) error {
	enc := json.NewEncoder(a.stdout)
	enc.SetIndent("", "  ")
	return asHarness(enc.Encode(v))
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

func listTopologies() (listing, error) {
	l := listing{columns: []string{"name", "servers", "sentinels", "zones", "links", "options"}}
	for _, name := range topologies.Names() {
		t, err := topologies.ByName(name)
		if err != nil {
			return l, err
		}
		count := func(k topologies.Kind) string { return fmt.Sprint(len(t.Of(k))) }
		l.rows = append(l.rows, []string{
			name, count(topologies.Redis), count(topologies.Sentinel), count(topologies.Zone), fmt.Sprint(len(t.Links)),
			strings.Join(topologies.Settable(name), ", "),
		})
	}
	return l, nil
}

func listLocks() (listing, error) {
	l := listing{columns: []string{"name", "about"}}
	for _, lock := range scenarios.Locks() {
		l.rows = append(l.rows, []string{lock.Name, lock.About})
	}
	return l, nil
}

func listWorkloads() (listing, error) {
	l := listing{columns: []string{"name", "default for", "meets", "about"}}
	defaults := map[string][]string{}
	for _, lock := range scenarios.LockNames() {
		if w := scenarios.DefaultWorkload(lock); w != workload.Contended && !strings.HasPrefix(lock, "broken-") {
			defaults[w] = append(defaults[w], lock)
		}
	}
	defaults[workload.Contended] = []string{"all others"}
	for _, w := range scenarios.Workloads() {
		l.rows = append(l.rows, []string{w.Name, strings.Join(defaults[w.Name], ", "), strings.Join(w.Meets, ", "), w.About})
	}
	return l, nil
}

func listFaults() (listing, error) {
	l := listing{columns: []string{"name", "mix", "target", "params", "about"}}
	for _, f := range scenarios.FaultKinds() {
		l.rows = append(l.rows, []string{f.Name, f.Mix, f.Target, f.Params, f.About})
	}
	return l, nil
}

func listScenarios() (listing, error) {
	l := listing{columns: []string{"name", "aliases", "topology", "expected", "title"}}
	catalogue, err := scenarios.Catalogue()
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
			l.rows = append(l.rows, []string{as.Name, aliases, as.Topology, expected, as.Title})
		}
	}
	return l, nil
}
