package conformance

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/topologies"
)

// Named is the check with that name.
func Named(name string) Check {
	all := Checks()
	return all[slices.IndexFunc(all, func(c Check) bool { return c.Name == name })]
}

// One makes one check on servers that run, for a lock of that name, with such a lease: of a driver, or of a lock in Go.
func One(ctx context.Context, d topologies.Deployment, l harness.LockSpec, check, name string, lease time.Duration) Outcome {
	r := runner{open: inGo(l), lease: lease}
	if command, is := strings.CutPrefix(l.Name, harness.ProgramPrefix); is {
		r.open = program(command) //nolint:contextcheck // the driver outlives the start
	}
	return r.repeat(ctx, d, Named(check), name)
}

// Brief is Driver with leases of half a second.
func Brief(ctx context.Context, backend topologies.Backend, l harness.LockSpec, checks []Check, tell func(Outcome)) error {
	r := runner{backend, topologies.Single, program(strings.TrimPrefix(l.Name, harness.ProgramPrefix)), time.Second / 2, 3} //nolint:contextcheck // the driver outlives the start
	return r.run(ctx, checks, tell)
}
