package locks

import "github.com/lockchaos/lockchaos/lock"

// Unnamed asks l for locks without an owner, and has o told under the owners that
// are claimed what the observer is told that it returns.
func Unnamed(o lock.Observer, l lock.Locker) (lock.Locker, lock.Observer) {
	a := newUnnamed(o)
	return a.of(l), a
}
