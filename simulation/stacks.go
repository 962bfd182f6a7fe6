package simulation

import (
	"runtime"
	"sync"
)

// How many goroutines stand still for [deepStacks], and how much of their stacks they use,
// in KiB: somewhat less than 8, since that is rounded up to a power of two.
const (
	deepGoroutines = 100
	deepKiB        = 14
)

// deepStacks has new goroutines of the process begin with a stack of 8 KiB, until end is
// called. The runtime begins with the average of what goroutines used when memory was last
// collected; between two runs there are hardly any, so that the goroutine of each request
// began with 2 KiB and was copied twice, which was an eighth of the time of a run.
func deepStacks() (end func()) {
	stop := make(chan struct{})
	var ready sync.WaitGroup
	ready.Add(deepGoroutines)
	for range deepGoroutines {
		go occupy(deepKiB, func() {
			ready.Done()
			<-stop
		})
	}
	ready.Wait()
	runtime.GC()
	return sync.OnceFunc(func() { close(stop) })
}

// occupy calls do with so many KiB of the stack in use.
//
//go:noinline
func occupy(kib int, do func()) byte {
	var b [1 << 10]byte
	if kib == 0 {
		do()
		return b[0]
	}
	return b[kib] + occupy(kib-1, do)
}
