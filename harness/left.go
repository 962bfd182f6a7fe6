package harness

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/topologies"
)

// LeftOn is what the history says of a master that has a lock for an owner whose request was refused.
// It is false where the master does not, or can't be asked.
func (l LockSpec) LeftOn(ctx context.Context, master *redis.Client, node, lock, owner string) (history.Event, bool) {
	holder, err := l.HolderOn(ctx, master, lock)
	return history.Event{
		Process: history.NoProcess, Op: history.Observe, Type: history.OK, Node: node, What: history.ObserveLeft, Value: lock + " " + owner,
	}, err == nil && holder == owner
}

// refused looks whether a refused request left the lock with its owner. One look at a time is
// enough, and spares the servers: what is left stays for a lease.
func (st *Session) refused(ctx context.Context, lock, owner string) {
	if !st.looking.TryLock() {
		return
	}
	defer st.looking.Unlock()
	for _, name := range st.deployment.Topology().Of(topologies.Redis) {
		server := st.deployment.Server(name).Observer()
		if role, _, err := topologies.RoleOf(ctx, server); err != nil || role != topologies.Master {
			continue
		}
		if e, left := st.lock.LeftOn(ctx, server, name, lock, owner); left {
			st.recorder.Record(e)
		}
	}
}
