// Package holding infers from a history who held which lock when.
//
// [Derive] reads the answers that each owner of each lock was given, and makes
// of them a [Holdings]: the holds, each with the time for which it is certain; the
// answers that no hold explains; and the owners of whom the history does not
// say enough, with the reason. The checkers judge holds, and the reports draw
// them.
package holding
