package locks_test

import (
	"cmp"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/conformance"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/locks"
	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/topologies"
)

func TestMain(m *testing.M) { runtest.Main(m) }

// checked reports whether what is checked of a lock in Go is about a lock: one that has one
// holder at a time, on Redis, and no planted bug. redsync-failfast cancels what takes votes back.
func checked(l harness.LockSpec) bool {
	return l.Store == "" && l.InProcess == nil && (l.Kind == "" || l.Kind == history.KindMutex) && l.Name != "redsync-failfast" && !strings.HasPrefix(l.Name, "broken-")
}

// Every lock that lockchaos has passes the checks that it makes of a lock in Go: ours, those of
// other libraries, and the twins of planted bugs. A change draws two of them by a seed, which
// LOCKCHAOS_LOCKS_SEED sets; nightly all are checked.
func TestLocksPassTheChecks(t *testing.T) {
	runtest.NeedStore(t, topologies.StoreRedis)
	drawn := slices.DeleteFunc(locks.All(), func(l harness.LockSpec) bool { return !checked(l) })
	require.Greater(t, len(drawn), 10)
	if !runtest.Nightly() {
		seed, err := strconv.ParseUint(cmp.Or(os.Getenv("LOCKCHAOS_LOCKS_SEED"), strconv.FormatUint(rand.Uint64(), 10)), 10, 64)
		require.NoError(t, err)
		rand.New(rand.NewPCG(seed, 0)).Shuffle(len(drawn), func(i, j int) { drawn[i], drawn[j] = drawn[j], drawn[i] })
		drawn = drawn[:2]
		t.Logf("LOCKCHAOS_LOCKS_SEED=%d draws %s", seed, strings.Join(drawn.Names(), " and "))
	}
	for _, l := range drawn {
		t.Run(l.Name, func(t *testing.T) {
			t.Parallel()
			require.NoError(t, conformance.Lock(t.Context(), runtest.Servers(), l, conformance.LockChecks(), func(o conformance.Outcome) {
				if o.Wrong != nil {
					t.Errorf("%s: %v", o.Name, o.Wrong)
				}
			}))
		})
	}
}
