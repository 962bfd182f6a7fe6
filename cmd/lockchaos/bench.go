package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/lockchaos/lockchaos/adapters/etcd"
	"github.com/lockchaos/lockchaos/bench"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/process"
)

// etcdLock is a lock that lives on no topology of Redis servers.
const etcdLock = "etcd"

func (a *app) benchCommand() *cobra.Command {
	p := bench.Plan{}
	servers := serverFlags{}
	var locks, workloads []string
	var out, format string
	var clients int
	var rate float64
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure locks side by side, and check mutual exclusion at every grant",
		Long: `Let several locks do the same work in turns, and compare each with a baseline: the
least that Redis needs for this work (docs/benchmarks.md has the method). A lock of
another language, exec:COMMAND, takes part where no client waits; what of its figures
can't be compared is said below the tables.

The folder --out has the rounds as Go's benchmarks are written (bench.txt), so that benchstat
says what changed since an earlier result, or shows results of several machines side by side.

Workloads:
` + benchWorkloads(),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(aboveZero(cmd, "rounds", "budget", "duration", "warm-up", "clients"), servers.startsOwn()); err != nil {
				return err
			}
			if formats := []string{"text", "json", "markdown", "benchfmt"}; !slices.Contains(formats, format) {
				return names.Unknown("format", format, formats)
			}
			var err error
			if p.Workloads, err = bench.WorkloadsByName(workloads...); err != nil {
				return err
			}
			for i := range p.Workloads {
				w := &p.Workloads[i]
				if clients > 0 {
					w.Workers, w.About = clients, fmt.Sprintf("%s; with %d workers", w.About, clients)
				}
				if rate > 0 && w.Rate > 0 {
					w.Rate, w.About = rate, w.About+"; at another rate"
				}
			}
			var started []topologies.Deployment
			p.Systems, started, err = a.benchSystems(cmd.Context(), locks, p.Topology)
			for _, d := range started {
				defer d.Close()
			}
			if err != nil {
				return err
			}
			if err := p.Validate(); err != nil {
				return err
			}
			backend, _, err := a.openServers(cmd.Context(), &servers, a.log(io.Discard), topologies.StoreRedis)
			if err != nil {
				return err
			}
			p.Backend = backend
			about, most := p.Estimate().Round(time.Second), "about"
			if p.Rounds == 0 {
				most = "at most about"
			}
			fmt.Fprintf(a.stderr, "%d workloads, %d locks beside the baselines: %s %v\n", len(p.Workloads), len(p.Systems), most, about)
			progress, begun := newProgress(a.stderr), time.Now()
			p.Progress = func(workload, system string, round int) {
				progress.show(workload, fmt.Sprintf("%v of about %v · %s · round %d · %s", time.Since(begun).Round(time.Second), about, workload, round, system))
			}
			r, err := p.Run(cmd.Context())
			progress.end()
			if err != nil {
				return harnessError{err}
			}
			r.Program, r.Command = version(), "lockchaos bench"+changedFlags(cmd)
			return errors.Join(asHarness(writeBench(out, r)), a.printBench(r, format))
		},
	}
	f := cmd.Flags()
	f.StringVar(&p.Topology, "topology", topologies.Single, "the servers of the locks: single, sentinel or cluster; the workloads redlock-... have servers of their own")
	f.StringVar(&servers.backend, "backend", autoBackend, "what the servers run in: process, container, or auto")
	usual := []string{"mutex", "redlock", "redislock", "redsync", "redsync-failfast", "rueidislock"}
	f.StringSliceVar(&locks, "lock", usual, "the locks to compare (lockchaos list locks), etcd, or exec:COMMAND, a driver of a lock of your own")
	f.StringSliceVar(&workloads, "workload", bench.DefaultWorkloads(), "the workloads, see above, or all")
	f.IntVar(&p.Rounds, "rounds", 0, "number of turns of each lock; without it, turns are added until all intervals are narrow or the budget is spent")
	f.DurationVar(&p.Budget, "budget", 0, "time for all turns (default 30s for each workload)")
	f.DurationVar(&p.Length, "duration", 300*time.Millisecond, "least length of a turn; it is longer where eight hand-overs take longer")
	f.DurationVar(&p.WarmUp, "warm-up", 100*time.Millisecond, "least time that a lock works before it is measured; it is longer where two hand-overs take longer")
	f.IntVar(&clients, "clients", 0, "number of workers, instead of the number of each workload")
	f.Float64Var(&rate, "rate", 0, "open loop: operations that begin per second, instead of the rate of each workload")
	f.Uint64Var(&p.Seed, "seed", 1, "fixes the order of turns")
	f.StringVar(&out, "out", "", "write bench.json, bench.html, bench.md and bench.txt, for benchstat, into this folder")
	f.StringVar(&format, "format", "text", "print the results as text, json, markdown or benchfmt, for benchstat")
	return cmd
}

