package workload_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/lock/memory"
	"github.com/lockchaos/lockchaos/workload"
)

// A run with few grants has what its workload is there for, also where only some holders do
// it. Without [workload.Config.Soon] one of these 50 seeds has no late release.
func TestAShortRunHasWhatOnlySomeHoldersDo_NoRace(t *testing.T) {
	for kinds, want := range map[string]string{
		"late-release":                         history.MetExpiries,
		"contended,release-twice,late-release": history.MetExpiries,
		"crash":                                history.MetCrashes,
		"contended,crash,bursts":               history.MetCrashes,
	} {
		t.Run(kinds, func(t *testing.T) {
			for seed := range uint64(50) {
				c := workload.Config{
					Kinds: strings.Split(kinds, ","), Seed: seed, Soon: true, Clients: 8, Locks: 1,
					Lease: time.Second, Hold: 20 * time.Millisecond, Wait: 500 * time.Millisecond,
				}
				h := record(t, c, 3*time.Second, memory.New())
				require.Positive(t, met(t, checker.Check(t.Context(), h))[want], "seed %d", seed)
			}
		})
	}
}
