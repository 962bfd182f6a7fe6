package harness

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/topologies"
)

// resolve is the server that a target means now. Of several locks, each fault
// has another.
func (st *Session) resolve(ctx context.Context, target string) (string, error) {
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

// keyOf is a key in the slot of a lock that the run declares, or the key that is meant.
func (st *Session) keyOf(name string) string { return cmp.Or(st.keys[name], name) }

// servedBy is the node of a cluster that serves the slot of a key.
func servedBy(ctx context.Context, d topologies.Deployment, key string) (string, error) {
	var errs []error
	for _, name := range d.Topology().Of(topologies.Redis) {
		rdb := d.Server(name).Observer()
		slot, err := rdb.ClusterKeySlot(ctx, key).Result()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		ranges, err := rdb.ClusterSlots(ctx).Result() //nolint:staticcheck // what clients of a cluster go by
		errs = append(errs, err)
		for _, r := range ranges {
			if int64(r.Start) <= slot && slot <= int64(r.End) && len(r.Nodes) > 0 {
				return d.NodeAt(r.Nodes[0].Addr), nil
			}
		}
	}
	return "", fmt.Errorf("no server says which of them serves key %s: %w", key, errors.Join(errs...))
}
