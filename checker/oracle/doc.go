// Package oracle judges small histories by brute force. It is for tests only:
// it says what the judge of package checker has to answer, and knows nothing
// of how the judge decides.
//
// It is written from docs/history-format.md and docs/what-is-checked.md alone.
// [Possible] tries every order of the effects that the documents allow, with
// each of the instants at which a lease may end and with every unknown outcome,
// and keeps no other rule than the table of effects. It is meant to be read
// beside that table.
//
// [Random] makes small histories of all kinds of locks, [Compare] says where a
// report differs from what the documents say, and [Shrink] makes a history that
// shows a difference as small as it gets.
package oracle
