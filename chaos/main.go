package chaos

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
)

// served are the names of the locks that [Main] was given, as whose clients the test binary can serve.
var served []string //nolint:gochecknoglobals // TestMain is one for the whole process, and sets it before any test

// Main runs the tests, or, where a scenario needs clients that are processes of
// their own, is such a client of one of the locks. It is for TestMain:
//
//	func TestMain(m *testing.M) { chaos.Main(m, orders) }
func Main(m *testing.M, locks ...Lock) {
	if len(os.Args) == 2 && os.Args[1] == harness.WorkerCommand {
		silence()
		g := &guard{}
		for i, l := range locks {
			locks[i] = g.of(l)
		}
		if err := harness.ServeWorker(context.Background(), os.Stdin, os.Stdout, locks); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		for _, problem := range g.noted() {
			fmt.Fprintln(os.Stderr, problem)
		}
		return
	}
	served = harness.Locks(locks).Names()
	m.Run()
}

// clientPanics are the panics of the lock that clients left in their logs, each a process of
// its own, with what is behind them there.
func clientPanics(dir string) (panics []string) {
	logs, err := filepath.Glob(history.Dir(dir).Path(history.LogsDir, "client-*.log"))
	if err != nil {
		return nil
	}
	for _, path := range logs {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		if at := panicLine.FindIndex(text); at != nil {
			client := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "client-"), ".log")
			panics = append(panics, fmt.Sprintf("client %s: %s", client, text[at[0]:min(len(text), at[0]+maxStack)]))
		}
	}
	return panics
}

// panicLine begins the stack of a panic: one that was recovered, or one that ended the client.
var panicLine = regexp.MustCompile("(?m)^(panic: |fatal error: |" + panicked + ")")

// maxStack bounds what is told of a client's log.
const maxStack = 8 << 10
