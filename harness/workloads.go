package harness

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/workload"
)

// DefaultWait is how long clients wait for a lock where the kind of workload does
// not say it.
const DefaultWait = 500 * time.Millisecond

// Wait is how long clients wait for a lock in a run whose user does not say it.
func (r RandomRun) Wait() time.Duration {
	return cmp.Or(workload.Config{Kinds: strings.Split(r.kind(), ",")}.WithDefaults().Wait, DefaultWait)
}

// programShort is the lease of workloads that need one, of a lock behind a driver. A driver
// may start a program for each request, and a lock may cut a lease to whole seconds, which
// such a lease shows.
const programShort = 1500 * time.Millisecond

// withLock completes a workload for a lock.
func withLock(c workload.Config, l LockSpec, kinds []workload.Kind) workload.Config {
	c.Kinds = nil
	for _, k := range kinds {
		c.Kinds = append(c.Kinds, k.Name)
	}
	if l.Kind == history.KindSemaphore {
		c.Mode = history.Permit
	}
	c.Together, c.Endless, c.Extends = l.Together, l.Endless, l.Extend && !l.Endless
	c.Downgrades, c.Several, c.Reenters = l.Downgrades, l.Several, l.Reentrant && l.Foreign
	asked := c.Lease
	if c.Locks == 0 && l.Connects && len(kinds) > 1 && slices.ContainsFunc(kinds, func(k workload.Kind) bool { return k.Needs.Watched }) {
		c.Locks = 2 // else all that others do waits while one client works for several seconds
	}
	c = c.WithDefaults()
	if l.Connects && asked == 0 && c.Lease > 0 {
		c.Lease = programShort
	}
	return c
}
