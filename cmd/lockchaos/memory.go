package main

import (
	"context"
	"fmt"
	"math"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// easeMemory is how much memory check, report and compare take of the machine,
	// in bytes, before the collector works harder and the search gives up, where
	// the user sets no other limit by GOMEMLIMIT. At a third more the program ends.
	easeMemory = 768 << 20
	// measureEvery is how often the memory is measured.
	measureEvery = 2 * time.Millisecond
)

// An easeError is why the search gives up: how much memory it may take, in bytes.
type easeError uint64

func (e easeError) Error() string {
	return fmt.Sprintf("it takes more than %d MB of memory to search for an order of its operations", e>>20)
}

// A memoryError is why a command ended: how much memory it may take, in bytes.
type memoryError uint64

func (e memoryError) Error() string {
	return fmt.Sprintf("it takes more than %d MB of memory, the most that lockchaos takes (GOMEMLIMIT sets another limit)", e>>20)
}

// bounded runs work that may take much memory for some input. It cancels the
// context at the first bound. At the second one it returns a [memoryError] without
// waiting for the work, which nothing can stop, and so it does when ctx ends: the program
// must end then.
func bounded(ctx context.Context, work func(context.Context) error) error {
	soft := debug.SetMemoryLimit(-1)
	if soft == math.MaxInt64 {
		soft = easeMemory
	}
	ease, most := uint64(max(soft, 0)), uint64(max(soft, 0)/3*4)
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(soft))
	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	done := make(chan error, 1)
	go func() { done <- work(working) }()
	tick := time.NewTicker(measureEvery)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-ctx.Done(): // what is read may be a pipe without a writer
			return context.Cause(ctx)
		case <-tick.C:
			switch taken := takenMemory(); {
			case taken > most:
				return memoryError(most)
			case taken > ease:
				stop(easeError(ease))
			}
		}
	}
}

// takenMemory is what the program has of the machine's memory, in bytes.
func takenMemory() uint64 {
	taken := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(taken)
	return taken[0].Value.Uint64() - taken[1].Value.Uint64()
}
