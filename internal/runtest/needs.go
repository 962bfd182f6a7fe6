package runtest

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/lockchaos/lockchaos/topologies/process"
)

// What the environment asks of tests whose servers this machine lacks. Such a test is skipped if it asks nothing.
const (
	requireVariable    = "LOCKCHAOS_TEST_REQUIRE"    // 1: a missing program is a failure, and so is a missing image of an engine that answers
	containersVariable = "LOCKCHAOS_TEST_CONTAINERS" // 1: so is a Docker engine that does not answer, and a missing Compose
	skippedVariable    = "LOCKCHAOS_TEST_SKIPPED"    // a file that gets a line for each test that is skipped: its package and why
)

// NeedStore skips the test where a store has no server program.
func NeedStore(tb testing.TB, store string) {
	tb.Helper()
	NoShort(tb)
	if _, err := process.Find(tb.Context(), store); err != nil {
		Lacks(tb, err)
	}
}

// NeedCompiler skips the test where clocks can't be changed.
func NeedCompiler(tb testing.TB) {
	tb.Helper()
	NoShort(tb)
	if _, err := process.FindCompiler(); err != nil {
		Lacks(tb, err)
	}
}

// NoShort skips the test with -short.
func NoShort(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("needs real servers; -short leaves them out")
	}
}

// Lacks ends a test because this machine lacks a program: it is skipped, or fails where LOCKCHAOS_TEST_REQUIRE is 1.
func Lacks(tb testing.TB, why error) {
	tb.Helper()
	end(tb, why, requireVariable)
}

// LacksEngine ends a test because no Docker engine answers, or because there is no Compose: it is skipped, or
// fails where LOCKCHAOS_TEST_CONTAINERS is 1. A machine of a user need not have them, one of continuous integration must.
func LacksEngine(tb testing.TB, why error) {
	tb.Helper()
	end(tb, why, containersVariable)
}

func end(tb testing.TB, why error, required string) {
	tb.Helper()
	if os.Getenv(required) == "1" {
		tb.Fatalf("%s is 1, and: %v", required, why)
	}
	if file := os.Getenv(skippedVariable); file != "" {
		if err := noteSkipped(file, why); err != nil {
			tb.Fatal(err)
		}
	}
	tb.Skip(why)
}

// noteSkipped appends a line, with one write: those of packages that run side by side do not mix.
func noteSkipped(file string, why error) error {
	of := filepath.Base(os.Args[0])
	if info, ok := debug.ReadBuildInfo(); ok {
		of = strings.TrimPrefix(strings.TrimSuffix(info.Path, ".test"), info.Main.Path+"/")
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("note a skipped test: %w", err)
	}
	defer f.Close()
	if _, err := fmt.Fprintf(f, "%s: %s\n", of, strings.Join(strings.Fields(why.Error()), " ")); err != nil {
		return fmt.Errorf("note a skipped test: %w", err)
	}
	return nil
}
