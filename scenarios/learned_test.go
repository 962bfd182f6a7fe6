package scenarios_test

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/locks"
	"github.com/lockchaos/lockchaos/internal/runtest"
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
			l := runtest.Lock(tc.lock)
			l.Key, l.Commands = nil, nil
			s, err := under(t, tc.scenario, l)
			require.NoError(t, err)
			run, h, report := play(t, s)
			require.Empty(t, run.AbortReason)
			require.Empty(t, runtest.FailedFaults(h))
			require.Equal(t, tc.want, report.Verdict, "%+v", report)
			for _, e := range h.Events {
				require.NotContains(t, e.Lock, "warm-up", "a warm-up is in no history")
				if tc.scenario == "slot-migration" && e.Op == history.Inject && e.Type == history.OK {
					require.NotContains(t, e.Value, "keys in it: 0")
				}
			}
			for _, m := range reports.Summarize(reports.Input{Run: run, History: h, Report: report}).Story.Events {
				if tc.scenario == "split-brain-double-grant" {
					require.NotRegexp(t, "client a was granted orders by redis-[23]", m.Text)
				}
			}
		})
	}
}

func TestUnder_WhatALockCannot(t *testing.T) {
	t.Parallel()
	l := runtest.Lock("redislock")
	for name, want := range map[string]string{
		"failover-double-grant/replica-acks":    "asks no replicas for an acknowledgement",
		"abandoned-wait/withdrawn":              "it is about the lock mutex-fair",
		"failover-double-grant/fencing":         "it is about the lock mutex-fenced",
		"late-extend":                           "which lock redislock can't",
		"late-request":                          "would be on one of the servers",
		"stale-waiter":                          "it is about the planted bug of broken-stale-waiter",
		"late-retry-double-grant/first-request": "clients send a request again when no reply comes",
		"lost-message":                          "is not known to wait for any",
	} {
		l.Connects, l.Extend = true, false
		_, err := under(t, name, l)
		require.ErrorContains(t, err, want, name)
	}
	_, err := under(t, "restart-double-grant", runtest.Lock("memory"))
	require.ErrorContains(t, err, "require asks servers, and lock memory has none")
}

// A lock that keeps nothing on the servers plays no script that asks them.
func TestUnder_LockWithoutKeys(t *testing.T) {
	shared := memory.New()
	s, err := under(t, "restart-double-grant", harness.LockSpec{
		Name: "elsewhere", Foreign: true,
		Open: func([]redis.UniversalClient, harness.LockOptions) (lock.Locker, func(), error) {
			return shared, func() {}, nil
		},
	})
	require.NoError(t, err)
	run, _, report := play(t, s)
	require.Contains(t, run.Unsuited, "no key with the name of the lock is on a server")
	require.Equal(t, checker.Unknown, report.Verdict)
}

// A correct lock of another library answers at once that it does not have a planted bug,
// or that a step asks what it does not do; one with the bug is convicted in both plays.
func TestUnder_OtherLockAnswersOtherwise(t *testing.T) {
	for _, tc := range []struct {
		scenario, lock   string
		want             checker.Verdict
		spared, unsuited string
	}{
		{"late-release-double-grant", "redislock", checker.Valid, "client b was granted the lock and has not released it", ""},
		{"abandoned-wait", "redislock", checker.Valid, "it was granted, and should have been refused", ""},
		{"lost-reply", "redislock", checker.Unknown, "", "client a may have been granted the lock"},
		{"abandoned-wait/on-its-way", "redislock", checker.Unknown, "", "step "},
		{"flush-double-grant/no-eviction", "redislock", checker.Valid, "", ""},
		{"late-release-double-grant", "broken-plain-delete", checker.Invalid, "", ""},
		{"late-release-double-grant/owner-checked", "broken-plain-delete", checker.Invalid, "", "it was granted, and should have been refused"},
	} {
		t.Run(strings.ReplaceAll(tc.scenario, "/", "-")+"-"+tc.lock, func(t *testing.T) {
			t.Parallel()
			l := runtest.Lock(tc.lock)
			l.Name, l.Foreign = "theirs", true
			s, err := under(t, tc.scenario, l)
			require.NoError(t, err)
			run, _, report := play(t, s)
			require.Empty(t, run.AbortReason)
			require.Equal(t, tc.want, report.Verdict, "%+v %+v", run, report)
			for _, said := range [][2]string{{run.Spared, tc.spared}, {run.Unsuited, tc.unsuited}} {
				require.Equal(t, said[1] == "", said[0] == "", said)
				require.Contains(t, said[0], said[1])
			}
		})
	}
}
