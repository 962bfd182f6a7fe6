package topologies

import (
	"context"
	"time"
)

// An Instrumenter is a backend that can have its servers see another clock and
// another disk than they have. It costs them a library that is loaded into
// each, so that a run which needs neither goes without.
type Instrumenter interface {
	Backend
	// Instrumented is the same backend, whose deployments have [Clocks] and
	// [Disks].
	Instrumented() Backend
}

// A Clock is the wall clock that one server, or sentinel, sees.
type Clock interface {
	// Set makes the clock be ahead of the true time by offset from now on, and
	// run at a rate: 1 is that of the true time, 0 stands still. Set(0, 1)
	// makes it true again. It lasts when the server is started again.
	Set(offset time.Duration, rate float64) error
}

// A Disk is what keeps the append-only file of one server.
type Disk interface {
	// Stall makes every sync wait from now on, until it is mended.
	Stall() (mend func())
	// Stalled is how many syncs are waiting.
	Stalled() int
	// CutBack removes from the data of a killed server what it had written
	// and not synced, as a power cut does, and returns how many bytes that
	// were. It fails while the server runs, and where there is no append-only
	// file.
	CutBack(ctx context.Context) (lost int64, err error)
}
