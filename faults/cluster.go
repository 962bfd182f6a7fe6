package faults

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/topologies"
)

// clusterSpecs are the faults of the slots of a Redis Cluster.
func clusterSpecs() []Spec {
	return []Spec{{
		Name: "migrate-slot", Family: Cluster, Summary: "move the slot of a key to the next master, and finish that at the heal",
		Target: AtDeployment, Needs: []topologies.Capability{topologies.Settings},
		Params: []Param{{
			Name: "key", About: "a key of the slot, or the name of a lock of the run, which means the key where that lock is", Ask: "whose slot",
		}},
		Life: history.Lasting, Effects: []history.Effect{history.Moves},
		Check: func(t topologies.Topology, _ Step) error {
			if !t.HasSlots() {
				return fmt.Errorf("topology %s has no slots", t.Name)
			}
			return nil
		},
		Candidates: func(e Environment) []Candidate {
			return []Candidate{{Weight: 2, Params: map[string]string{"key": strings.Join(e.Locks[:min(len(e.Locks), 3)], "|")}}}
		},
		Observed: "the old master sends on who asks for it (ASK)", Healed: "every node says that the new master serves it",
		Pitfall: "until the heal, scripts with several keys are told to try again; the servers must reach each other where the harness reaches them",
		New: func(site Site, s Step) (inject, error) {
			var servers []topologies.Server
			for _, name := range site.Deployment.Topology().Of(topologies.Redis) {
				servers = append(servers, site.Deployment.Server(name))
			}
			return (&slotMigration{servers, s.Params["key"]}).inject, nil
		},
	}}
}

// node is a server with the name that the cluster gives it.
type node struct {
	topologies.Server

	id string
}

// rdb is its observer, who is patient.
func (n node) rdb() *redis.Client { return n.Observer().WithTimeout(patience) }

// A slotMigration moves the slot of a key, with everything in it, from the master that
// serves it to the next one. Until the heal the move is not finished: the old
// master sends who asks on to the new one (ASK), and scripts whose keys are not
// all there are told to try again. The heal finishes it.
//
// The steps are those of "Redis cluster specification", section "Live
// reconfiguration".
type slotMigration struct {
	servers []topologies.Server
	key     string
}

// inject fails if no master serves the slot, or no other could.
func (m *slotMigration) inject(ctx context.Context) (Injection, error) {
	nodes, err := m.nodes(ctx)
	if err != nil {
		return Injection{}, err
	}
	slot, from, to, err := m.agreed(ctx, nodes)
	if err != nil {
		return Injection{}, err
	}
	heal := Once(func(ctx context.Context) (string, error) {
		if err := finishMove(ctx, nodes, slot, to); err != nil {
			return "", fmt.Errorf("finish the move of slot %d: %w", slot, err)
		}
		return fmt.Sprintf("%s serves slot %d", to.Name(), slot), nil
	})
	moved, err := m.begin(ctx, slot, from, to)
	if err != nil {
		undo, cancel := undoing(ctx)
		defer cancel()
		return Injection{}, errors.Join(fmt.Errorf("migrate slot %d: %w", slot, err), m.undo(undo, slot, from, to))
	}
	return Injection{
		Effect: fmt.Sprintf("slot %d is on its way from %s to %s, keys in it: %d", slot, from.Name(), to.Name(), moved),
		Heal:   heal,
	}, nil
}

// nodes asks the servers who they are; one that does not answer is left out.
func (m *slotMigration) nodes(ctx context.Context) ([]node, error) {
	var nodes []node
	var errs []error
	for _, s := range m.servers {
		id, err := node{Server: s}.rdb().Do(ctx, "CLUSTER", "MYID").Text()
		if err != nil {
			errs = append(errs, fmt.Errorf("ask %s who it is: %w", s.Name(), err))
			continue
		}
		nodes = append(nodes, node{s, id})
	}
	if len(nodes) == 0 {
		return nil, errors.Join(errs...)
	}
	return nodes, nil
}

// agreeLimit bounds the wait for nodes that see another master than the one that sees itself so, as they do for a
// moment after a failover.
const agreeLimit = 5 * time.Second

// agreed is the route once both masters of it say themselves that they are.
func (m *slotMigration) agreed(ctx context.Context, nodes []node) (slot int, from, to node, err error) {
	limited, cancel := context.WithTimeout(ctx, agreeLimit)
	defer cancel()
	late := await.Until(limited, func() error {
		if slot, from, to, err = m.route(limited, nodes); err != nil {
			return nil //nolint:nilerr // it is returned below, and not awaited
		}
		for _, n := range [...]node{from, to} {
			role, _, err := topologies.RoleOf(limited, n.rdb())
			if err != nil {
				return fmt.Errorf("ask %s for its role: %w", n.Name(), err)
			}
			if role != topologies.Master {
				return fmt.Errorf("%s is no master, as it says, and %s says that it is", n.Name(), nodes[0].Name())
			}
		}
		return nil
	})
	return slot, from, to, errors.Join(err, late)
}

