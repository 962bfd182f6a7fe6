package harness_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/internal/traffic"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/workload"
)

// Faults of slots and commands in a random run meet the keys and commands that a
// foreign lock really uses.
func TestRandom_AimsAtAForeignLock(t *testing.T) {
	t.Parallel()
	setup := runtest.Setup(t)
	l := runtest.Lock("redislock")
	l.Key, l.Commands = nil, []string{"SETNX"} // which it never sends
	r := harness.RandomRun{
		Topology: "cluster", Servers: steady, Lock: l, Length: 5 * time.Second, Workload: workload.Config{Clients: 4},
		Plan: []faults.Step{
			{At: time.Second, For: time.Second, Fault: "migrate-slot", Params: map[string]string{"key": "lock-2"}},
			{At: 3 * time.Second, Fault: "drop-reply", Target: "zone-a>redis", Params: map[string]string{"command": "SETNX", "nth": "1", "then": "reset"}},
		},
		Options: harness.LockOptions{Watchdog: time.Second},
	}
	_, h, _ := runtest.Until(t, r, setup, checker.Valid, func(h *history.History, _ checker.Report) bool {
		return len(accepted(h, history.Inject)) == len(r.Plan)
	})
	for _, e := range accepted(h, history.Inject) {
		if e.Fault == "migrate-slot" {
			require.Contains(t, e.Value, fmt.Sprintf("slot %d ", traffic.KeySlot("redislock:"+e.Params["key"])))
		}
	}
}

// Of a lock that answers nothing, nothing is learnt, and no run of it is valid.
func TestRandom_OfALockThatAnswersNothing(t *testing.T) {
	t.Parallel()
	setup := runtest.Setup(t)
	l := runtest.Lock("redislock")
	l.Key, l.Commands = nil, []string{"SET"}
	l.Open = func([]redis.UniversalClient, harness.LockOptions) (lock.Locker, func(), error) {
		silent := func(context.Context, string, lock.Options) (*lock.Hold, error) { return nil, nil }
		return lock.LockerFunc(silent), func() {}, nil
	}
	r := harness.RandomRun{
		Topology: "single", Lock: l, Length: time.Second,
		Plan: []faults.Step{
			{At: 300 * time.Millisecond, For: 500 * time.Millisecond, Fault: "drop-reply", Target: "zone-a>redis", Params: map[string]string{"command": "SET", "nth": "1", "then": "reset"}},
		},
		Options: harness.LockOptions{Watchdog: time.Second},
	}
	require.NoError(t, r.Run(t.Context(), setup))
	_, _, report := runtest.Judged(t, setup.Dir)
	require.Equal(t, checker.Unknown, report.Verdict, "%+v", report)
}

// What a lock keeps is learnt in whatever database of a server it is.
func TestLearn_AnotherDatabase(t *testing.T) {
	t.Parallel()
	d := runtest.Start(t, runtest.Setup(t).Backend, topologies.Single, topologies.Options{})
	options := d.ClientOptions("zone-a")
	options.DB = 2
	rdb := topologies.Clients(options)[0]
	defer func() { require.NoError(t, rdb.Close()) }()
	locks, err := lock.New(rdb, lock.Config{Watchdog: time.Second})
	require.NoError(t, err)
	defer locks.Close()
	f, err := harness.Learn(t.Context(), d, "zone-a", locks, true, true)
	require.NoError(t, err)
	require.NotEmpty(t, f.KeysOf("orders"))
	for _, word := range []string{"acquire", "acquire-last", "extend", "renew", "release"} {
		require.NotEmpty(t, f.Commands[word].Name, word)
	}
}
