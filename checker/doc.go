// Package checker judges a recorded history: one property a checker, a
// three-valued verdict each, and violations that point at the events that
// prove them.
//
// It knows nothing of how a history came about; whatever can write the events
// of package history can be judged. It logs nothing.
package checker
