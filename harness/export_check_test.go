package harness

import (
	"context"
	"io"
	"slices"
	"time"

	"github.com/lockchaos/lockchaos/topologies"
)

// CheckOne makes one check of a driver on servers that run, for a lock of that name, with such a lease, and returns what is wrong.
func CheckOne(ctx context.Context, d topologies.Deployment, command, check, name string, log io.Writer, lease time.Duration) (skipped bool, wrong error) {
	start := func(d topologies.Deployment, zone string, timeout time.Duration, log io.Writer) (checkedLock, func(), error) { //nolint:contextcheck // the driver outlives the start
		return startForCheck(d, command, zone, timeout, log)
	}
	return checkOne(ctx, d, start, check, name, log, lease)
}

// CheckOneOf makes one check of a lock in Go.
func CheckOneOf(ctx context.Context, d topologies.Deployment, l LockSpec, check, name string, log io.Writer, lease time.Duration) (skipped bool, wrong error) {
	open := l.Begin()
	start := func(d topologies.Deployment, zone string, timeout time.Duration, _ io.Writer) (checkedLock, func(), error) {
		return openForCheck(l, open, d, zone, timeout)
	}
	return checkOne(ctx, d, start, check, name, log, lease)
}

func checkOne(ctx context.Context, d topologies.Deployment, start checkedStart, check, name string, log io.Writer, lease time.Duration) (skipped bool, wrong error) {
	all := DriverChecks()
	at := slices.IndexFunc(all, func(c DriverCheck) bool { return c.Name == check })
	return repeatDriverCheck(ctx, d, start, all[at], lease, name, log)
}
