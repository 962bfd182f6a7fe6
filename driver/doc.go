// Package driver puts a lock of any language under test.
//
// A driver is a program that wraps a lock library. [Start] starts
// it and speaks version 2 of the driver protocol, or 1, with it: one JSON object a
// line, in both directions, over the Unix socket that LOCKCHAOS_SOCKET names or
// else over the standard input and output. A [Driver] is a [lock.Locker], so
// the same workloads drive a lock in Python and one in Go. [Serve] is the other
// side of the protocol: it makes a driver of a [lock.Locker].
//
// One rule decides what is recorded: a driver gives a definite answer only when
// it is certain. "ok" and "fail" are definite, and all else is unknown: "info",
// an answer that does not come, a driver that died, an answer that breaks the
// protocol. After an answer that breaks the protocol every request is refused,
// and [Driver.Err] says why; no run with such a driver is valid.
//
// docs/driver-protocol.md describes the messages.
package driver
