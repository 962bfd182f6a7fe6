package conformance

import (
	"context"
	"slices"
	"time"

	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/topologies"
)

// One makes one check on servers that run, for a lock of that name, with such a lease: of the driver with a command,
// or of a lock in Go where there is none.
func One(ctx context.Context, d topologies.Deployment, command string, l harness.LockSpec, check, name string, lease time.Duration) Outcome {
	r := runner{open: program(command), lease: lease} //nolint:contextcheck // the driver outlives the start
	if command == "" {
		r.open = inGo(l)
	}
	all := Checks()
	at := slices.IndexFunc(all, func(c Check) bool { return c.Name == check })
	return r.repeat(ctx, d, all[at], name)
}

// Brief is Driver with leases of half a second.
func Brief(ctx context.Context, backend topologies.Backend, command string, checks []Check, tell func(Outcome)) error {
	return runner{backend, topologies.Single, program(command), time.Second / 2, 3}.run(ctx, checks, tell) //nolint:contextcheck // the driver outlives the start
}
