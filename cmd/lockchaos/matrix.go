package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/reports"
	"github.com/lockchaos/lockchaos/topologies"
)

func (a *app) matrixCommand() *cobra.Command {
	var m matrixOptions
	cmd := &cobra.Command{
		Use:   "matrix",
		Short: "Compare locks, each on its own topology, under the same seeds and faults",
		Long: `Compare locks, each on its own topology, under the same seeds and families of faults:
who granted a lock twice, for how long none was granted, and how long an acquire took.
The folder of the runs has the table as matrix.html, summary.md and results.json. The
exit code is that of the worst run: 1 if one is invalid, else 2 if one is unknown.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runMatrix(cmd, &m) },
	}
	f := cmd.Flags()
	f.StringSliceVar(&m.locks, "locks", nil, "the locks, as LOCK or LOCK@TOPOLOGY (default topology: sentinel where the lock can be on it, else the first that it can be on)")
	f.StringVar(&m.faults, "faults", "network,process,failover", "families of faults, a column of runs each: mixes, and names of faults")
	f.StringVar(&m.seeds, "seeds", "1-3", "one run for each of these seeds, for each lock and family")
	f.DurationVar(&m.length, "duration", 20*time.Second, "how long the clients work in each run")
	f.IntVar(&m.clients, "clients", 8, "number of clients, spread over two zones")
	f.DurationVar(&m.watchdog, "watchdog", 2*time.Second, "the lease that a watchdog renews; on etcd the TTL of a session")
	f.IntVar(&m.parallel, "parallel", 1, "number of runs at a time, each on its own servers")
	f.BoolVar(&m.keep, "keep", false, "also keep the run directories of valid runs")
	f.StringVar(&m.out, "out", "", "the folder for the runs and the page (default reports/runs/TIME-matrix)")
	f.BoolVar(&m.asJSON, "json", false, "print results.json instead of the table")
	return cmd
}

// matrixOptions are what a user can say of a matrix.
type matrixOptions struct {
	locks          []string
	faults, seeds  string
	length         time.Duration
	watchdog       time.Duration
	clients        int
	parallel       int
	keep           bool
	out            string
	asJSON         bool
	cells          []reports.MatrixCell
	options        []*cellOptions // of each cell; nil where no run is possible
	families, used []string       // used are the stores
}

// cellOptions are the runs of a cell, as `lockchaos run` would have them.
type cellOptions struct {
	runOptions

	cmd *cobra.Command // with the flags of that
}

// A cellRun is one run of a cell.
type cellRun struct {
	cell int
	seed uint64
}

// complete makes the cells, and joins what is wrong.
func (m *matrixOptions) complete(cmd *cobra.Command, known harness.Locks) error {
	wrong := aboveZero(cmd, "clients", "watchdog", "parallel", "duration")
	if len(m.locks) == 0 {
		wrong = errors.Join(wrong, errors.New("--locks: name the locks to compare, such as mutex,redlock,etcd-mutex"))
	}
	if m.parallel < 0 {
		wrong = errors.Join(wrong, fmt.Errorf("--parallel must be at least 1, not %d", m.parallel))
	}
	_, err := parseSeeds(m.seeds)
	wrong = errors.Join(wrong, err)
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
	for _, entry := range m.locks {
		wrong = errors.Join(wrong, m.addRow(entry, known))
	}
	if wrong != nil {
		return wrong
	}
	return m.eachPossible()
}

// addRow adds the cells of a lock.
func (m *matrixOptions) addRow(entry string, known harness.Locks) error {
	name, topology := entry, ""
	if i := strings.LastIndex(entry, "@"); i >= 0 && !strings.Contains(entry[i:], "/") {
		name, topology = entry[:i], entry[i+1:]
		if _, err := topologies.ByName(topology); err != nil {
			return fmt.Errorf("--locks %s: %w", entry, err)
		}
	}
	lock, err := known.ByName(name)
	if err != nil {
		return fmt.Errorf("--locks: %w", err)
	}
	if lock.InProcess != nil {
		return fmt.Errorf("--locks: lock %s is in the memory of the program: it has no topology", name)
	}
	topology = cmp.Or(topology, homeOf(lock))
	if topology == "" {
		return fmt.Errorf("--locks: lock %s can't be on any topology", name)
	}
	if slices.ContainsFunc(m.cells, func(c reports.MatrixCell) bool { return c.Lock == name && c.Topology == topology }) {
		return fmt.Errorf("--locks: %s on %s is there twice", name, topology)
	}
	if _, err := m.cellOf(name, topology, faults.MixNone, known); err != nil { // whatever the faults
		return fmt.Errorf("--locks: %w", err)
	}
	for _, family := range m.families {
		c := reports.MatrixCell{Lock: name, Topology: topology, Faults: family, Runs: []reports.MatrixRun{}}
		o, err := m.cellOf(name, topology, family, known)
		if err != nil {
			c.Impossible = err.Error()
		}
		m.cells, m.options = append(m.cells, c), append(m.options, o)
	}
	if store := topologies.StoreOf(topology); !slices.Contains(m.used, store) {
		m.used = append(m.used, store)
	}
	return nil
}

// homeOf is the topology on which a lock is compared if none is named; empty for none.
func homeOf(l harness.LockSpec) string {
	for _, t := range append([]string{topologies.Sentinels}, topologies.Names()...) {
		if l.On(t, topologies.Options{}, harness.LockOptions{}) == nil {
			return t
		}
	}
	return ""
}

// cellOf are the options of the runs of a cell: those of `lockchaos run` with the same
// flags.
func (m *matrixOptions) cellOf(lock, topology, family string, known harness.Locks) (*cellOptions, error) {
	o := &cellOptions{cmd: &cobra.Command{}}
	o.register(o.cmd)
	err := o.cmd.ParseFlags([]string{
		"--topology", topology, "--lock", lock, "--faults", family, "--seeds", m.seeds, "--duration", m.length.String(),
		"--clients", fmt.Sprint(m.clients), "--watchdog", m.watchdog.String(),
	})
	if err != nil {
		return nil, err
	}
	if err := o.complete(o.cmd, known); err != nil {
		return nil, err
	}
	o.keep = m.keep
	return o, nil
}

// eachPossible refuses a family of faults of which no run is possible with any lock.
func (m *matrixOptions) eachPossible() error {
	var errs []error
	for _, family := range m.families {
		why, possible := "", false
		for i := range m.cells {
			if c := &m.cells[i]; c.Faults == family {
				why, possible = cmp.Or(why, c.Impossible), possible || c.Impossible == ""
			}
		}
		if !possible {
			errs = append(errs, fmt.Errorf("--faults %s: no run is possible: %s", family, why))
		}
	}
	return errors.Join(errs...)
}

// runMatrix makes all runs, and writes and prints the table.
func (a *app) runMatrix(cmd *cobra.Command, m *matrixOptions) error {
	if err := m.complete(cmd, a.locks); err != nil {
		return err
	}
	seeds, err := parseSeeds(m.seeds)
	if err != nil {
		return err
	}
	for _, store := range m.used { // before anything starts
		if _, _, err := (&serverFlags{backend: autoBackend}).open(cmd.Context(), a.log(os.Stderr), store, func(string) {}); err != nil {
			return err
		}
	}
	out := cmp.Or(m.out, filepath.Join(runsDir, time.Now().UTC().Format("20060102T150405Z")+"-matrix"))
	before := exists(out)
	if err := emptyDir(out); err != nil {
		return err
	}
	log, err := createLog(out)
	if err != nil {
		return err
	}
	defer log.Close()
	var jobs []cellRun
	for i := range m.cells {
		for _, seed := range seeds {
			if m.options[i] != nil {
				jobs = append(jobs, cellRun{i, seed})
			}
		}
	}
	table := &matrixRuns{app: a, matrixOptions: m, out: out, of: len(jobs)}
	failure := batch(cmd.Context(), m.parallel, jobs, func(ctx context.Context) (worker[cellRun], error) {
		w := &matrixWorker{matrixRuns: table, log: log}
		return worker[cellRun]{do: w.do, end: w.end}, ctx.Err()
	})
	if failure != nil && table.failures == nil && table.done == 0 {
		return errors.Join(failure, removeEmpty(out, before))
	}
	slices.SortStableFunc(table.joint, func(x, y reports.JointRun) int {
		return cmp.Or(cmp.Compare(x.Lock, y.Lock), cmp.Compare(x.Topology, y.Topology), cmp.Compare(x.Seed, y.Seed))
	})
	made := reports.NewMatrix(table.joint, len(jobs), m.seeds, m.length, m.families, m.cells)
	made.Command = "lockchaos matrix" + changedFlags(cmd) + " --seeds " + quoted(m.seeds)
	if err := reports.WriteMatrix(out, made); err != nil {
		return asHarness(err)
	}
	if m.asJSON {
		err = reports.WriteJSON(a.stdout, made)
	} else if err = reports.WriteMatrixText(a.stdout, made); err == nil {
		a.printf("page     %s\nrepeat   %s\n", filepath.Join(out, reports.MatrixFile), made.Command)
	}
	if err != nil {
		return asHarness(err)
	}
	if failure == nil && cmd.Context().Err() != nil {
		failure = context.Cause(cmd.Context())
	}
	return worst(table.exit(), mostSevere(table.failures, failure))
}

// matrixRuns are the runs of a matrix.
type matrixRuns struct {
	*app
	*matrixOptions

	out string
	of  int // how many there will be

	mu       sync.Mutex
	done     int
	result   seedSummary // the counts of all
	joint    []reports.JointRun
	failures error // of the harness, in runs that are judged all the same
}

func (r *matrixRuns) exit() error { return r.result.exit() }

// A matrixWorker makes runs one after the other, on servers that go on to the next run of
// the same topology.
type matrixWorker struct {
	*matrixRuns

	log      *os.File
	topology string
	backend  topologies.Backend
	name     string
	close    func() error
}

func (w *matrixWorker) end() error {
	if w.close == nil {
		return nil
	}
	closing := w.close
	w.close, w.topology = nil, ""
	return asHarness(closing())
}

func (w *matrixWorker) do(ctx context.Context, job cellRun) error {
	o, c := w.options[job.cell], &w.cells[job.cell]
	if w.topology != c.Topology {
		if err := w.end(); err != nil {
			return err
		}
		backend, name, err := w.openServers(ctx, &o.servers, w.app.log(w.log), topologies.StoreOf(c.Topology))
		if err != nil {
			return err
		}
		w.topology, w.name = c.Topology, name
		w.backend, w.close = harness.Pool(backend)
	}
	dir := filepath.Join(w.out, fmt.Sprintf("%s-%s-%s-seed-%d", fileName(c.Lock), c.Topology, c.Faults, job.seed))
	r, err := w.runSeed(ctx, &o.runOptions, w.backend, w.name, dir, "lockchaos run"+o.again(o.cmd, job.seed), job.seed)
	if err != nil {
		return mostSevere(r.failure, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failures = mostSevere(w.failures, r.failure)
	if ctx.Err() != nil { // it was cut short, and counts for nothing but its failure
		return nil
	}
	w.done++
	w.result.count(r.Verdict)
	w.joint = append(w.joint, r.joint)
	c.Add(r.cell)
	fmt.Fprintf(w.stderr, "%d of %d · %s on %s · %s · seed %d %s", w.done, w.of, c.Lock, c.Topology, c.Faults, r.Seed, r.Verdict)
	if r.Found != "" {
		fmt.Fprintf(w.stderr, " · %s · %s", r.Found, r.Dir)
	}
	fmt.Fprintln(w.stderr)
	return nil
}

// fileName is a name as part of one of a folder: of a driver, its command.
func fileName(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '.':
			return r
		default:
			return '_'
		}
	}, name)
}
