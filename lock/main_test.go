package lock

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/lockchaos/lockchaos/lock/internal/require"
)

// These tests see the inside of the package. Those of what its users see are in the
// folder locktests.

func TestMain(m *testing.M) {
	logging.Disable() // go-redis writes to stderr what its errors say as well
	code := m.Run()
	for end := time.Now().Add(5 * time.Second); code == 0 && working() != ""; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			fmt.Fprintln(os.Stderr, "after all tests this package still has", working())
			code = 1
		}
	}
	os.Exit(code) //nolint:forbidigo // a test's main
}

// working returns the stack of a goroutine that runs code of this package, other than the one
// that asks; "" if there is none.
func working() string {
	stacks := make([]byte, 1<<20)
	all := strings.Split(string(stacks[:runtime.Stack(stacks, true)]), "\n\n")
	for _, stack := range all[1:] {
		if strings.Contains(stack, "lockchaos/lock.") {
			return stack
		}
	}
	return ""
}

// draws runs a test with random input a hundred times. A failure tells the seed, which
// LOCKCHAOS_TEST_SEED=7 draws again.
func draws(t *testing.T, test func(t *testing.T, rng *rand.Rand)) {
	t.Helper()
	first, count := uint64(time.Now().UnixMilli()), 100
	if text := os.Getenv("LOCKCHAOS_TEST_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
		first, count = seed, 1
	}
	for i := range count {
		seed := first + uint64(i)
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { test(t, rand.New(rand.NewPCG(seed, 0))) })
	}
}

// oneOf draws one of the choices.
func oneOf[T any](rng *rand.Rand, choices ...T) T { return choices[rng.IntN(len(choices))] }
