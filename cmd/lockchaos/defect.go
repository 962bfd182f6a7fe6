package main

import (
	"fmt"
	"io"
	"runtime/debug"

	"github.com/lockchaos/lockchaos/internal/crew"
)

// maxStack bounds the stack of a goroutine, in bytes: an endless recursion ends
// before it has taken the memory of the machine.
const maxStack = 64 << 20

// guarded runs the program so that no defect of its own reads as a verdict. By
// itself Go ends a program that panics with the code 2, which is that of
// "unknown". Here a panic gives the code 255 and says where it was. What can't be
// recovered from (a stack that is too deep, no memory left, a panic in a
// goroutine that nothing waits for) ends the program by the signal SIGABRT, which
// a shell shows as 134.
func guarded(stderr io.Writer, run func() int) (code int) {
	debug.SetTraceback("crash")
	debug.SetMaxStack(maxStack)
	defer func() {
		switch p := recover().(type) {
		case nil:
			return
		case *crew.Panic:
			defect(stderr, p.Value, p.Stack)
		default:
			defect(stderr, p, debug.Stack())
		}
		code = exitHarness
	}()
	return run()
}

func defect(stderr io.Writer, value any, stack []byte) {
	fmt.Fprintf(stderr, "lockchaos: this is a defect of lockchaos and says nothing of what it looked at: %v\n\n%s", value, stack)
}
