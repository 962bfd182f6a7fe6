package simredis

import (
	"slices"
	"strconv"

	"github.com/lockchaos/lockchaos/internal/traffic"
)

// Cluster is what a node of a cluster knows of it.
type Cluster struct {
	// Slot says where the keys of a slot are.
	Slot func(slot int) Slot
	// Shards are all, with their slots and nodes.
	Shards func() []Shard
	// Down tells whether the cluster serves no keys, since it lacks a slot or a majority.
	Down func() bool
}

// Node is one server of a cluster.
type Node struct {
	ID   string // 40 hexadecimal digits
	Host string
	Port int
	// Failed tells whether the others take it for down.
	Failed bool
}

// Slot is where a node believes a slot to be.
type Slot struct {
	// Owner is the address of the master, "host:port"; empty: there is none.
	Owner string
	// Mine: this node, or the master that it replicates, has it.
	Mine bool
}

// Shard is a master and its replicas.
type Shard struct {
	Slots    [][2]int // both ends are included
	Master   Node
	Replicas []Node
}

// route says, as an error, why this node doesn't run a command.
func (s *Server) route(c *Session, cmd *command, a []string) any {
	if c == nil || cmd.name != "exec" || !c.multi {
		return s.routeKeys(c, cmd, a)
	}
	for _, q := range c.queue {
		if e := s.routeKeys(c, find(q), q); e != nil {
			return e
		}
	}
	if _, crossed := slotOf(c.queue...); crossed {
		return errCrossSlot
	}
	return nil
}

// slotOf is the slot of the first key that commands have, -1 for none, and whether others are of another.
func slotOf(queue ...[]string) (slot int, crossed bool) {
	slot = -1
	for _, a := range queue {
		find(a).keys(a, func(key string) bool {
			n := traffic.KeySlot(key)
			if slot < 0 {
				slot = n
			}
			crossed = n != slot
			return !crossed
		})
		if crossed {
			break
		}
	}
	return slot, crossed
}

func (s *Server) routeKeys(c *Session, cmd *command, a []string) any {
	slot, crossed := slotOf(a)
	if slot < 0 {
		return nil
	}
	where := s.host.Cluster.Slot(slot)
	switch {
	case where.Owner == "" && !where.Mine:
		return Error("CLUSTERDOWN Hash slot not served")
	case crossed:
		return errCrossSlot
	case s.host.Cluster.Down():
		return Error("CLUSTERDOWN The cluster is down")
	}
	if where.Mine && (!s.replica || c != nil && c.mayRead && !cmd.is(write) && cmd.name != "exec" && !c.multi) {
		return nil
	}
	return Error("MOVED " + strconv.Itoa(slot) + " " + where.Owner)
}

const errCrossSlot = Error("CROSSSLOT Keys in request don't hash to the same slot")

func clusterCommands() []command {
	return []command{
		{name: "readonly", arity: 1, flags: needsSession, run: func(s *Server, _ []string) any { return s.setMayRead(true) }},
		{name: "readwrite", arity: 1, flags: needsSession, run: func(s *Server, _ []string) any { return s.setMayRead(false) }},
		{name: "cluster", arity: -2, run: noSubcommand},
		{name: "cluster|slots", arity: 2, run: clusterSlots},
	}
}

const errNoCluster = Error("ERR This instance has cluster support disabled")

func (s *Server) setMayRead(yes bool) any {
	if s.host.Cluster == nil {
		return errNoCluster
	}
	if !s.script {
		s.session.mayRead = yes
	}
	return ok
}

func (n Node) endpoint() []any { return []any{n.Host, int64(n.Port), n.ID, Map{}} }

func clusterSlots(s *Server, _ []string) any {
	if s.host.Cluster == nil {
		return errNoCluster
	}
	out := []any{}
	for _, sh := range s.host.Cluster.Shards() {
		for _, r := range sh.Slots {
			e := []any{int64(r[0]), int64(r[1]), sh.Master.endpoint()}
			for _, n := range sh.Replicas {
				if !n.Failed {
					e = append(e, n.endpoint())
				}
			}
			out = append(out, e)
		}
	}
	slices.SortStableFunc(out, func(a, b any) int { return int(a.([]any)[0].(int64) - b.([]any)[0].(int64)) })
	return out
}
