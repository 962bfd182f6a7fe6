// Package bench measures locks side by side: what an acquire and a release cost,
// how fast a lock is handed over, how fair it is, and what the servers have to do
// for it.
//
// The systems of a workload take turns in slices of a fraction of a second, in a
// random order in every round, so that a drift of the machine hits all alike. Each
// is compared with a baseline of the same round: the least that does the job on Redis
// with the same client. Mutual exclusion is checked all the while, and a lock that
// violates it is not ranked.
package bench
