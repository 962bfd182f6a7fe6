package world

import (
	"time"

	"github.com/lockchaos/lockchaos/simulation/simredis"
)

// A replica is what a master knows of one of its replicas.
type replica struct {
	node   *Node
	acked  int64 // the offset up to which it is known to have everything
	stream int   // which one: of the others nothing counts any more
	// down takes writes to it, and up its acknowledgements. The replica dials.
	down, up *pipe
}

// Replicates makes a server a replica of another from the start.
func (n *Node) Replicates(master *Node) {
	n.master = master
	n.server.SetReplica(true)
	master.add(n)
}

// add notes a replica, or begins a new stream to one that is known.
func (n *Node) add(node *Node) *replica {
	for _, r := range n.replicas {
		if r.node == node {
			r.stream++
			return r
		}
	}
	link := node.name + ">" + n.name
	r := &replica{
		node: node,
		down: &pipe{w: n.w, link: link, stream: Downstream, from: n.name, to: node.name},
		up:   &pipe{w: n.w, link: link, stream: Upstream, from: node.name, to: n.name},
	}
	n.replicas = append(n.replicas, r)
	return r
}

// syncTime is how long it takes to send all data to a replica, beside the latency.
const syncTime = time.Millisecond

// follow makes n a replica of another server, which sends it all its data.
func (n *Node) follow(master *Node) {
	if master == n || master == nil {
		return
	}
	if n.master == nil {
		n.w.tell(Notice{Server: n.name, Role: "replica"})
	}
	n.role++
	n.syncing, n.master = true, master
	n.server.SetReplica(true)
	if n.cluster == nil { // Sentinels end the connections; nodes of a cluster redirect
		n.hangUp()
	}
	r := master.add(n)
	r.acked = 0
	stream, role := r.stream, n.role
	r.down.send(syncTime, func() {
		if r.stream == stream && n.role == role && !n.down && !master.down {
			n.server.CopyFrom(master.server)
			n.syncing, r.acked = false, master.server.Offset()
		}
	})
}

// lead makes n a master, of the replicas that follow it from then on.
func (n *Node) lead() {
	n.role++
	n.master, n.syncing = nil, false
	n.server.SetReplica(false)
}

// ship sends what one command wrote to the replicas: a replica has all of it or nothing.
func (n *Node) ship(b simredis.Batch) {
	if n.master != nil {
		return
	}
	n.w.wrote(n, b)
	if n.silent {
		return
	}
	for _, r := range n.replicas {
		n.send(r, b)
	}
}

// send sends a batch to a replica, which acknowledges it.
func (n *Node) send(r *replica, b simredis.Batch) {
	stream, role := r.stream, r.node.role
	same := func() bool { return r.stream == stream && r.node.role == role && !r.node.down && r.node.master == n }
	r.down.send(0, func() {
		if !same() || r.node.syncing || r.node.server.Offset() != b.Start {
			return // it has it with all data, or follows another stream
		}
		r.node.server.Apply(b)
		r.up.send(0, func() {
			if same() && !n.down {
				r.acked = max(r.acked, b.End)
				n.server.Acknowledged()
			}
		})
	})
}

// acked is how many replicas are known to have everything up to an offset.
func (n *Node) acked(offset int64) int64 {
	count := int64(0)
	for _, r := range n.replicas {
		if r.acked >= offset {
			count++
		}
	}
	return count
}
