package world

import (
	"net"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/simulation/simredis"
)

// MasterName is what Sentinels call the master.
const MasterName = "lockchaos"

// detection is how long Sentinels take to replace a master that does not answer.
const detection = 500 * time.Millisecond

// rejoin is how long a server that was replaced is back before Sentinels make it a
// replica.
const rejoin = 100 * time.Millisecond

// sentinelReply answers SENTINEL.
func (w *World) sentinelReply(args []string) any {
	if len(args) == 0 {
		return simredis.Error("ERR wrong number of arguments for 'sentinel' command")
	}
	switch strings.ToLower(args[0]) {
	case "get-master-addr-by-name":
		host, port, _ := net.SplitHostPort(w.node(TheMaster).address)
		return []any{host, port}
	case "sentinels", "replicas", "slaves":
		return []any{}
	default:
		return simredis.Error("ERR unknown subcommand '" + args[0] + "'")
	}
}

// suspect has Sentinels replace a master that does not answer for too long.
func (w *World) suspect(n *Node) {
	if w.sentinel == nil {
		return
	}
	w.after(detection, func() {
		if w.master == n.name && (n.down || w.is(Pause, n.name)) {
			w.promote(n)
		}
	})
}

// promote makes the replica that has most of the old master's data the master.
func (w *World) promote(old *Node) {
	if w.master != old.name {
		return
	}
	var best *Node
	for _, r := range old.replicas {
		if !r.node.down && r.node.master == old && (best == nil || r.node.known() > best.known()) {
			best = r.node
		}
	}
	if best == nil {
		return
	}
	best.lead()
	w.master = best.name
	others := old.replicas
	old.replicas = nil
	for _, r := range others {
		if r.node != best {
			r.node.follow(best)
		}
	}
	w.tell(Notice{Server: best.name, Role: "master"})
	oldHost, oldPort, _ := net.SplitHostPort(old.address)
	host, port, _ := net.SplitHostPort(best.address)
	w.sentinel.server.Deliver("+switch-master", strings.Join([]string{MasterName, oldHost, oldPort, host, port}, " "))
}

// known is how much a replica has of its master's writes.
func (n *Node) known() int64 {
	if n.syncing {
		return -1
	}
	return n.server.Offset()
}

// demote makes a server that was replaced a replica of the new master.
func (w *World) demote(n *Node) {
	if w.sentinel != nil && w.master != n.name && !n.down && n.master != w.node(TheMaster) {
		n.follow(w.node(TheMaster))
	}
}
