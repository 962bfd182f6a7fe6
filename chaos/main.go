package chaos

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/lockchaos/lockchaos/harness"
)

// served are the names of the locks that [Main] was given.
var served atomic.Pointer[[]string] //nolint:gochecknoglobals // TestMain is one for the whole process

// servedByMain reports whether the test binary can be a client of that lock.
func servedByMain(name string) bool {
	known := served.Load()
	return known != nil && slices.Contains(*known, name)
}

// Main runs the tests, or, where a scenario needs clients that are processes of
// their own, is such a client of one of the locks. It is for TestMain:
//
//	func TestMain(m *testing.M) { chaos.Main(m, orders) }
func Main(m *testing.M, locks ...Lock) {
	if len(os.Args) == 2 && os.Args[1] == workerArgument {
		silence()
		for i, l := range locks {
			locks[i] = withLease(l)
		}
		if err := serveWorker(context.Background(), os.Stdin, os.Stdout, locks); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		return
	}
	known := harness.Locks(locks).Names()
	served.Store(&known)
	m.Run()
}
