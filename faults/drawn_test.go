package faults_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/topologies"
)

// What the table says of a fault is what decides whether a run of the mix "safe"
// draws it.
func TestDrawsSayWhatIsSafe(t *testing.T) {
	all, err := faults.Draws()
	require.NoError(t, err)
	cells := map[string]string{}
	for _, d := range all {
		for i, environment := range faults.DrawEnvironments() {
			for _, name := range d.Faults {
				cells[strings.Join([]string{name, d.Target, environment}, "/")] += d.On[i]
			}
		}
	}
	for cell, want := range map[string]string{
		"cut/links of clients/single":                         "safe",
		"kill/the server of a lock/single":                    "safe with persistence any",
		"kill/the server of a lock/sentinel":                  "safe with persistence any, acks of all",
		"pause/the server of a lock/cluster":                  "safe with acks of all",
		"power-cut/the server of a lock/single":               "safe with persistence always",
		"flush/the server of a lock/sentinel":                 "unsafe",
		"split-brain/a zone of clients/sentinel":              "safe with acks of all",
		"cut/links of clients/etcd":                           "safe",
		"bandwidth/links of clients/etcd":                     "",
		"stall/links of a replica/sentinel":                   "safe",
		"stall/links of a replica/single":                     "",
		"split-brain/a zone of clients/single":                "",
		"planned-failover//single --access name":              "safe",
		"drop-message/links of clients/independent":           "",
		"pause/the server of a lock/etcd":                     "safe",
		"kill/the server of a lock/single --access name":      "safe with persistence any",
		"partition/a server/independent":                      "safe",
		"partition/a server/sentinel":                         "safe with acks of all",
		"migrate-slot//cluster":                               "safe",
		"power-cut/the server of a lock/single --access name": "safe with persistence always",
		"shutdown/the server of a lock/independent":           "safe with persistence any",
		"clock-rate/the server of a lock/independent":         "unsafe",
		"stall-disk/the server of a lock/sentinel":            "safe with acks of all",
		"restart-empty/the server of a lock/single":           "unsafe",
		"crash-failover//sentinel":                            "safe with acks of all",
	} {
		require.Equal(t, want, cells[cell], cell)
	}
}

// ownLock is what the faults of a driver's lock are drawn for.
func ownLock(t *testing.T) faults.Environment {
	t.Helper()
	e := faults.Environment{Locks: []string{"lock-1"}, Lease: time.Second, Lock: faults.LockTraits{Own: true, Requests: []string{"acquire", "extend", "renew", "release"}}}
	var err error
	e.Topology, err = topologies.ByName(topologies.Single)
	require.NoError(t, err)
	return e
}

// Seeds that follow each other begin with other faults, and one in four with a release that is held back.
func TestGenerate_spreadsSeeds(t *testing.T) {
	chosen, err := ownLock(t).Choose(string(faults.Network))
	require.NoError(t, err)
	first, seldom, requests := map[string]int{}, 0, map[string]bool{}
	for seed := uint64(1); seed <= 20; seed++ {
		plan := faults.Generate(seed, chosen, 20*time.Second)
		held := plan[0].Fault == "hold-command" && plan[0].For >= 4*time.Second
		require.Equal(t, seed%faults.SeldomSeeds == 1, held)
		if held {
			seldom++
		} else {
			first[plan[0].Fault+" "+plan[0].Params["command"]]++
		}
		brief := 0
		for _, step := range plan {
			if command := step.Params["command"]; command != "" && step.For < 4*time.Second {
				brief++
				requests[step.Fault+" "+command] = true
			}
		}
		require.Greater(t, brief, len(plan)/3, "%v", plan)
	}
	require.Equal(t, 5, seldom)
	require.Greater(t, len(first), 12, "%v", first)
	require.Len(t, requests, 6*4, "each fault of one message meets each request")
}

// Half of the delays are about as long as a lease.
func TestGenerate_delaysAreOfTheLengthOfALease(t *testing.T) {
	chosen, err := ownLock(t).Choose("delay-reply")
	require.NoError(t, err)
	long, all := 0, 0
	for seed := range uint64(50) {
		for _, step := range faults.Generate(seed, chosen, 20*time.Second) {
			late, err := strconv.Atoi(step.Params["for"])
			require.NoError(t, err)
			require.LessOrEqual(t, late, 1500)
			all++
			if late >= 500 {
				long++
			}
		}
	}
	require.InDelta(t, 0.5, float64(long)/float64(all), 0.1)
}
