package simulation

import (
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/simulation/world"
)

// sweepDelay is by how much a sweep delays a message: longer than a client waits for a
// reply, and than the lease of [SweepBase].
const sweepDelay = 1200 * time.Millisecond

// sweptFor is the part of a case at whose requests a sweep is aimed.
const sweptFor = 400 * time.Millisecond

// SweepBase is the short and plain case that a sweep begins with.
func SweepBase(l harness.LockSpec, k Campaign, seed uint64) Case {
	return Case{
		Lock: l.Name, Topology: k.Topology, Servers: k.Servers, ReplicaAcks: k.ReplicaAcks, Seed: seed, Length: sweptFor,
		Workload: l.DefaultWorkload(), Clients: 2, Lease: time.Second, Wait: time.Second, Hold: 50 * time.Millisecond,
	}
}

// Sweep is a case again and again, for longer and each time with one more fault: of every
// request that it had on every link, as its outcome counts them, the request lost, its reply lost,
// either of them late, and the server that it went to killed at once. So the first case
// that fails has a shortest plan.
func Sweep(c Case, requests map[string]int) iter.Seq[Case] {
	return func(yield func(Case) bool) {
		for _, link := range slices.Sorted(maps.Keys(requests)) {
			_, server, _ := strings.Cut(link, ">")
			for nth := 1; nth <= requests[link]; nth++ {
				at := &world.Anchor{Event: world.Request, Of: link, Nth: nth}
				for _, f := range []world.Fault{
					{Name: world.DropCommand, Target: link, After: at},
					{Name: world.DropReply, Target: link, After: at},
					{Name: world.DelayCommand, Target: link, After: at, By: sweepDelay},
					{Name: world.DelayReply, Target: link, After: at, By: sweepDelay},
					{Name: world.Kill, Target: server, After: at, For: 10 * time.Millisecond, Keep: true},
				} {
					next := c
					next.Length = faultsWithin + quietFor
					next.Plan = append(slices.Clone(c.Plan), f)
					if !yield(next) {
						return
					}
				}
			}
		}
	}
}
