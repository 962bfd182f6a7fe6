package simulation

import (
	"fmt"
	"os"
	"runtime"
	"time"
)

const (
	// stillLimit is how long, by the real clock, nothing may happen in the world of a run.
	// A run takes milliseconds, and on a machine that is busy with other work some hundred
	// times that.
	stillLimit = 20 * time.Second
	// runLimit is how long a run may take in all, by the real clock: a client that asks
	// again and again after the end of its run has something happen for ever.
	runLimit = 5 * time.Minute
	// hangCode is the exit code of a process in which a run hangs: that of a failure of the
	// harness.
	hangCode = 255
)

// endProcess says that a run hangs, and ends the process.
func endProcess(why string, goroutines []byte) {
	fmt.Fprintf(os.Stderr, "simulation: %s\n\n%s", why, goroutines)
	os.Exit(hangCode) //nolint:forbidigo // nothing else ends a bubble that hangs
}

// guard watches a run until the function that it returns is called. It must be called
// outside of the bubble: time stands still in a bubble in which a goroutine waits for a
// mutex, or for something outside of the bubble, and nothing inside can notice that. What
// counts is whether something happens, and not how long the run takes, since other work on
// the machine makes that long, too: events tells how much has happened. If the run hangs,
// hangs is given the reason and the stacks of all goroutines.
func guard(run string, events func() int64, hangs func(why string, goroutines []byte)) (done func()) {
	begin, moved, last := time.Now(), time.Now(), events()
	look := func() (hung bool) {
		if now := events(); now != last {
			moved, last = time.Now(), now
		}
		var why string
		switch {
		case time.Since(begin) >= runLimit:
			why = fmt.Sprintf("%s does not end: it has taken %v by the real clock", run, runLimit)
		case time.Since(moved) >= stillLimit:
			why = fmt.Sprintf("%s hangs: nothing happened in it for %v by the real clock. Simulated time stands still while a goroutine waits for a mutex, a real network, "+
				"or a channel, a timer or a goroutine from before the run", run, stillLimit)
		default:
			return false
		}
		stacks := make([]byte, 1<<20)
		hangs(why, append([]byte(waiting()+"\n\n"), stacks[:runtime.Stack(stacks, true)]...)) // those of the run come first
		return true
	}
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		timer := time.NewTicker(stillLimit / 4)
		defer timer.Stop()
		for {
			select {
			case <-over:
				return
			case <-timer.C:
				if look() {
					return
				}
			}
		}
	}()
	return func() {
		close(over)
		<-ended
	}
}
