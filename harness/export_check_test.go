package harness

import (
	"context"
	"io"
	"slices"

	"github.com/lockchaos/lockchaos/topologies"
)

// CheckOne makes one check of a driver on servers that run, and returns what is wrong.
func CheckOne(ctx context.Context, d topologies.Deployment, command, check, name string, log io.Writer) (skipped bool, wrong error) {
	all := DriverChecks()
	at := slices.IndexFunc(all, func(c DriverCheck) bool { return c.Name == check })
	return repeatDriverCheck(ctx, d, command, all[at], name, log)
}
