// Package simredis is a Redis server as a state machine, without sockets,
// goroutines or a clock of its own. It stands in for redis-server in
// simulations: they give it commands and the time, and it returns replies, and
// what it wrote as data for its replicas.
//
// A [Server] is one process of Redis 7.0. What surrounds it is given in a
// [Host]: the clock, timers, the replicas and the rest of a cluster. A [Session]
// is one connection: requests are given to [Session.Take], and the replies come
// out of the function that was given to [Server.Open]. [Server.Do] runs a
// command without a connection.
//
// Everything that a server does, it does within a call of one of its methods.
// A server and its sessions may be used by one goroutine at a time.
package simredis
