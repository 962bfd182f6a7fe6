package main

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockchaos/lockchaos/reports"
	"github.com/lockchaos/lockchaos/scenarios"
)

func (a *app) runCommand() *cobra.Command {
	r := scenarios.Random{}
	var servers serverFlags
	var seed uint64
	var out string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Drive a lock under a random, seeded plan of faults, and judge what happened",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r.Lock = cmp.Or(r.Lock, scenarios.DefaultLock(r.Topology))
			byKind(cmd, &r)
			if err := errors.Join(aboveZero(cmd, "clients", "locks", "hold", "think", "watchdog", "permits"), r.Validate(), servers.validate(cmd)); err != nil {
				return err
			}
			before := exists(out)
			dir, err := newRunDir(out, seed, r.Topology, r.Lock)
			if err != nil {
				return err
			}
			log, err := createLog(dir)
			if err != nil {
				return err
			}
			defer log.Close()
			again := "lockchaos run" + changedFlags(cmd)
			backend, backendName, err := servers.open(cmd.Context(), a.log(log))
			if err != nil {
				return errors.Join(err, removeEmpty(dir, before))
			}
			fmt.Fprintf(a.stderr, "seed %d · %s\n", seed, again)
			progress := newProgress(a.stderr, fmt.Sprintf("%s · %s · seed %d", r.Topology, r.Lock, seed))
			err = r.Run(cmd.Context(), scenarios.Setup{
				Dir: dir, Backend: backend, BackendName: backendName, Seed: seed, Program: version(), Command: again,
				Log: a.log(log), Progress: progress.show,
				Notice: func(what string) { fmt.Fprintf(a.stderr, "left out: %s\n", what) },
			})
			progress.end()
			if err != nil && !exists(filepath.Join(dir, reports.RunFile)) {
				return harnessError{errors.Join(err, removeEmpty(dir, before))}
			}
			return worst(a.conclude(dir, asJSON), asHarness(errors.Join(err, pointLatest(dir))))
		},
	}
	f := cmd.Flags()
	f.StringVar(&r.Topology, "topology", "single", "where the lock lives (lockchaos list topologies)")
	f.IntVar(&r.Servers.Nodes, "nodes", 0, "independent: how many servers, an odd number (default 5)")
	f.StringVar(&r.Servers.Persistence, "persistence", "", "what a killed server keeps of its data: none, or an append-only file with fsync no, everysec, always (default none)")
	f.IntVar(&r.Servers.MinReplicas, "min-replicas", 0, "min-replicas-to-write of the masters")
	f.DurationVar(&r.Servers.NodeTimeout, "node-timeout", 0, "cluster: after how much silence a node is suspected (default 200ms)")
	servers.register(f)
	f.StringVar(&r.Lock, "lock", "", "the lock under test (lockchaos list locks; default mutex, and redlock on independent servers)")
	f.StringVar(&r.Kind, "workload", "", "what the clients do with it (lockchaos list workloads), or a comma list, of which each draws one a time; default: what the lock is for")
	f.StringVar(&r.Protected.Resource, "resource", scenarios.ResourceRegister, "what the locks protect: register and ledger in memory, or redis, on a server of its own")
	f.BoolVar(&r.Protected.Fencing, "fencing", false, "the resource refuses stale fencing tokens (mutex-fenced)")
	f.StringVar(&r.Faults, "faults", "", "what to draw faults from: none, network, process, redis, failover, all of these, or a comma list of them and clock (default: network, and failover where there are replicas)")
	f.DurationVar(&r.Length, "duration", 40*time.Second, "how long the clients go on")
	f.Uint64Var(&seed, "seed", 1, "decides the plan of faults and the clients' choices, though not how they interleave")
	f.IntVar(&r.Options.ReplicaAcks, "replica-acks", 0, "how many replicas must acknowledge a grant (mutex)")
	f.DurationVar(&r.Options.Watchdog, "watchdog", 2*time.Second, "the lease that the watchdog keeps alive (mutex)")
	f.IntVar(&r.Workload.Clients, "clients", 8, "how many clients contend, spread over two zones")
	f.IntVar(&r.Workload.Locks, "locks", 3, "how many locks they contend for (by default what the workload needs)")
	f.DurationVar(&r.Workload.Hold, "hold", 20*time.Millisecond, "mean time for which a lock is held; one hold in twenty is twenty times as long")
	f.DurationVar(&r.Workload.Think, "think", 20*time.Millisecond, "mean time between a release and the next attempt (closed loop)")
	f.DurationVar(&r.Workload.Lease, "lease", 0, "lease to ask for; 0 is what the workload needs, or the lock's watchdog")
	f.DurationVar(&r.Workload.Wait, "wait", scenarios.DefaultWait, "how long a client waits for a lock (by default what the workload needs)")
	f.IntVar(&r.Workload.Permits, "permits", 3, "how many permits a semaphore has")
	f.Float64Var(&r.Workload.Rate, "rate", 0, "open loop: attempts that begin per second, over all clients; 0 is a closed loop")
	f.BoolVar(&r.Workload.Careless, "careless", false, "clients go on using the resource after they were told that they lost the lock")
	f.StringVar(&out, "out", "", "the run directory (default reports/runs/TIME-TOPOLOGY-LOCK-SEED)")
	f.BoolVar(&asJSON, "json", false, "print results.json instead of the summary")
	return cmd
}

// byKind leaves to the workload what the user did not say.
func byKind(cmd *cobra.Command, r *scenarios.Random) {
	if !cmd.Flags().Changed("locks") {
		r.Workload.Locks = 0
	}
	if !cmd.Flags().Changed("wait") {
		r.Workload.Wait = r.Wait()
	}
}

// asHarness marks an error that came while a run was under way.
func asHarness(err error) error {
	if err == nil {
		return nil
	}
	return harnessError{err}
}

// conclude judges a run, writes its reports and prints the summary.
func (a *app) conclude(dir string, asJSON bool) error {
	in, err := judge(dir)
	if err != nil {
		return asHarness(err) // the record is our own
	}
	if err := a.print(in, dir, asJSON); err != nil {
		return err
	}
	return verdictExit(in.Report.Verdict)
}

func (a *app) print(in reports.Input, dir string, asJSON bool) error {
	r := reports.Summarize(in)
	if asJSON {
		return asHarness(reports.WriteJSON(a.stdout, r))
	}
	width, _ := onTerminal(a.stdout)
	return asHarness(reports.WriteText(a.stdout, r, reports.TextOptions{Color: a.colour(), Width: width, Dir: dir}))
}
