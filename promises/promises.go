// Package promises says what a lock promises: to a driver's harness, to the workloads
// that use it, to the checks of its driver, and to the reports of its runs.
package promises

// Promises are what a lock says of itself. What is promised is judged and checked, and a run lists
// what is not. The zero value promises a mutex with a lease, and no more.
type Promises struct {
	// Kind of lock: "mutex", which empty means as well, "rw" or "semaphore".
	Kind string `json:"kind,omitempty"`
	// Store is what the lock is on: "etcd" or "zookeeper"; empty means Redis.
	Store string `json:"store,omitempty"`
	// Extend says that a hold can be extended.
	Extend bool `json:"extend,omitempty"`
	// Lost says that the holder is told when a hold is lost.
	Lost bool `json:"lost,omitempty"`
	// Token says that each grant has a fencing token.
	Token bool `json:"token,omitempty"`
	// Reentrant says that an owner may acquire a lock again that it holds.
	Reentrant bool `json:"reentrant,omitempty"`
	// Downgrades says of a lock of kind "rw" that an owner that writes may be granted it to read as well, and go on as a
	// reader.
	Downgrades bool `json:"downgrades,omitempty"`
	// Several says of a semaphore that an owner may have several permits, of one request or of several.
	Several bool `json:"several,omitempty"`
	// Fair says that waiters are granted the lock in the order of their requests.
	Fair bool `json:"fair,omitempty"`
	// Place says that each grant names its place in the queue of waiters, which a driver can't.
	Place bool `json:"-"`
	// Wait says that the library itself waits for a lock that is held.
	Wait bool `json:"wait,omitempty"`
	// Cancel says that the library gives a request up where its client does, and tells what came of it.
	Cancel bool `json:"cancel,omitempty"`
	// Watchdog says that a hold without a lease is extended until it is released.
	Watchdog bool `json:"watchdog,omitempty"`
	// HandsOver says that the library may grant a lock without asking a server, to a
	// client of a process that has it.
	HandsOver bool `json:"hands_over,omitempty"`
	// Quorum says that the lock is on a majority of several servers that know nothing of
	// each other, as Redlock's is. Only such a lock can be on topology independent.
	Quorum bool `json:"quorum,omitempty"`
	// ReleaseTells says that a release of a lock that is not held fails. Without
	// it, an "ok" to a release may also mean that there was nothing to release.
	ReleaseTells bool `json:"release_tells,omitempty"`
	// ReplicaAcks says that a grant can wait for replicas to acknowledge it, which a driver is not asked for.
	ReplicaAcks bool `json:"-"`
}

// Full adds what locks in Go usually promise: an extension, a notice of a loss, a release that tells, and a wait.
func Full(p Promises) Promises {
	p.Extend, p.Lost, p.ReleaseTells, p.Wait = true, true, true, true
	return p
}

// The names of what a lock may leave unpromised, in the record of a run.
const (
	NoAcks         = "replica-acks"
	NoDowngrades   = "downgrades"
	NoExtend       = "extend"
	NoLost         = "lost"
	NoPlace        = "place"
	NoReleaseTells = "release-tells"
	NoSeveral      = "several"
	NoToken        = "token"
)

// A Gap is something that a lock may leave unpromised.
type Gap struct {
	Name string
	// Text says what it is, and what comes of its absence; empty: nothing that a reader has to know.
	Text string
	has  func(Promises) bool
}

// Gaps lists all, in order of name.
func Gaps() []Gap {
	return []Gap{
		{NoDowngrades, "a writer that goes on as a reader (none does)", func(p Promises) bool { return p.Kind != "rw" || p.Downgrades }},
		{NoExtend, "extension (no client extends)", func(p Promises) bool { return p.Extend }},
		{NoLost, "a notice of a loss (a hold counts until its lease ends)", func(p Promises) bool { return p.Lost }},
		{NoPlace, "places in a queue (the order of waiters is not judged)", func(p Promises) bool { return p.Place }},
		{NoReleaseTells, "a refusal of a release of what is not held (an ok after the lease counts as unknown)", func(p Promises) bool { return p.ReleaseTells }},
		{NoAcks, "", func(p Promises) bool { return p.ReplicaAcks }},
		{NoSeveral, "several permits of one owner (each client asks for one)", func(p Promises) bool { return p.Kind != "semaphore" || p.Several }},
		{NoToken, "fencing tokens (their order is not judged)", func(p Promises) bool { return p.Token }},
	}
}

// Missing are the names of what is not promised.
func (p Promises) Missing() []string {
	var none []string
	for _, g := range Gaps() {
		if !g.has(p) {
			none = append(none, g.Name)
		}
	}
	return none
}

// TextOf says what the gap of a name comes to; empty: nothing.
func TextOf(name string) string {
	for _, g := range Gaps() {
		if g.Name == name {
			return g.Text
		}
	}
	return ""
}
