package harness

import (
	"context"
	"io"
	"slices"
	"time"

	"github.com/lockchaos/lockchaos/topologies"
)

// CheckOne makes one check of a driver on servers that run, and returns what is wrong.
func CheckOne(ctx context.Context, d topologies.Deployment, command, check, name string, log io.Writer) (skipped bool, wrong error) {
	return CheckBriefly(ctx, d, command, check, name, log, checkLease)
}

// CheckBriefly is [CheckOne] with another lease than that of drivers.
func CheckBriefly(ctx context.Context, d topologies.Deployment, command, check, name string, log io.Writer, lease time.Duration) (skipped bool, wrong error) {
	all := DriverChecks()
	at := slices.IndexFunc(all, func(c DriverCheck) bool { return c.Name == check })
	start := func(d topologies.Deployment, zone string, timeout time.Duration, log io.Writer) (checkedLock, func(), error) { //nolint:contextcheck // the driver outlives the start
		return startForCheck(d, command, zone, timeout, log)
	}
	return repeatDriverCheck(ctx, d, start, all[at], lease, name, log)
}
