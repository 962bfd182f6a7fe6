// Package lock says what a distributed lock is, and makes complete ones on
// Redis.
//
// A [Locker] grants a lock by name, and a [Hold] is the handle on the grant: it
// says until when the holder may believe that it holds ([Lease.Expires],
// [Hold.Lost], [Hold.Context]), and extends or releases the grant. Anything with
// a [Keeper] can hand out holds, so other locks than those of this package fit
// as well.
//
// A [Client] keeps its locks on a Redis server, a Sentinel deployment or a
// cluster of version 5 or later; package lock itself needs no more than Lua
// scripts, expiry and publish/subscribe there. [Mutex] is its plain lock.
//
// # Which guarantees hold under which failure
//
// As long as one Redis server keeps its data, and no clock runs faster than
// [Config.Drift] allows, two owners never hold a [Mutex] at the same time as
// long as both look at [Lease.Expires]: whatever happens to the network or to
// either of the two, and however late a reply arrives or a request is repeated.
// A holder that pauses for longer than its lease, or doesn't look, may still
// work when the next one has begun; a lock without a fencing token can't
// prevent that. A lost reply, a lost connection and a cancelled call leave at
// most a grant that ends with its lease.
//
// A server that restarts without its data, evicts keys, or is replaced by a
// replica that hasn't received a grant, forgets that grant: the next owner
// gets the lock while the former still believes until its Expires. With
// [Config.ReplicaAcks] a grant counts only once that many replicas have it,
// which leaves the failover to a replica that was not among them, and the
// restart of a replica without its data. A server that is cut off, but goes on
// serving, then refuses; without it, both sides of the cut may grant.
//
// Liveness: a lock whose holder died is free when its lease ends. Waiters ask
// again every few seconds at the latest, even where no message reaches them.
package lock
