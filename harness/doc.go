// Package harness has what a run of a lock under test is made of. [LockSpec] is
// the lock itself.
package harness
