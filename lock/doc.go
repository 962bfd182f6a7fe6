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
// scripts, expiry, sorted sets and publish/subscribe there.
//
// # Which lock when
//
//   - [Mutex]: one owner at a time. Re-entrant, kept alive by a watchdog or held
//     for a lease; a release hands it to a waiter. The plain choice.
//   - [FencedMutex]: the same, and every grant has a growing token, which a
//     resource can check: see package fence. The choice where work that goes on
//     after the lease would do harm.
//   - [FairMutex]: as a Mutex, and waiters are served in the order in which they
//     arrived at the server. Each of them costs a request every third of
//     [Config.Heartbeat].
//   - [SpinMutex]: the same, and waiters subscribe to nothing. For very many
//     names, and users who may not subscribe.
//   - [RWMutex]: many read, one writes; re-entrant on both sides.
//   - [MultiLock]: all of several locks, on one server or on several.
//   - [Redlock]: one owner at a time on several servers that know nothing of
//     each other. Survives the loss of a minority of them.
//   - [Semaphore]: at most n at a time. Permits that are leased end with their lease, or are
//     kept by a watchdog. Those that are taken for good a process that died keeps: for where every
//     taker surely gives back.
//   - [CountDownLatch]: going on once n things have happened. It has no owner and
//     no lease.
//
// # Which guarantees hold under which failure
//
// As long as one Redis server keeps its data, and no clock runs faster than
// [Config.Drift] allows, two owners never hold a [Mutex] at the same time as
// long as both look at [Lease.Expires]: whatever happens to the network or to
// either of the two, and however late a reply arrives or a request is repeated.
// The same is true of two owners of a [RWMutex] one of whom writes, and of more
// holds of a [Semaphore] than it has permits. A holder that pauses for
// longer than its lease, or doesn't look, may still work when the next one has
// begun; a lock without a fencing token can't prevent that. A lost reply, a lost
// connection and a cancelled call leave at most a grant that ends with its
// lease.
//
// A server that restarts without its data, evicts keys, or is replaced by a
// replica that hasn't received a grant, forgets that grant: the next owner
// gets the lock while the former still believes until its Expires. With
// [Config.ReplicaAcks] a grant counts only once that many replicas have it,
// which leaves the failover to a replica that was not among them, and the
// restart of a replica without its data. A server that is cut off, but goes on
// serving, then refuses; without it, both sides of the cut may grant. A server's
// clock that is set forward, or that of a promoted replica which is ahead, ends
// leases that much sooner, and so does a holder's machine that is suspended: its
// monotonic clock stands still during that time.
//
// A [Redlock] keeps its promise while each server that takes part keeps its data
// or stays away, after it lost them, for the longest lease.
//
// Liveness: a lock whose holder died is free when its lease ends. Waiters ask
// again every few seconds at the latest, even where no message reaches them.
// Waiters of a [Mutex] that died cost the others nothing where the server sees that
// their connection is gone, and else one lease, or five seconds of a watchdog's, however many of one client died
// together. A waiter of a [FairMutex] that died costs the others one heartbeat,
// however many of them died together, as one of a semaphore does. A
// semaphore or a latch that a server forgot is an error, never an open door. Nothing
// but the size of a [Semaphore] and the count of a [CountDownLatch] stays on a
// server for ever.
package lock
