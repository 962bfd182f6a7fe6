package faults

import (
	"cmp"
	"context"
	"fmt"
	"time"

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
			Candidates: drawn(TargetOfLock, 2, func(e Environment) string {
				if e.Topology.Options.Persistence != topologies.PersistAlways {
					return breaksByForgetting
				}
				return restarted(e)
			}),
			Observed: "the file was cut back, the server runs again",
			Pitfall:  "needs an append-only file; with `always` nothing is lost",
			New:      onDisk(cutPower),
		},
		{
			Name: "shutdown", Summary: "SHUTDOWN, which syncs what there is, and a restart at once",
			// No server of a deployment that was there before: it may not come back.
			Needs: []topologies.Capability{topologies.Processes, topologies.Settings},
			Life:  history.Momentary, Effects: []history.Effect{history.Restarts},
			Candidates: drawn(TargetOfLock, 2, restarted),
			Observed:   "it ended in order, runs again and answers",
			Pitfall:    "a clean end syncs the file, and time goes on for keys that expire",
			New:        onServer(shutDown),
		},
		{
			Name: "stall-disk", Summary: "let syncs to the append-only file take until the heal",
			Needs: []topologies.Capability{topologies.Disks, topologies.Processes},
			Life:  history.Lasting, Effects: []history.Effect{history.Withholds},
			Candidates: drawn(TargetOfLock, 2, away),
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

// onDisk makes a fault of the disk of the server that a step's target names.
func onDisk(of func(topologies.Server, topologies.Disk) change) func(Site, Step) (inject, error) {
	return func(site Site, s Step) (inject, error) {
		server, disk := site.Deployment.Server(s.Target), site.Deployment.Instruments(s.Target)
		if server == nil || disk == nil {
			return nil, fmt.Errorf("%s has its machine's disk", s.Target)
		}
		return of(server, disk).of(s.Fault, s.Target), nil
	}
}

// probeKey is written so that there is something to sync. It goes by itself.
const probeKey = "lockchaos:probe"

// stallDisk makes the syncs of a server's disk wait until the heal. With
// appendfsync everysec the server goes on answering, and with always it
// answers no write. A server that syncs nothing can't have it. A second may go by
// until a server with everysec tries a sync.
func stallDisk(s topologies.Server, d topologies.Disk) change {
	mend := func() {}
	return change{
		begin: func(ctx context.Context) (string, error) {
			policy, err := s.Observer().WithTimeout(patience).ConfigGet(ctx, "append*").Result()
			switch {
			case err != nil:
				return "", err
			case policy["appendonly"] != "yes" || policy["appendfsync"] == "no":
				return "", fmt.Errorf("it syncs nothing: append-only file %s, appendfsync %s", policy["appendonly"], policy["appendfsync"])
			}
			mend = d.Stall()
			return "waits for its disk", await.Until(ctx, func() error {
				err := s.Observer().Set(ctx, probeKey, 1, time.Second).Err() // with always it gets no answer
				if d.Stalled() > 0 {
					return nil
				}
				return fmt.Errorf("no sync was tried (%w)", cmp.Or(err, errNone))
			})
		},
		end: func(ctx context.Context) (string, error) {
			mend()
			return "waits for its disk no longer", await.Until(ctx, func() error {
				if n := d.Stalled(); n > 0 {
					return fmt.Errorf("%d syncs still wait", n)
				}
				return nil
			})
		},
	}
}

// cutPower kills a server, takes from its append-only file what was not synced,
// and starts it again at once. A server that had synced all loses nothing by it, which
// is no error: that is what appendfsync always is for.
func cutPower(s topologies.Server, d topologies.Disk) change {
	return change{through: true, begin: func(ctx context.Context) (string, error) {
		var lost int64
		err := revive(s, func(ctx context.Context) (err error) {
			lost, err = d.CutBack(ctx)
			return err
		}, s.Restart)(ctx)
		if err != nil {
			return "", err
		}
		keys, err := s.Observer().WithTimeout(patience).DBSize(ctx).Result()
		return fmt.Sprintf("lost power, and %d bytes that were not synced; it answers again with %d keys", lost, keys), err
	}}
}

// shutDown ends a server in order (SHUTDOWN), which syncs its append-only file
// if it has one, and starts it again at once.
func shutDown(s topologies.Server, _ Step) change {
	return change{through: true, begin: func(ctx context.Context) (string, error) {
		own := alone(s.Observer(), -1) // its disk may take as long as it does
		defer own.Close()
		if err := own.Shutdown(ctx).Err(); err != nil {
			return "", err
		}
		// The connection is closed when the process has ended, and all that is left
		// is to wait for it, which Kill does.
		return "ended in order and answers again", revive(s, s.Restart)(ctx)
	}}
}