// route is the slot of the key, who serves it, and who is to: the master that
// comes next in the order of the servers.
func (m *slotMigration) route(ctx context.Context, nodes []node) (slot int, from, to node, err error) {
	seen := nodes[0].rdb()
	n, err := seen.ClusterKeySlot(ctx, m.key).Result()
	if err != nil {
		return 0, from, to, fmt.Errorf("ask for the slot of %s: %w", m.key, err)
	}
	slot = int(n)
	owners, err := seen.ClusterShards(ctx).Result()
	if err != nil {
		return 0, from, to, fmt.Errorf("ask who serves the slots: %w", err)
	}
	var masters []node
	at := -1
	for _, candidate := range nodes {
		if !slices.ContainsFunc(owners, func(o redis.ClusterShard) bool { return masterID(o) == candidate.id }) {
			continue
		}
		if serving(owners, slot) == candidate.id {
			at = len(masters)
		}
		masters = append(masters, candidate)
	}
	if at < 0 || len(masters) < 2 {
		return 0, from, to, fmt.Errorf("slot %d of %s has no master to move from, or none to move to", slot, m.key)
	}
	return slot, masters[at], masters[(at+1)%len(masters)], nil
}

// serving is the name of the node that serves a slot; empty if none does.
func serving(owners []redis.ClusterShard, slot int) string {
	for _, o := range owners {
		if slices.ContainsFunc(o.Slots, func(r redis.SlotRange) bool { return int(r.Start) <= slot && slot <= int(r.End) }) {
			return masterID(o)
		}
	}
	return ""
}

// masterID is the name of a shard's master; empty if it has none.
func masterID(o redis.ClusterShard) string {
	for _, n := range o.Nodes {
		if n.Role == "master" {
			return n.ID
		}
	}
	return ""
}

// migrateTimeout is how long one batch of keys may take, in ms.
const migrateTimeout = 1000

// begin moves the keys, and sees that the old master sends on who asks.
func (m *slotMigration) begin(ctx context.Context, slot int, from, to node) (moved int, err error) {
	if err := to.rdb().Do(ctx, "CLUSTER", "SETSLOT", slot, "IMPORTING", from.id).Err(); err != nil {
		return 0, err
	}
	if err := from.rdb().Do(ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", to.id).Err(); err != nil {
		return 0, err
	}
	if moved, err = moveKeys(ctx, slot, from, to); err != nil {
		return moved, err
	}
	if err := from.rdb().Exists(ctx, m.key).Err(); err == nil || !strings.HasPrefix(err.Error(), "ASK ") {
		return moved, fmt.Errorf("%s does not send on who asks for it (%w)", from.Name(), cmp.Or(err, errNone))
	}
	return moved, nil
}

// moveKeys moves all keys of a slot from one server to another.
func moveKeys(ctx context.Context, slot int, from, to node) (moved int, err error) {
	host, port, err := net.SplitHostPort(to.Observer().Options().Addr)
	if err != nil {
		return 0, err
	}
	for {
		keys, err := from.rdb().ClusterGetKeysInSlot(ctx, slot, 100).Result()
		if err != nil {
			return moved, err
		}
		if len(keys) == 0 {
			return moved, nil
		}
		args := []any{"MIGRATE", host, port, "", 0, migrateTimeout, "KEYS"}
		for _, key := range keys {
			args = append(args, key)
		}
		if err := from.rdb().Do(ctx, args...).Err(); err != nil {
			return moved, err
		}
		moved += len(keys)
	}
}

// undo brings back what was moved, and leaves the slot where it was. (To end
// the move would have the old master throw away the keys that it still has.)
func (m *slotMigration) undo(ctx context.Context, slot int, from, to node) error {
	if err := from.rdb().Do(ctx, "CLUSTER", "SETSLOT", slot, "STABLE").Err(); err != nil {
		return fmt.Errorf("leave slot %d at %s: %w", slot, from.Name(), err)
	}
	_, back := moveKeys(ctx, slot, to, from)
	return errors.Join(back, to.rdb().Do(ctx, "CLUSTER", "SETSLOT", slot, "STABLE").Err())
}

// finishMove gives the slot to its new master, tells all nodes, and waits until they
// know.
func finishMove(ctx context.Context, nodes []node, slot int, to node) error {
	if err := to.rdb().Do(ctx, "CLUSTER", "SETSLOT", slot, "NODE", to.id).Err(); err != nil {
		return err
	}
	for _, n := range nodes {
		// A replica refuses, and learns it from its master.
		_ = n.rdb().Do(ctx, "CLUSTER", "SETSLOT", slot, "NODE", to.id).Err()
	}
	for _, n := range nodes {
		err := await.Until(ctx, func() error {
			owners, err := n.rdb().ClusterShards(ctx).Result()
			if err == nil && serving(owners, slot) != to.id {
				err = errors.New("it takes another for it")
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("%s does not know that %s serves it: %w", n.Name(), to.Name(), err)
		}
	}
	return nil
}
