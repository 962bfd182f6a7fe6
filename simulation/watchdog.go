package simulation

import (
	"fmt"
	"os"
	"runtime"
	"time"
)

// A Watchdog ends a process in which a run hangs. Time stands still in a bubble in which a
// goroutine waits for a mutex, or for something outside of the bubble, and nothing in the
// bubble can notice that.
type Watchdog struct {
	limit time.Duration
	hangs func(what string, goroutines []byte)
}

// NewWatchdog makes one for runs that take so long at most, by the real clock. When one
// takes longer, hangs is given what ran and the
// stacks of all goroutines; nil writes them to the standard error and ends the process.
func NewWatchdog(limit time.Duration, hangs func(what string, goroutines []byte)) *Watchdog {
	if hangs == nil {
		hangs = func(what string, goroutines []byte) {
			fmt.Fprintf(os.Stderr, "simulation: %s hangs: more than %v a run passed by the real clock\n\n%s", what, limit, goroutines)
			os.Exit(hangCode) //nolint:forbidigo // nothing else ends a bubble that hangs
		}
	}
	return &Watchdog{limit: limit, hangs: hangs}
}

// hangCode is the exit code of a process in which a run hangs: that of a failure of the
// harness.
const hangCode = 255

// Guard has what runs until the function that it returns is called watched. It must be
// called outside of a bubble, and says how many runs there are. A nil watchdog watches
// nothing.
func (w *Watchdog) Guard(what string, runs time.Duration) (done func()) {
	if w == nil {
		return func() {}
	}
	timer := time.AfterFunc(w.limit*runs, func() {
		stacks := make([]byte, 1<<20)
		w.hangs(what, stacks[:runtime.Stack(stacks, true)])
	})
	return func() { timer.Stop() }
}
