// Package worker runs a client of a lock as an operating system's process of
// its own, so that it can be stopped and killed by itself, in the middle of
// whatever it does.
//
// The process is told over its standard input what to do ([Serve]), and answers
// over its standard output, in JSON lines: what it recorded, stamped by the
// monotonic clock that all processes of a machine have; what it wants of a
// resource, which stays with the harness; and how each order ended. [Start]
// is the harness's end of both.
package worker
