package harness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/internal/traffic"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/shim"
	"github.com/lockchaos/lockchaos/workload"
)

// ParamKey is the parameter that names a key, or a lock, of a slot.
const ParamKey = "key"

// instrumented is the backend for a run with these faults: where they interfere
// with clocks or disks, it starts servers that let them. All other runs are spared
// that.
func instrumented(backend topologies.Backend, asked []*faults.Spec) (topologies.Backend, error) {
	for _, spec := range asked {
		if !slices.Contains(spec.Needs, topologies.Clocks) && !slices.Contains(spec.Needs, topologies.Disks) {
			continue
		}
		b, ok := backend.(topologies.Instrumenter)
		if !ok {
			return nil, fmt.Errorf("%s %w: it takes servers that are local processes (--backend process)", spec.Name, faults.ErrImpossible)
		}
		return b.Instrumented(), nil
	}
	return backend, nil
}

// clocksFor gives the zones clocks of their own, if a fault changes those.
func (st *Session) clocksFor(spec *faults.Spec) (err error) {
	if spec.Family != faults.Client || spec.Target != faults.AtZone || st.clocks != nil {
		return nil
	}
	st.clocks, err = shim.NewClocks(st.deployment.Topology().Of(topologies.Zone))
	return err
}

// where is the deployment that a target is of, and what it means there: that of the locks, unless it means a link of the
// server of the protected resource.
func (st *Session) where(target string) (d topologies.Deployment, there string) {
	if inner, ok := faults.OfResource(target); ok && st.resources != nil && st.resources.server != nil {
		return st.resources.server, inner
	}
	return st.deployment, target
}

// resolve is what a target means now, the server of a lock or the zone of a client that holds one. Of several locks, each
// fault has another.
func (st *Session) resolve(ctx context.Context, target string) (string, error) {
	if _, ok := faults.HolderIn("", target); ok {
		target, _ = faults.HolderIn(st.holder(ctx), target)
	}
	if target != faults.TargetOfLock {
		return target, nil
	}
	t := st.deployment.Topology()
	if t.HasSlots() && len(st.locks) > 0 {
		lock := st.locks[st.aimed%len(st.locks)]
		st.aimed++
		return servedBy(ctx, st.deployment, st.keyOf(lock))
	}
	if shards := t.Shards(); len(shards) > 0 {
		return faults.MasterNow(ctx, st.deployment, shards[0])
	}
	servers := t.Servers() // which all have all locks
	st.aimed++
	return servers[(st.aimed-1)%len(servers)], nil
}

// holder is the zone of a client that holds a lock by its session, or the first where none seems to for [faultPatience].
func (st *Session) holder(ctx context.Context) string {
	waiting, cancel := context.WithTimeout(ctx, faultPatience)
	defer cancel()
	zone := st.grants.holder()
	for zone == "" && workload.Pause(waiting, retryEvery) {
		zone = st.grants.holder()
	}
	return cmp.Or(zone, st.deployment.Topology().Of(topologies.Zone)[0])
}

// keyOf is a key in the slot of a lock that the run declares, or the key that is meant.
func (st *Session) keyOf(name string) string { return cmp.Or(st.keys[name], name) }

// servedBy is the node of a cluster that serves the slot of a key.
func servedBy(ctx context.Context, d topologies.Deployment, key string) (string, error) {
	var errs []error
	for _, name := range d.Topology().Of(topologies.Redis) {
		ranges, err := d.Server(name).Observer().ClusterSlots(ctx).Result() //nolint:staticcheck // what clients of a cluster go by
		errs = append(errs, err)
		for _, r := range ranges {
			if slot := traffic.KeySlot(key); r.Start <= slot && slot <= r.End && len(r.Nodes) > 0 {
				return d.NodeAt(r.Nodes[0].Addr), nil
			}
		}
	}
	return "", fmt.Errorf("no server says which of them serves key %s: %w", key, errors.Join(errs...))
}