func benchWorkloads() string {
	var b strings.Builder
	for _, w := range bench.Workloads() {
		mark := " "
		if slices.Contains(bench.DefaultWorkloads(), w.Name) {
			mark = "*"
		}
		fmt.Fprintf(&b, "  %s %-20s %s\n", mark, w.Name, w.About)
	}
	return b.String() + "* are run by default"
}

// benchSystems are the locks of those names, and what was started for them.
func (a *app) benchSystems(ctx context.Context, chosen []string, topology string) (systems []bench.System, started []topologies.Deployment, err error) {
	var errs []error
	known := slices.Concat(a.locks, harness.Locks{{Name: etcdLock}})
	for _, name := range chosen {
		l, err := lockNamed(ctx, a.stderr, known, name)
		switch {
		case name == etcdLock:
			var d topologies.Deployment
			if d, err = startEtcd(ctx); err == nil {
				systems, started = append(systems, benchEtcd(d)), append(started, d)
			}
		case err == nil && !l.Exclusive():
			err = fmt.Errorf("lock %s admits several at once, which the benchmark would call a violation", name)
		case err == nil:
			systems = append(systems, benchSystem(l, topology))
		}
		errs = append(errs, err)
	}
	return systems, started, errors.Join(errs...)
}

func benchSystem(l harness.LockSpec, topology string) bench.System {
	if l.Connects {
		return benchProgram(l)
	}
	open := l.Begin()
	return bench.System{
		Name: l.Name, About: l.About,
		Unfit: func(w bench.Workload) string {
			if w.Servers > 0 {
				if !l.Quorum {
					return "lives on one deployment"
				}
				return ""
			}
			if l.Name == "redsync-failfast" {
				return "is redsync, on one server"
			}
			if l.On(topology, topologies.Options{}, harness.LockOptions{}) != nil {
				return "does not live on topology " + topology
			}
			return ""
		},
		Open: func(_ context.Context, servers []redis.UniversalClient) (bench.Acquire, func(), error) {
			locker, closeLocker, err := open(servers, harness.LockOptions{})
			if err != nil {
				return nil, nil, err
			}
			return bench.Locker(locker), closeLocker, nil
		},
	}
}

// pings are sent to a driver that has nothing else to do, to tell how long the way to it takes.
const pings = 300

// benchProgram is a lock that is a program. Its clients that wait are measured where the library waits by itself: else
// the tries are made by lockchaos.
func benchProgram(l harness.LockSpec) bench.System {
	type asked interface {
		Do(ctx context.Context, op string) (result string, err error)
	}
	var last asked // the driver that was opened last
	return bench.System{
		Name: l.Name, About: l.About,
		Unfit: func(w bench.Workload) string {
			switch {
			case w.Servers > 0:
				return "lives on one deployment"
			case w.Contended() && !l.Wait:
				return "waits by tries that lockchaos makes"
			default:
				return ""
			}
		},
		OpenAt: func(_ context.Context, d topologies.Deployment, zone string, w bench.Workload) (bench.Acquire, func(), error) {
			at := harness.PlaceIn(d, zone)
			for i, s := range at.Servers {
				if server := d.Server(s.Name); w.Delay == 0 && d.Topology().Name == topologies.Single { // as the other locks
					at.Servers[i].Addr = server.Observer().Options().Addr
				}
			}
			locker, closeLocker, err := l.Open(nil, harness.LockOptions{At: &at})
			if err != nil {
				return nil, nil, err
			}
			last, _ = locker.(asked)
			return bench.Locker(locker), closeLocker, nil
		},
		Caveat: func() string {
			var way [pings]time.Duration
			for i := range way { // it has worked for a while by now
				sent := time.Now()
				if _, err := last.Do(context.Background(), "ping"); err != nil {
					return l.About + ", ended"
				}
				way[i] = time.Since(sent)
			}
			slices.Sort(way[:])
			return l.About + ", is a process of its own, whose processor time cpu client does not count. Each acquire and each release goes to it and comes back: " +
				"that alone, a ping which it answers at once, takes " + way[pings/2].Round(time.Microsecond).String() + " (p50)"
		},
	}
}

