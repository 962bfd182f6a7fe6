package world

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/lockchaos/lockchaos/simulation/simredis"
)

// A Node is a Redis server or a Sentinel.
type Node struct {
	w       *World
	name    string
	address string
	server  *simredis.Server
	conns   []*conn // in the order of dialling
	down    bool
	silent  bool // nothing that it writes reaches its replicas
	clock   clock

	master   *Node // nil: it is one
	replicas []*replica
	role     int  // how often that changed: what was sent before is dropped
	syncing  bool // it waits for the data of its master

	cluster  *member          // nil outside of a cluster
	buses    map[string]*pipe // of a cluster, by link
	isolated bool             // the other nodes of the cluster can't be reached
}

// AddServer adds a Redis server. The first one is the master that Sentinels name.
func (w *World) AddServer(name string) *Node {
	n := w.addNode(name, nil)
	if w.master == "" {
		w.master = name
	}
	return n
}

// AddSentinel adds a Sentinel, which names the master and announces another one.
func (w *World) AddSentinel(name string) *Node {
	w.sentinel = w.addNode(name, w.sentinelReply)
	return w.sentinel
}

func (w *World) addNode(name string, sentinel func([]string) any) *Node {
	n := &Node{w: w, name: name, address: fmt.Sprintf("10.0.0.%d:6379", len(w.nodes)+1)}
	n.server = simredis.New(simredis.Host{
		Now: n.micros, After: n.after, Propagate: n.ship, Acked: n.acked, Role: n.roleOf, Sentinel: sentinel,
	})
	w.nodes = append(w.nodes, n)
	return n
}

// Name is what faults and histories call the server.
func (n *Node) Name() string { return n.name }

// Address is where it listens.
func (n *Node) Address() string { return n.address }

// A clock is that of a server.
type clock struct {
	ahead time.Duration
	// faster is by how much it gains, since an instant.
	faster float64
	since  time.Duration
}

// micros is the server's time.
func (n *Node) micros() int64 {
	now := n.w.now()
	ahead := n.clock.ahead + time.Duration(float64(now-n.clock.since)*n.clock.faster)
	return n.w.begin.Add(now + ahead).UnixMicro()
}

// after has something done by the server later.
func (n *Node) after(d time.Duration, do func()) (stop func()) {
	stopped := false
	n.w.after(d, func() {
		if !stopped {
			do()
		}
	})
	return func() { stopped = true }
}

// roleOf is what the server says of replication.
func (n *Node) roleOf() simredis.Role {
	var r simredis.Role
	if n.master != nil {
		r.MasterHost, r.MasterPort = hostPort(n.master.address)
		r.LinkUp = !n.syncing && !n.master.down
		return r
	}
	for _, replica := range n.replicas {
		host, port := hostPort(replica.node.address)
		r.Replicas = append(r.Replicas, simredis.Replica{Host: host, Port: port, Offset: replica.acked})
	}
	return r
}

func hostPort(address string) (string, int) {
	host, port, _ := net.SplitHostPort(address)
	number, _ := strconv.Atoi(port)
	return host, number
}

// crash ends the process. What clients have sent and not been answered is lost.
func (n *Node) crash(keep bool) {
	n.down = true
	n.role++
	n.hangUp()
	n.server.Crash(keep)
}

// hangUp resets the connections of all clients.
func (n *Node) hangUp() {
	for len(n.conns) > 0 {
		n.conns[0].reset()
	}
}

// restart begins the process again.
func (n *Node) restart() {
	n.down = false
	if n.cluster != nil {
		n.cluster.boot(n.w.now())
	}
	if n.master != nil {
		n.follow(n.master)
	}
	for _, r := range slices.Clone(n.replicas) {
		if r.node.master == n {
			r.node.follow(n)
		}
	}
}
