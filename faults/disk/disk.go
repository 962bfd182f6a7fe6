// Package disk makes the faults of the disk under a server: syncs that take no
// end, and a power cut, which loses what was written and not synced.
package disk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/internal/await"
)

// A Server is the process on the disk. Each method waits until it took effect.
// Its Observer is a connection past every fault of the network.
type Server interface {
	Name() string
	Observer() *redis.Client
	Kill(ctx context.Context) error
	Restart(ctx context.Context) error
}

// A Disk is what a fault needs of it.
type Disk interface {
	// Stall makes every sync wait until it is mended.
	Stall() (mend func())
	// Stalled is how many syncs wait.
	Stalled() int
	// CutBack removes what a killed server had written and not synced, and
	// returns how many bytes that were.
	CutBack(ctx context.Context) (lost int64, err error)
}

// probeKey is written so that there is something to sync. It goes by itself.
const probeKey = "lockchaos:probe"

type stall struct {
	server Server
	disk   Disk
}

// Stall makes the syncs of a server's disk wait until the heal. With
// appendfsync everysec the server goes on answering, and with always it
// answers no write. A server that syncs nothing can't have it.
func Stall(s Server, d Disk) faults.Fault { return &stall{s, d} }

// Name returns "stall-disk".
func (*stall) Name() string { return "stall-disk" }

// Inject writes a key, and waits until its sync stands still. A second may go by
// until a server with everysec tries one.
func (f *stall) Inject(ctx context.Context) (faults.Injection, error) {
	policy, err := f.server.Observer().WithTimeout(faults.Patience).ConfigGet(ctx, "append*").Result()
	switch {
	case err != nil:
		return faults.Injection{}, fmt.Errorf("stall-disk on %s: %w", f.server.Name(), err)
	case policy["appendonly"] != "yes" || policy["appendfsync"] == "no":
		return faults.Injection{}, fmt.Errorf("stall-disk on %s: it syncs nothing: append-only file %s, appendfsync %s",
			f.server.Name(), policy["appendonly"], policy["appendfsync"])
	}
	mend := f.disk.Stall()
	err = await.Until(ctx, func() error {
		err := f.server.Observer().Set(ctx, probeKey, 1, time.Second).Err() // with always it gets no answer
		if f.disk.Stalled() > 0 {
			return nil
		}
		return fmt.Errorf("no sync was tried (%w)", cmp.Or(err, faults.ErrNone))
	})
	if err != nil {
		mend()
		return faults.Injection{}, fmt.Errorf("stall-disk on %s: %w", f.server.Name(), err)
	}
	return faults.Injection{
		Effect: f.server.Name() + " waits for its disk",
		Heal: faults.Once(func(ctx context.Context) (string, error) {
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
	server Server
	disk   Disk
}

// PowerCut kills a server, takes from its append-only file what was not synced,
// and starts it again at once. It has no duration. A server that had synced all
// loses nothing by it, which is no error: that is what appendfsync always is
// for.
func PowerCut(s Server, d Disk) faults.Fault { return &powerCut{s, d} }

// Name returns "power-cut".
func (*powerCut) Name() string { return "power-cut" }

// Inject fails on a server without an append-only file, once it is started
// again. What was begun is seen through even if the run ends.
func (f *powerCut) Inject(ctx context.Context) (faults.Injection, error) {
	ctx, cancel, err := faults.Through(ctx)
	if err != nil {
		return faults.Injection{}, fmt.Errorf("power-cut on %s: %w", f.server.Name(), err)
	}
	defer cancel()
	if err := f.server.Kill(ctx); err != nil {
		return faults.Injection{}, err
	}
	lost, err := f.disk.CutBack(ctx)
	if err := errors.Join(err, f.server.Restart(ctx)); err != nil {
		return faults.Injection{}, fmt.Errorf("power-cut on %s: %w", f.server.Name(), err)
	}
	keys, err := f.server.Observer().WithTimeout(faults.Patience).DBSize(ctx).Result()
	if err != nil {
		return faults.Injection{}, fmt.Errorf("power-cut on %s: %w", f.server.Name(), err)
	}
	return faults.Injection{Effect: fmt.Sprintf("%s lost power, and %d bytes that were not synced; it answers again with %d keys",
		f.server.Name(), lost, keys)}, nil
}
