package faults

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/topologies"
)

// diskSpecs are the faults of the disk under a server.
func diskSpecs() []Spec {
	specs := []Spec{
		{
			Name: "power-cut", Summary: "SIGKILL, what was not synced to the append-only file lost, and a restart at once",
			Needs: []topologies.Capability{topologies.Disks, topologies.Processes},
			Life:  history.Momentary, Effects: []history.Effect{history.Restarts},
			Candidates: withFile(once(TargetOfLock, 2, func(e Environment) string {
				if e.Topology.Options.Persistence != topologies.PersistAlways {
					return breaksByForgetting
				}
				return restarted(e)
			})),
			Observed: "the file was cut back, the server runs again",
			Pitfall:  "needs an append-only file; with `always` nothing is lost",
			New:      onDisk(cutPower),
		},
		{
			Name: "shutdown", Summary: "SHUTDOWN, which syncs what there is, and a restart at once",
			// No server of a deployment that was there before: it may not come back.
			Needs: []topologies.Capability{topologies.Processes, topologies.Settings},
			Life:  history.Momentary, Effects: []history.Effect{history.Restarts},
			Candidates: once(TargetOfLock, 2, restarted),
			Observed:   "it ended in order, runs again and answers",
			Pitfall:    "a clean end syncs the file, and time goes on for keys that expire",
			New:        onServer(shutDown),
		},
		{
			Name: "stall-disk", Summary: "let syncs to the append-only file take until the heal",
			Needs: []topologies.Capability{topologies.Disks, topologies.Processes},
			Life:  history.Lasting, Effects: []history.Effect{history.Withholds},
			Candidates: withFile(lasting(TargetOfLock, 2, away)),
			Observed:   "a sync of the file does not end", Healed: "syncs end",
			Pitfall: "with `everysec` writes go on for two seconds",
			New:     onDisk(stallDisk),
		},
	}
	for i := range specs {
		specs[i].Family, specs[i].Target = Disk, AtServer
	}
	return specs
}

// withFile are candidates that need an append-only file.
func withFile(of func(Environment) []Candidate) func(Environment) []Candidate {
	return func(e Environment) []Candidate {
		all := of(e)
		for i := range all {
			if e.Topology.Options.Persistence == topologies.PersistNone {
				all[i].Cant = "the servers have no append-only file (say --persistence always, everysec or no)"
			}
		}
		return all
	}
}

// onDisk makes a fault of the disk of the server that a step's target names.
func onDisk(of func(topologies.Server, topologies.Disk) Fault) func(Site, Step) (Fault, error) {
	return func(site Site, s Step) (Fault, error) {
		server, disk := site.Deployment.Server(s.Target), site.Deployment.Disk(s.Target)
		if server == nil || disk == nil {
			return nil, fmt.Errorf("%s has its machine's disk", s.Target)
		}
		return of(server, disk), nil
	}
}

// probeKey is written so that there is something to sync. It goes by itself.
const probeKey = "lockchaos:probe"

type diskStall struct {
	server topologies.Server
	disk   topologies.Disk
}

// stallDisk makes the syncs of a server's disk wait until the heal. With
// appendfsync everysec the server goes on answering, and with always it
// answers no write. A server that syncs nothing can't have it.
func stallDisk(s topologies.Server, d topologies.Disk) Fault { return &diskStall{s, d} }

// Name returns "stall-disk".
func (*diskStall) Name() string { return "stall-disk" }

