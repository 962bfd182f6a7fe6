package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockchaos/lockchaos/campaign"
	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/findings"
	"github.com/lockchaos/lockchaos/fleet"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/reports"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/workload"
)

func (a *app) matrixCommand() *cobra.Command {
	var m matrixOptions
	cmd := &cobra.Command{
		Use:   "matrix",
		Short: "Compare locks, each on its own topology, under the same seeds and faults",
		Long: `Compare locks, each on its own topology, under the same seeds and families of faults:
in how many runs each kind of violation was found, and whether that was to be expected there,
for how long no lock was granted, and how long an acquire took. A lease is --watchdog, but for
libraries with a default of their own: each row says its own. Redis servers keep what they grant
as those of etcd and ZooKeeper do (--persistence). The folder of the runs has the table as
matrix.html, summary.md and results.json. The exit code is that of the worst run: 1 if one is invalid, else 2 if one is unknown.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runMatrix(cmd, &m) },
	}
	f := cmd.Flags()
	f.StringSliceVar(&m.locks, "lock", nil, "the locks, as LOCK or LOCK@TOPOLOGY (default topology: sentinel where the lock can be on it, else the first that it can be on; of lib:NAME and lib:all all that its driver can be on)")
	f.StringVar(&m.faults, "faults", "network,process,failover", "families of faults, a column of runs each: mixes, and names of faults")
	f.StringVar(&m.seeds, "seeds", "1-3", "one run for each of these seeds, for each lock and family")
	f.DurationVar(&m.length, "duration", 20*time.Second, "how long the clients work in each run")
	f.IntVar(&m.clients, "clients", 8, "number of clients, spread over two zones")
	f.DurationVar(&m.watchdog, "watchdog", 2*time.Second, "the lease that a watchdog renews; on etcd the TTL of a session")
	f.StringVar(&m.persistence, "persistence", topologies.PersistAlways, "what Redis servers keep when they are killed: "+strings.Join(topologies.Persistences(), ", ")+"; members of etcd and ZooKeeper keep all")
	f.IntVar(&m.parallel, "parallel", 1, "number of runs at a time, each on its own servers")
	f.BoolVar(&m.keep, "keep", false, "also keep the run directories of valid runs")
	m.register(cmd)
	f.StringVar(&m.out, "out", "", "the folder for the runs and the page (default reports/runs/TIME-matrix)")
	f.BoolVar(&m.asJSON, "json", false, "print results.json instead of the table")
	return cmd
}

// matrixOptions are what a user can say of a matrix.
type matrixOptions struct {
	division

	locks       []string
	faults      string
	length      time.Duration
	watchdog    time.Duration
	persistence string
	clients     int
	keep        bool
	asJSON      bool
	cells       []reports.MatrixCell
	options     []*runOptions // of each cell; nil where no run is possible
	families    []string
	named       map[string]harness.LockSpec // those that rows had until now: a library is built once
}

// complete makes the cells, and joins what is wrong.
func (m *matrixOptions) complete(cmd *cobra.Command, a *app) error {
	wrong := errors.Join(m.check(), aboveZero(cmd, "clients", "watchdog", "duration"),
		refuse(len(m.locks) == 0, "--lock: name the locks to compare, such as mutex,redlock,etcd-mutex"))
	for family := range strings.SplitSeq(m.faults, ",") {
		all := append(faults.Mixes(), faults.Names(faults.All())...)
		switch {
		case !slices.Contains(all, family):
			wrong = errors.Join(wrong, fmt.Errorf("--faults: %w", names.Unknown("mix of faults", family, all)))
		case slices.Contains(m.families, family):
			wrong = errors.Join(wrong, fmt.Errorf("--faults: %s is there twice", family))
		default:
			m.families = append(m.families, family)
		}
	}
	if wrong != nil {
		return wrong
	}
	entries, wrong := findings.Rows(m.locks)
	m.named = map[string]harness.LockSpec{}
	for _, entry := range entries {
		wrong = errors.Join(wrong, m.addRow(cmd.Context(), a, entry))
	}
	if wrong != nil {
		return wrong
	}
	for _, family := range m.families {
		of := slices.DeleteFunc(slices.Clone(m.cells), func(c reports.MatrixCell) bool { return c.Faults != family })
		if !slices.ContainsFunc(of, func(c reports.MatrixCell) bool { return c.Impossible == "" }) {
			wrong = errors.Join(wrong, fmt.Errorf("--faults %s: no run is possible: %s", family, of[0].Impossible))
		}
	}
	return wrong
}

// addRow adds the cells of a lock.
func (m *matrixOptions) addRow(ctx context.Context, a *app, entry string) error {
	name, topology := entry, ""
	if i := strings.LastIndex(entry, "@"); i >= 0 && !strings.Contains(entry[i:], "/") {
		name, topology = entry[:i], entry[i+1:]
		if _, err := topologies.ByName(topology); err != nil {
			return fmt.Errorf("--lock %s: %w", entry, err)
		}
	}
	lock, is := m.named[name]
	if !is {
		var err error
		if lock, err = lockNamed(ctx, a.stderr, a.locks, name); err != nil {
			return fmt.Errorf("--lock: %w", err)
		}
		m.named[name] = lock
	}
	if lock.InProcess != nil {
		return fmt.Errorf("--lock: lock %s is in the memory of the program: it has no topology", name)
	}
	topology = cmp.Or(topology, homeOf(lock, topologies.Sentinels))
	if topology == "" {
		return fmt.Errorf("--lock: lock %s can't be on any topology", name)
	}
	if slices.ContainsFunc(m.cells, func(c reports.MatrixCell) bool { return c.Lock == name && c.Topology == topology }) {
		return fmt.Errorf("--lock: %s on %s is there twice", name, topology)
	}
	if _, err := m.cellOf(lock, topology, faults.MixNone); err != nil { // whatever the faults
		return fmt.Errorf("--lock: %w", err)
	}
	for _, family := range m.families {
		c := reports.MatrixCell{Lock: name, Topology: topology, Faults: family, Runs: []reports.MatrixRun{}}
		o, err := m.cellOf(lock, topology, family)
		if err != nil {
			c.Impossible, o = err.Error(), nil
		} else {
			c.Breaks, c.Lease, c.Keeps = o.Breaks(), o.Lease(), "all"
			if o.Servers.Persistence == topologies.PersistNone {
				c.Keeps = "nothing"
			}
		}
		m.cells, m.options = append(m.cells, c), append(m.options, o)
	}
	return nil
}

// homeOf is the topology of a lock if none is named: that one, else the first that it can be on; empty for none.
func homeOf(l harness.LockSpec, usual string) string {
	for _, t := range append([]string{usual}, topologies.Names()...) {
		if l.On(t, topologies.Options{}, harness.LockOptions{}) == nil {
			return t
		}
	}
	return ""
}

// cellOf are the runs of a cell: those of `lockchaos run` with the flags of again.
func (m *matrixOptions) cellOf(lock harness.LockSpec, topology, family string) (*runOptions, error) {
	o := &runOptions{keep: m.keep, division: m.division, RandomRun: harness.RandomRun{
		Topology: topology, Lock: lock, Faults: family, Length: m.length, Options: harness.LockOptions{Watchdog: m.watchdog},
		Workload: workload.Config{Clients: m.clients}, Resource: harness.ResourceConfig{Kind: harness.ResourceRegister},
	}}
	o.Workload.Wait = o.Wait()
	if topologies.StoreOf(topology) == topologies.StoreRedis {
		o.Servers.Persistence = m.persistence
	}
	return o, o.Validate()
}

// again is the command that makes a run of a cell again.
func (m *matrixOptions) again(c reports.MatrixCell, seed uint64) string {
	command := fmt.Sprintf("lockchaos run --clients %d --duration %v --faults %s --lock %s", m.clients, m.length, c.Faults, c.Lock)
	if topologies.StoreOf(c.Topology) == topologies.StoreRedis {
		command += " --persistence " + m.persistence
	}
	return command + fmt.Sprintf(" --topology %s --watchdog %v --seed %d", c.Topology, m.watchdog, seed)
}

// runMatrix makes all runs, and writes and prints the table.
func (a *app) runMatrix(cmd *cobra.Command, m *matrixOptions) error {
	if err := m.complete(cmd, a); err != nil {
		return err
	}
	if err := m.makeDir("matrix"); err != nil {
		return err
	}
	plan := campaign.Matrix{Length: m.length, Families: m.families, Cells: m.cells}
	h, err := plan.Header("lockchaos matrix"+changedFlags(cmd), m.seeds)
	if err != nil {
		return asHarness(err)
	}
	var jobs []campaign.Job
	var locks []string
	for i, o := range m.options {
		c := m.cells[i]
		locks = append(locks, c.Lock)
		for _, seed := range m.all {
			if o == nil {
				continue
			}
			dir := filepath.Join(m.out, fmt.Sprintf("%s-%s-%s-seed-%d", fileName(c.Lock), c.Topology, c.Faults, seed))
			title := fmt.Sprintf("%s · seed %d", campaign.CellName(c), seed)
			jobs = append(jobs, campaign.Job{ID: fleet.Job(campaign.CellName(c), seed), InMatrix: true, Run: o.run(a, seed, dir, title, m.again(c, seed))})
		}
	}
	return a.campaign(cmd.Context(), &m.division, &serverFlags{}, h, locks, fleet.Part(m.part, jobs), func(s *campaign.Summary) error {
		if m.asJSON {
			return reports.WriteJSON(a.stdout, *s.Matrix)
		}
		err := reports.WriteMatrixText(a.stdout, *s.Matrix)
		a.printf("page     %s\nrepeat   %s\n", filepath.Join(m.out, reports.MatrixFile), s.Matrix.Command)
		return err
	})
}
