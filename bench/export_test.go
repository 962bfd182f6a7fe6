package bench

import (
	"os"
	"testing"

	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/process"
)

// NeedsRedis skips a test where no server can run, unless that is a failure.
func NeedsRedis(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("needs real servers; -short leaves them out")
	}
	if _, err := process.Find(tb.Context(), topologies.StoreRedis); err != nil {
		if os.Getenv("LOCKCHAOS_TEST_REQUIRE") == "1" {
			tb.Fatal(err)
		}
		tb.Skip(err)
	}
}
