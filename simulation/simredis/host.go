package simredis

import "time"

// Host is what surrounds a server.
type Host struct {
	// Now is the server's clock, in microseconds since 1970. A command sees one
	// instant from its beginning to its end; so do a script and a transaction.
	Now func() int64
	// After has f called when d has passed, unless stop was called before. It
	// ends commands that block (WAIT, BLPOP).
	After func(d time.Duration, f func()) (stop func())
	// Propagate is told what a command wrote, at the end of the command. A
	// replica has all of a batch or nothing of it.
	Propagate func(b Batch)
	// Acked says how many replicas have acknowledged everything up to offset. Call
	// [Server.Acknowledged] when it changes.
	Acked func(offset int64) int64
	// Role is for INFO and ROLE.
	Role func() Role
	// Cluster is nil outside of Redis Cluster.
	Cluster *Cluster
	// Sentinel answers SENTINEL, whose arguments it is given, as Redis does; the
	// server is a sentinel then, and has no data.
	Sentinel func(args []string) any
	// Bus takes a message to the other nodes of a cluster, which are given it with
	// [Server.Deliver]; nil where it is the only one.
	Bus func(channel, message string)
}

// Batch is what one command, script or transaction wrote.
type Batch struct {
	// Start and End are offsets in the stream of replication, in bytes.
	Start, End int64
	// Commands are deterministic: SET with PX has become SET with PXAT.
	Commands [][]string
}

// Role is what a server says of replication.
type Role struct {
	// Master is the address that a replica follows; empty: it is a master.
	MasterHost string
	MasterPort int
	// LinkUp tells whether a replica is connected to its master.
	LinkUp bool
	// Replicas are those of a master.
	Replicas []Replica
}

// Replica is one that is connected to a master.
type Replica struct {
	Host   string
	Port   int
	Offset int64 // acknowledged
}
