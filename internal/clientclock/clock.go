// Package clientclock has the clock of a client's machine, which may be wrong. Locks with a planted bug
// take it, so that tests and simulations can set it; the clock of a process can't be set for one of its clients.
package clientclock

import (
	"math"
	"sync/atomic"
	"time"
)

// A Clock is the clock of the machine that a client runs on. The zero Clock is right.
// It is safe for concurrent use.
type Clock struct {
	step atomic.Int64  // nanoseconds
	slow atomic.Uint64 // the bits of a float64
}

// Step moves the wall clock, forward or back, as an administrator or a time
// service does. What measures lengths of time does not see it.
func (c *Clock) Step(d time.Duration) { c.step.Add(int64(d)) }

// Slow makes the clock lose that part of all time: 0.05 is three seconds a
// minute. The wall clock is not touched.
func (c *Clock) Slow(part float64) { c.slow.Store(math.Float64bits(part)) }

// Wall is the wall clock's time, without a monotonic reading.
func (c *Clock) Wall() time.Time { return time.Now().Round(0).Add(time.Duration(c.step.Load())) }

// Real is how long it really takes until the clock has counted d.
func (c *Clock) Real(d time.Duration) time.Duration {
	return time.Duration(float64(d) / (1 - math.Float64frombits(c.slow.Load())))
}
