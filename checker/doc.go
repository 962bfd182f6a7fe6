// Package checker judges a recorded history. Each [Checker] judges one property: its
// verdict is valid, invalid or unknown, and its violations point at the events that
// prove them. [Check] judges a history, [CheckRun] one with what was recorded of its run.
//
// The package imports nothing that makes histories: any program that writes the events of
// package history can have them judged. It logs nothing.
package checker