// Inject writes a key, and waits until its sync stands still. A second may go by
// until a server with everysec tries one.
func (f *diskStall) Inject(ctx context.Context) (Injection, error) {
	policy, err := f.server.Observer().WithTimeout(Patience).ConfigGet(ctx, "append*").Result()
	switch {
	case err != nil:
		return Injection{}, fmt.Errorf("stall-disk on %s: %w", f.server.Name(), err)
	case policy["appendonly"] != "yes" || policy["appendfsync"] == "no":
		return Injection{}, fmt.Errorf("stall-disk on %s: it syncs nothing: append-only file %s, appendfsync %s",
			f.server.Name(), policy["appendonly"], policy["appendfsync"])
	}
	mend := f.disk.Stall()
	err = await.Until(ctx, func() error {
		err := f.server.Observer().Set(ctx, probeKey, 1, time.Second).Err() // with always it gets no answer
		if f.disk.Stalled() > 0 {
			return nil
		}
		return fmt.Errorf("no sync was tried (%w)", cmp.Or(err, ErrNone))
	})
	if err != nil {
		mend()
		return Injection{}, fmt.Errorf("stall-disk on %s: %w", f.server.Name(), err)
	}
	return Injection{
		Effect: f.server.Name() + " waits for its disk",
		Heal: Once(func(ctx context.Context) (string, error) {
			mend()
			return f.server.Name() + " waits for its disk no longer", await.Until(ctx, func() error {
				if n := f.disk.Stalled(); n > 0 {
					return fmt.Errorf("%d syncs still wait", n)
				}
				return nil
			})
		}),
	}, nil
}

type powerCut struct {
	server topologies.Server
	disk   topologies.Disk
}

// cutPower kills a server, takes from its append-only file what was not synced,
// and starts it again at once. It has no duration. A server that had synced all
// loses nothing by it, which is no error: that is what appendfsync always is
// for.
func cutPower(s topologies.Server, d topologies.Disk) Fault { return &powerCut{s, d} }

// Name returns "power-cut".
func (*powerCut) Name() string { return "power-cut" }

// Inject fails on a server without an append-only file, once it is started
// again. What was begun is seen through even if the run ends.
func (f *powerCut) Inject(ctx context.Context) (Injection, error) {
	ctx, cancel, err := Through(ctx)
	if err != nil {
		return Injection{}, fmt.Errorf("power-cut on %s: %w", f.server.Name(), err)
	}
	defer cancel()
	if err := f.server.Kill(ctx); err != nil {
		return Injection{}, err
	}
	lost, err := f.disk.CutBack(ctx)
	if err := errors.Join(err, f.server.Restart(ctx)); err != nil {
		return Injection{}, fmt.Errorf("power-cut on %s: %w", f.server.Name(), err)
	}
	keys, err := f.server.Observer().WithTimeout(Patience).DBSize(ctx).Result()
	if err != nil {
		return Injection{}, fmt.Errorf("power-cut on %s: %w", f.server.Name(), err)
	}
	return Injection{Effect: fmt.Sprintf("%s lost power, and %d bytes that were not synced; it answers again with %d keys",
		f.server.Name(), lost, keys)}, nil
}

type shutdown struct{ server topologies.Server }

// shutDown ends a server in order (SHUTDOWN), which syncs its append-only file
// if it has one, and starts it again at once. It has no duration.
func shutDown(s topologies.Server) Fault { return shutdown{s} }

// Name returns "shutdown".
func (shutdown) Name() string { return "shutdown" }

// Inject fails if the server does not end by itself. What was begun is seen
// through even if the run ends.
func (f shutdown) Inject(ctx context.Context) (Injection, error) {
	ctx, cancel, err := Through(ctx)
	if err != nil {
		return Injection{}, fmt.Errorf("shutdown of %s: %w", f.server.Name(), err)
	}
	defer cancel()
	o := *f.server.Observer().Options()
	o.ReadTimeout = -1 // as long as its disk takes
	o.MaxRetries = -1  // a client's own options call that 0, which is the default to another
	own := redis.NewClient(&o)
	defer own.Close()
	if err := own.Shutdown(ctx).Err(); err != nil {
		return Injection{}, fmt.Errorf("shutdown of %s: %w", f.server.Name(), err)
	}
	// The connection is closed when the process has ended, and all that is left
	// is to wait for it, which Kill does.
	if err := errors.Join(f.server.Kill(ctx), f.server.Restart(ctx)); err != nil {
		return Injection{}, fmt.Errorf("shutdown of %s: %w", f.server.Name(), err)
	}
	return Injection{Effect: f.server.Name() + " ended in order and answers again"}, nil
}
