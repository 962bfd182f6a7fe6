package scenarios

import (
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/topologies"
)

// Divided are the links that a partition concerns.
func Divided(t topologies.Topology, fault, target string) ([]topologies.Link, error) {
	links, _, err := divided(t, fault, target, nil)
	return links, err
}

// Unnamed asks l for locks without an owner, and has o told under the owners that
// are claimed what the observer is told that it returns.
func Unnamed(o lock.Observer, l lock.Locker) (lock.Locker, lock.Observer) {
	a := newUnnamed(o)
	return a.of(l), a
}

// KeyOf is a key in the slot of a lock, as faults take it.
func (l Lock) KeyOf(name string) string { return l.keyOf(name) }

// Alone reports whether faults of slots don't concern the lock: it lives on a single
// server, on independent ones, or on none.
func (l Lock) Alone() bool { return l.single || l.independent || l.inside }

// Sends are the commands that faults wait for, with "|" between them.
func (l Lock) Sends() string { return l.commands() }
