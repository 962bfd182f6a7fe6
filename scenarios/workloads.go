package scenarios

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/workload"
	"github.com/lockchaos/lockchaos/workload/history"
)

// DefaultWait is how long clients wait for a lock where the kind of workload does
// not say it.
const DefaultWait = 500 * time.Millisecond

// Wait is how long clients wait for a lock in a run whose user does not say it.
func (r Random) Wait() time.Duration {
	kinds, err := parseWorkload(r.kind())
	if err != nil {
		return DefaultWait
	}
	return cmp.Or(withLock(workload.Config{}, Lock{}, kinds).Wait, DefaultWait)
}

// Workloads lists what clients can do with a lock.
func Workloads() []workload.Kind { return workload.Kinds() }

// DefaultWorkload is the workload of a run that names none: what the lock is
// for.
func DefaultWorkload(name string) string {
	l, err := LockByName(name)
	switch {
	case err != nil:
		return workload.Contended
	case l.kind == history.KindRW:
		return "readers-writers"
	case l.kind == history.KindSemaphore:
		return "permits"
	case l.together:
		return "several-locks"
	case l.fair:
		return "fair-queue"
	case l.passes:
		return "bursts"
	default:
		return workload.Contended
	}
}

// parseWorkload finds the kinds of a comma list.
func parseWorkload(list string) ([]workload.Kind, error) {
	var known []string
	for _, k := range Workloads() {
		known = append(known, k.Name)
	}
	var kinds []workload.Kind
	var errs []error
	for name := range strings.SplitSeq(list, ",") {
		at := slices.Index(known, name)
		if at < 0 {
			errs = append(errs, names.Unknown("workload", name, known))
			continue
		}
		kinds = append(kinds, Workloads()[at])
	}
	return kinds, errors.Join(errs...)
}

// Suits says why a lock can't have a kind of workload; nil if it can.
func (l Lock) Suits(k workload.Kind) error {
	n := k.Needs
	because := ""
	switch {
	case n.Readers && l.kind != history.KindRW:
		because = "it does not tell readers from writers: use rwmutex"
	case n.Permits && l.kind != history.KindSemaphore:
		because = "it has no permits: use semaphore or semaphore-permit"
	case n.Alone && l.kind == history.KindSemaphore:
		because = "it lets several in at once, as many as it has permits"
	case n.Reentry && !l.reentrant:
		because = "it is not re-entrant"
	case n.Queue && !l.fair:
		because = "it says nobody's place in a queue: use mutex-fair"
	case n.Leases && l.endless:
		because = "its grants have no end, so that what is left behind stays taken"
	default:
		return nil
	}
	return fmt.Errorf("lock %s can't have workload %s: %s", l.Name, k.Name, because)
}

// withLock completes a workload for a lock.
func withLock(c workload.Config, l Lock, kinds []workload.Kind) workload.Config {
	c.Kinds = nil
	for _, k := range kinds {
		c.Kinds = append(c.Kinds, k.Name)
	}
	if l.kind == history.KindSemaphore {
		c.Mode = history.Permit
	}
	c.Together, c.Endless = l.together, l.endless
	return c.WithDefaults()
}
