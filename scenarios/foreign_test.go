package scenarios_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/locks"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/memory"
	"github.com/lockchaos/lockchaos/reports"
	"github.com/lockchaos/lockchaos/scenarios"
)

// under is a scenario of the catalogue with another lock.
func under(t *testing.T, name string, l harness.LockSpec) (scenarios.Scenario, error) {
	t.Helper()
	s, variant, err := scenarios.Find(name, locks.All())
	require.NoError(t, err)
	return s.Under(l, variant)
}

// A lock of which nothing is known but how to open it plays the scenarios: what it
// keeps and sends is learnt.
func TestUnder_ForeignLock(t *testing.T) {
	for _, tc := range []struct {
		scenario, lock string
		want           checker.Verdict
	}{
		{"failover-double-grant", "redislock", checker.Invalid},
		{"failover-double-grant/link-intact", "redsync", checker.Valid},
		{"split-brain-double-grant", "redsync", checker.Invalid},
		{"slot-migration", "redislock", checker.Valid},
		{"cluster-failover-double-grant", "redislock", checker.Invalid},
		{"late-extend", "redislock", checker.Valid},
		{"late-release-double-grant/owner-checked", "redislock", checker.Valid},
		{"restart-double-grant", "rueidislock", checker.Invalid},
	} {
		t.Run(strings.ReplaceAll(tc.scenario, "/", "-")+"-"+tc.lock, func(t *testing.T) {
			t.Parallel()
			setup := setup(t)
			l := lockNamed(tc.lock)
			l.Key, l.Commands = nil, nil
			s, err := under(t, tc.scenario, l)
			require.NoError(t, err)
			require.NoError(t, s.Run(t.Context(), setup))
			run, h, report := judged(t, setup.Dir)
			require.Empty(t, run.Unmet)
			require.Empty(t, failedFaults(h))
			require.Equal(t, tc.want, report.Verdict, "%+v", report)
			for _, e := range h.Events {
				require.NotContains(t, e.Lock, "warm-up", "a warm-up is in no history")
				if tc.scenario == "slot-migration" && e.Op == history.Inject && e.Type == history.OK {
					require.NotContains(t, e.Value, "keys in it: 0")
				}
			}
			for _, m := range reports.Summarize(reports.Input{Run: run, History: h, Report: report}).Story.Moments {
				if tc.scenario == "split-brain-double-grant" {
					require.NotRegexp(t, "client a was granted orders by redis-[23]", m.Text)
				}
			}
		})
	}
}

func TestUnder_WhatALockCannot(t *testing.T) {
	t.Parallel()
	l := lockNamed("redislock")
	for name, want := range map[string]string{
		"failover-double-grant/replica-acks": "asks no replicas for an acknowledgement",
		"abandoned-wait/withdrawn":           "it is about the lock mutex-fair",
		"failover-double-grant/fencing":      "it is about the lock mutex-fenced",
		"paused-holder":                      "can't be paused or killed",
		"late-extend":                        "which lock redislock can't",
		"late-request":                       "would be on one of the servers",
	} {
		l.Connects, l.NoExtend = true, true
		_, err := under(t, name, l)
		require.ErrorContains(t, err, want, name)
	}
	_, err := under(t, "restart-double-grant", lockNamed("memory"))
	require.ErrorContains(t, err, "require asks servers, and lock memory has none")
}

// A lock that keeps nothing on the servers plays no script that asks them.
func TestUnder_LockWithoutKeys(t *testing.T) {
	setup := setup(t)
	shared := memory.New()
	s, err := under(t, "restart-double-grant", harness.LockSpec{
		Name: "elsewhere", Foreign: true,
		Open: func([]redis.UniversalClient, harness.LockOptions) (lock.Locker, func(), error) {
			return shared, func() {}, nil
		},
	})
	require.NoError(t, err)
	require.NoError(t, s.Run(t.Context(), setup))
	run, _, report := judged(t, setup.Dir)
	require.Contains(t, run.Unmet, "no key with the name of the lock is on a server")
	require.Equal(t, checker.Unknown, report.Verdict)
}

// Faults of slots and commands in a random run meet the keys and commands that a
// foreign lock really uses.
func TestRandom_AimsAtAForeignLock(t *testing.T) {
	setup := setup(t)
	l := lockNamed("redislock")
	l.Key, l.Commands = nil, []string{"SETNX"} // which it never sends
	r := scenarios.Random{
		Topology: "cluster", Lock: l, Length: 12 * time.Second,
		Given: faults.Schedule{
			{At: time.Second, For: time.Second, Fault: "migrate-slot", Params: map[string]string{"key": "lock-2"}},
			{At: 3 * time.Second, Fault: "drop-reply", Target: "zone-a>redis", Params: map[string]string{"command": "SETNX", "nth": "1", "then": "reset"}},
		},
		Options: harness.LockOptions{Watchdog: time.Second},
	}
	require.NoError(t, r.Run(t.Context(), setup))
	_, h, report := judged(t, setup.Dir)
	require.Equal(t, checker.Valid, report.Verdict, "%+v", report)
	landed := map[string]bool{}
	for _, e := range h.Events {
		if e.Op == history.Inject && e.Type == history.OK {
			landed[e.Fault] = true
		}
		if e.Fault == "migrate-slot" && e.Op == history.Inject && e.Type == history.OK {
			require.Contains(t, e.Value, fmt.Sprintf("slot %d ", slotOf("redislock:"+e.Params["key"])))
		}
	}
	require.Len(t, landed, 2, "%v", landed)
}

// slotOf is the slot of a key without a hash tag: https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/
func slotOf(key string) uint16 {
	crc := uint16(0) // CRC-16/XMODEM
	for _, b := range []byte(key) {
		crc ^= uint16(b) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc % 16384
}
