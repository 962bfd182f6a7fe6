package bootstrap

import (
	"context"
	"sync"
	"time"

	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/topologies"
)

// watchEvery is how often a server is asked what it takes itself for. Twice as often took
// an eighth of the processor time of a run on a cluster.
const watchEvery = 50 * time.Millisecond

// Watch asks every server for its role, every sentinel and the name for the master,
// and every node of a cluster for its epoch, over and over, and reports changes. A
// server that does not answer is passed over until it does.
func (d *deployment) Watch(ctx context.Context, report func(topologies.Observation)) {
	var all sync.WaitGroup
	every := watchEvery
	if d.members != nil {
		every = watchMembersEvery
	}
	for name := range d.parts.Nodes {
		ask := map[string]func(context.Context, string) (string, error){}
		switch n, _ := d.topology.Node(name); {
		case n.Kind == topologies.Sentinel:
			ask["master"] = d.masterOf
		case d.topology.HasSlots():
			ask["role"], ask["epoch"] = d.role, d.epoch
		default:
			ask["role"] = d.role
		}
		for what, ask := range ask {
			all.Go(func() {
				watch(ctx, every, func() (string, error) { return ask(ctx, name) }, func(value string) {
					report(topologies.Observation{Node: name, What: what, Value: value})
				})
			})
		}
	}
	if d.name != nil {
		all.Go(func() {
			watch(ctx, every, d.name.target, func(value string) {
				report(topologies.Observation{Node: topologies.Primary, What: "master", Value: value})
			})
		})
	}
	all.Wait()
}

// watch reports what is answered, each time that it differs from the answer
// before.
func watch(ctx context.Context, every time.Duration, ask func() (string, error), report func(string)) {
	last := ""
	for ; ctx.Err() == nil; _ = await.Pause(ctx, every) {
		if value, err := ask(); err == nil && value != last {
			last = value
			report(value)
		}
	}
}
