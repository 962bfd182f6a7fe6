package harness_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/internal/locks"
	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/topologies"
)

// The faults of messages that a random run arms wait for what the lock under test sends, or is sent.
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
			setup := runtest.Setup(t)
			r := harness.RandomRun{Topology: "single", Lock: runtest.Lock(tt.lock), Faults: tt.fault, Length: time.Second}
			r.Workload.Wait = r.Wait()
			require.NoError(t, r.Run(t.Context(), setup))
			run, h, _ := runtest.Judged(t, setup.Dir)
			require.NotEmpty(t, run.Plan)
			require.Empty(t, runtest.FailedFaults(h))
		})
	}
}

// All keys of a lock are in the slot of the key that the lock declares, at which
// faults of a cluster are aimed, and it sends the commands that it declares, for which
// others wait.
func TestLocksDeclareTheirKeysAndCommands(t *testing.T) {
	t.Parallel()
	const name = "lock-2"
	d := runtest.Start(t, runtest.Setup(t).Backend, topologies.Single, topologies.Options{})
	tag := func(key string) string {
		if _, rest, ok := strings.Cut(key, "{"); ok {
			key, _, _ = strings.Cut(rest, "}")
		}
		return key
	}
	for _, l := range locks.All() {
		if l.Single || l.Independent || l.InProcess != nil || l.Store != "" {
			continue
		}
		servers := topologies.Clients(d.ClientOptions("zone-a"))
		rdb := d.Server("redis-1").Observer()
		require.NoError(t, rdb.ConfigResetStat(t.Context()).Err())
		locker, closeLocker, err := l.Open(servers, harness.LockOptions{})
		require.NoError(t, err, l.Name)
		h, err := locker.Acquire(t.Context(), name, lock.Options{Owner: "a", Lease: time.Minute})
		require.NoError(t, err, l.Name)
		keys, err := rdb.Keys(t.Context(), "*").Result()
		require.NoError(t, err)
		require.NotEmpty(t, keys, l.Name)
		for _, key := range keys {
			require.Equal(t, tag(l.KeyOf(name)), tag(key), "%s: key %s", l.Name, key)
		}
		_ = h.Release(t.Context())
		sent := rdb.Info(t.Context(), "commandstats").Val()
		for command := range strings.SplitSeq(l.CommandPattern(), "|") {
			require.Contains(t, sent, "cmdstat_"+strings.ToLower(command)+":", l.Name)
		}
		closeLocker()
		for _, rdb := range servers {
			require.NoError(t, rdb.Close())
		}
		require.NoError(t, rdb.FlushAll(t.Context()).Err())
	}
}
