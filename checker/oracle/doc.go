// Package oracle judges small histories by brute force. It is for tests only: it says what the judge of package checker
// has to answer, and knows nothing of how the judge decides.
//
// It is written from docs/history-format.md and docs/what-is-checked.md alone. The search tries every order of the effects
// that the documents allow, with each of the instants at which a lease may end and with every unknown outcome, and keeps
// no other rule than the table of effects. It is meant to be read beside that table.
//
// A [Generator] makes small histories of all kinds of locks, [Opinion.Compare] says where a report differs from what the
// documents say, and [Shrink] makes a history that shows a difference as small as it gets.
//
// The search is exhaustive, so that the histories are bounded: 31 operations and 12 grants on each of up to three locks of
// different kinds, and 7 clients. Requests may have a lease or none, clients may share an owner or have none with a name,
// up to a third of the outcomes are unknown, and stamps are on a grid, so that many are the same: of one owner where their
// order does not matter. Half of the histories have no more than 4 clients with two sessions each on a lock. Tests of the
// checker also judge them by several clocks, and after others of many lengths; what a reader has to refuse is tested here.
package oracle
