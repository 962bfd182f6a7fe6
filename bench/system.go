package bench

import (
	"context"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/topologies"
)

// An Acquire waits for the lock of that name until the context ends, and returns
// how to release it.
type Acquire func(ctx context.Context, name string) (release func(context.Context) error, err error)

// A System is something that can be measured.
type System struct {
	Name, About string
	// Unfit says why the system can't take part in a workload, or is empty. Nil:
	// it takes part in all.
	Unfit func(w Workload) string
	// Open makes one instance, as one process of a service would. The servers are
	// clients of one deployment, or of each of several servers, which Open does
	// not close. The function that it returns closes the instance.
	Open func(ctx context.Context, servers []redis.UniversalClient) (Acquire, func(), error)
	// OpenAt makes an instance that connects to the servers by itself, over the links of
	// a zone where the workload has a delay. Where it is set, Open is not called, and the instances stay for all turns at a
	// workload: a program may have to start, and to compile itself while it works.
	OpenAt func(ctx context.Context, d topologies.Deployment, zone string, w Workload) (Acquire, func(), error)
	// Caveat says, when all turns are over, what of the figures can't be compared with
	// those of others. Nil: all can.
	Caveat func() string
}

// Locker is how a [lock.Locker] is measured: every request has the lease, and
// waits as long as it has to.
func Locker(l lock.Locker) Acquire {
	return func(ctx context.Context, name string) (func(context.Context) error, error) {
		h, err := l.Acquire(ctx, name, lock.Options{Lease: Lease, Wait: lock.Forever})
		if err != nil {
			return nil, err
		}
		return h.Release, nil
	}
}

// unfit says why a system takes no part in a workload.
func (s System) unfit(w Workload) string {
	if s.Unfit == nil {
		return ""
	}
	return s.Unfit(w)
}

// open makes the instances of a slice.
func (s System) open(ctx context.Context, g *testServers, w Workload) (instances []Acquire, closeAll func(), err error) {
	var closers []func()
	closeAll = func() {
		for _, c := range slices.Backward(closers) {
			c()
		}
	}
	zones := g.deployment.Topology().Of(topologies.Zone)
	for i := range w.Instances {
		open := func() (Acquire, func(), error) { return s.OpenAt(ctx, g.deployment, zones[i%len(zones)], w) }
		if s.OpenAt == nil {
			servers := g.clients(w, s.Name, i)
			for _, rdb := range servers {
				closers = append(closers, func() { _ = rdb.Close() })
			}
			open = func() (Acquire, func(), error) { return s.Open(ctx, servers) }
		}
		acquire, end, err := open()
		if err != nil {
			closeAll()
			return nil, nil, fmt.Errorf("open %s: %w", s.Name, err)
		}
		closers, instances = append(closers, end), append(instances, acquire)
	}
	return instances, closeAll, nil
}