// onlyMember is the one of the etcd that is measured.
const onlyMember = "etcd-1"

// startEtcd starts an etcd of one member.
func startEtcd(ctx context.Context) (topologies.Deployment, error) {
	t, err := topologies.ByName(topologies.EtcdCluster)
	if err != nil {
		return nil, err
	}
	other := func(name string) bool { return strings.HasPrefix(name, "etcd-") && name != onlyMember }
	t.Nodes = slices.DeleteFunc(t.Nodes, func(n topologies.Node) bool { return other(n.Name) })
	t.Links = slices.DeleteFunc(t.Links, func(l topologies.Link) bool { return other(l.From) || other(l.To) })
	d, err := process.Backend{}.Start(ctx, t)
	return d, asHarness(err)
}

// benchEtcd is the lock of etcd's own client on that member.
func benchEtcd(d topologies.Deployment) bench.System {
	return bench.System{
		Name: etcdLock, About: "go.etcd.io/etcd/client/v3/concurrency, on an etcd of one member",
		Unfit: func(w bench.Workload) string {
			if w.Servers > 0 || w.Delay > 0 {
				return "is not behind these links"
			}
			return ""
		},
		Open: func(context.Context, []redis.UniversalClient) (bench.Acquire, func(), error) {
			client, err := etcd.Dial(d.Server(onlyMember).Observer().Options().Addr)
			if err != nil {
				return nil, nil, err
			}
			l := etcd.New(client, 0)
			return bench.Locker(l), func() {
				l.Close()
				_ = client.Close()
			}, nil
		},
	}
}

// benchFormats write the results.
func benchFormats(r bench.Results) map[string]func(io.Writer) error {
	return map[string]func(io.Writer) error{
		"json": func(w io.Writer) error { return say.JSON(w, r) }, "html": r.WritePage, "markdown": r.WriteMarkdown, "benchfmt": r.WriteBenchfmt,
	}
}

// writeBench writes the results into a folder.
func writeBench(dir string, r bench.Results) error {
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	var errs []error
	for name, format := range map[string]string{"bench.json": "json", "bench.html": "html", "bench.md": "markdown", "bench.txt": "benchfmt"} {
		errs = append(errs, history.WriteFile(filepath.Join(dir, name), benchFormats(r)[format]))
	}
	return errors.Join(errs...)
}

// printBench shows the results. A lock that did not keep others out is a finding; of a driver
// that completed nothing in a slice nothing is known.
func (a *app) printBench(r bench.Results, format string) error {
	write := benchFormats(r)[format]
	if write == nil {
		width, _ := onTerminal(a.stdout)
		write = func(w io.Writer) error { return r.WriteText(w, width) }
	}
	if err := write(a.stdout); err != nil {
		return asHarness(err)
	}
	broken, silent := false, false
	for _, w := range r.Workloads {
		for _, s := range w.Systems {
			broken = broken || s.Broken()
			silent = silent || strings.HasPrefix(s.Name, harness.ProgramPrefix) && slices.ContainsFunc(s.Rounds, func(s bench.Slice) bool { return s.Cycles == 0 })
		}
	}
	return answer(broken, silent)
}
