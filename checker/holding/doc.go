// Package holding infers from a history who held which lock when.
//
// A [Record] is a whole history in little memory. [Record.Derive] reads the answers that each
// owner of each [Lock] was given, and makes of them the holds, each with the time for which it
// is certain; the answers that no hold explains; and the owners of whom the history does not
// say enough, with the reason. The checkers judge these, and reports draw them.
package holding
