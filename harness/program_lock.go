package harness

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/lockchaos/lockchaos/driver"
	"github.com/lockchaos/lockchaos/lock"
)

// A program is a driver that remembers the shortest lease that it was asked for.
type program struct {
	*driver.Driver

	lease time.Duration // instead of a watchdog
	least atomic.Int64
}

func (p *program) shortest() time.Duration { return time.Duration(p.least.Load()) }

// Acquire asks the driver. A lock without a watchdog always has a lease.
func (p *program) Acquire(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
	if o.Lease == 0 && !p.Hello().Promises.Watchdog {
		o.Lease = p.lease
	}
	for o.Lease > 0 {
		least := p.least.Load()
		if least > 0 && least <= int64(o.Lease) || p.least.CompareAndSwap(least, int64(o.Lease)) {
			break
		}
	}
	return p.Driver.Acquire(ctx, name, o)
}
