// Package causes measures what made violations: it has a run played again up to them, with and
// without the faults that were in effect, and with a lock that is correct, and counts the runs that
// show them. What cannot be played again has no cause, only faults that were in effect at the time.
package causes
