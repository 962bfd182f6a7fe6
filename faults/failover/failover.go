// Package failover makes a shard of a replicated deployment change its master:
// by crash, by request, and behind the back of a master that lives on.
package failover

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/faults/network"
	"github.com/lockchaos/lockchaos/faults/process"
	"github.com/lockchaos/lockchaos/internal/await"
)

// A Deployment is what these faults need of one.
type Deployment interface {
	Master(ctx context.Context, shard string) (string, error)
	AwaitMaster(ctx context.Context, shard, old string) (string, error)
	Arm(ctx context.Context) error
	Disarm(ctx context.Context) error
	Promote(ctx context.Context, shard string) error
	AwaitReady(ctx context.Context) error
}

// replaced waits for another master and disarms the deployment, in whatever
// way that ends. Once a failover is under way, ctx sees it through: disarmed in its
// midst, the sentinels turn the new master back, and need half a minute to agree.
func replaced(ctx context.Context, d Deployment, shard, old string) (string, error) {
	master, err := d.AwaitMaster(ctx, shard, old)
	if err := errors.Join(err, disarm(ctx, d)); err != nil {
		return "", err
	}
	return master, nil
}

// now is the master before a failover. On a busy machine one look may be too few.
func now(ctx context.Context, d interface {
	Master(ctx context.Context, shard string) (string, error)
}, shard string,
) (master string, err error) {
	ctx, cancel := context.WithTimeout(ctx, faults.Patience)
	defer cancel()
	err = await.Until(ctx, func() (err error) {
		master, err = d.Master(ctx, shard)
		return err
	})
	return master, err
}

// disarm comes in any case.
func disarm(ctx context.Context, d Deployment) error {
	ctx, cancel := faults.Undo(ctx)
	defer cancel()
	return d.Disarm(ctx)
}

type crash struct {
	d      Deployment
	shard  string
	server func(name string) process.Process
}

// Crash kills a shard's master and waits until a replica was promoted. The heal
// starts the old master again and waits until it follows the new one.
func Crash(d Deployment, shard string, server func(name string) process.Process) faults.Fault {
	return &crash{d: d, shard: shard, server: server}
}

// Name returns "crash-failover".
func (*crash) Name() string { return "crash-failover" }

// Inject fails if no replica is promoted before the context ends. Once the master
// was killed, it is seen through.
func (f *crash) Inject(ctx context.Context) (faults.Injection, error) {
	old, err := now(ctx, f.d, f.shard)
	if err != nil {
		return faults.Injection{}, err
	}
	p := f.server(old)
	if err := f.d.Arm(ctx); err != nil {
		return faults.Injection{}, errors.Join(err, disarm(ctx, f.d))
	}
	through, cancel, err := faults.Through(ctx)
	if err != nil {
		return faults.Injection{}, errors.Join(err, disarm(ctx, f.d))
	}
	defer cancel()
	if err := p.Kill(through); err != nil {
		return faults.Injection{}, errors.Join(err, disarm(ctx, f.d))
	}
	master, err := replaced(through, f.d, f.shard, old)
	if err != nil {
		undo, cancel := faults.Undo(ctx)
		defer cancel()
		return faults.Injection{}, errors.Join(err, p.Restart(undo))
	}
	return faults.Injection{
		Effect: fmt.Sprintf("%s is gone, %s is master", old, master),
		Heal: faults.Once(func(ctx context.Context) (string, error) {
			if err := p.Restart(ctx); err != nil {
				return "", err
			}
			return old + " follows " + master, f.d.AwaitReady(ctx)
		}),
	}, nil
}

type graceful struct {
	d     Deployment
	shard string
}

// Graceful asks for a failover of a shard that nothing forces, and waits for
// it. It has no duration.
func Graceful(d Deployment, shard string) faults.Fault { return graceful{d, shard} }

// Name returns "failover".
func (graceful) Name() string { return "failover" }

// Inject fails if the master does not change before the context ends. A failover
// that was asked for is seen through.
func (f graceful) Inject(ctx context.Context) (faults.Injection, error) {
	old, err := now(ctx, f.d, f.shard)
	if err != nil {
		return faults.Injection{}, err
	}
	through, cancel, err := faults.Through(ctx)
	if err != nil {
		return faults.Injection{}, err
	}
	defer cancel()
	if err := f.d.Promote(through, f.shard); err != nil {
		return faults.Injection{}, errors.Join(err, disarm(ctx, f.d))
	}
	master, err := replaced(through, f.d, f.shard, old)
	if err != nil {
		return faults.Injection{}, err
	}
	return faults.Injection{Effect: fmt.Sprintf("%s took over from %s", master, old)}, nil
}

// A Side is the minority's side of a split brain.
type Side struct {
	// Name says who is on it: "{redis-1 sentinel-1 zone-a}".
	Name string
	// Links are those between it and all others.
	Links []network.Link
}

type splitBrain struct {
	d     Deployment
	shard string
	side  func(master string) (Side, error)
}

// SplitBrain cuts a shard's master off, together with some clients and a
// minority of those who vote, and waits until the majority has a master of its
// own. The heal mends the links and waits until there is one master again.
func SplitBrain(d Deployment, shard string, side func(master string) (Side, error)) faults.Fault {
	return &splitBrain{d: d, shard: shard, side: side}
}

// Name returns "split-brain".
func (*splitBrain) Name() string { return "split-brain" }

// Inject fails if the majority promotes nobody before the context ends. Once the
// links are cut, it is seen through.
func (f *splitBrain) Inject(ctx context.Context) (faults.Injection, error) {
	old, err := now(ctx, f.d, f.shard)
	if err != nil {
		return faults.Injection{}, err
	}
	side, err := f.side(old)
	if err != nil {
		return faults.Injection{}, err
	}
	if err := f.d.Arm(ctx); err != nil {
		return faults.Injection{}, errors.Join(err, disarm(ctx, f.d))
	}
	through, cancel, err := faults.Through(ctx)
	if err != nil {
		return faults.Injection{}, errors.Join(err, disarm(ctx, f.d))
	}
	defer cancel()
	cut, err := network.Cut(side.Links).Inject(through)
	if err != nil {
		return faults.Injection{}, errors.Join(err, disarm(ctx, f.d))
	}
	master, err := replaced(through, f.d, f.shard, old)
	if err != nil {
		undo, cancel := faults.Undo(ctx)
		defer cancel()
		_, mended := cut.Heal(undo)
		return faults.Injection{}, errors.Join(err, mended)
	}
	return faults.Injection{
		Effect: strings.Join([]string{cut.Effect, side.Name + " is alone with " + old, master + " is master of the rest"}, ", "),
		Heal: faults.Once(func(ctx context.Context) (string, error) {
			if _, err := cut.Heal(ctx); err != nil {
				return "", err
			}
			return old + " follows " + master, f.d.AwaitReady(ctx)
		}),
	}, nil
}
