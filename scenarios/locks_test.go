package scenarios_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/scenarios"
)

// What a random run lies in wait for is what the lock under test sends, or is sent.
func TestFaultsWaitForWhatALockSays(t *testing.T) {
	for _, tt := range []struct{ lock, fault string }{
		{"correct-queue", "delay-command"},
		{"broken-stale-waiter", "delay-reply"},
		{"redsync", "delay-command"},
		{"redislock", "delay-command"},
		{"mutex", "drop-message"},
		{"semaphore-permit", "drop-message"},
		{"rwmutex", "drop-message"},
		{"broken-first-member", "drop-message"},
		{"broken-one-more-permit", "drop-message"},
		{"broken-uncounted-reentry", "drop-message"},
		{"broken-unseen-readers", "drop-message"},
	} {
		t.Run(tt.lock, func(t *testing.T) {
			t.Parallel()
			setup := setup(t)
			r := scenarios.Random{Topology: "single", Lock: tt.lock, Faults: tt.fault, Length: 2 * time.Second}
			r.Workload.Wait = r.Wait()
			require.NoError(t, r.Run(t.Context(), setup))
			run, h, _ := judged(t, setup.Dir)
			require.NotEmpty(t, run.Plan)
			require.Empty(t, failedFaults(h))
		})
	}
	r := scenarios.Random{Topology: "single", Lock: "broken-queue-jumping", Faults: "drop-message", Length: time.Second}
	require.ErrorContains(t, r.Validate(), "nobody subscribes", "its waiters poll")
}
