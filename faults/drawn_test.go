package faults_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/topologies"
)

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
	first, requests := map[string]int{}, map[string]bool{}
	for seed := uint64(1); seed <= 20; seed++ {
		plan := faults.Generate(seed, chosen, 20*time.Second)
		held := plan[0].Fault == "hold-command" && plan[0].For >= 4*time.Second
		require.Equal(t, seed%4 == 1, held)
		if !held {
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

// What keeps the clients of a zone from every server lasts until their sessions are over, and is aimed at a client that goes on
// holding its lock; nothing else is, and where a session lives too long for that, nothing at all.
func TestCandidates_outlastSessions(t *testing.T) {
	topology, err := topologies.ByName(topologies.EtcdCluster)
	require.NoError(t, err)
	const session = 2 * time.Second
	without := faults.Environment{Topology: topology, Locks: []string{"lock-1"}}
	short, long := without, without
	short.Session, long.Session = session, time.Minute
	require.Equal(t, without.Candidates(), long.Candidates())

	usual := without.Candidates()
	atHolder := map[string]string{}
	for i, c := range short.Candidates() {
		before := usual[i]
		if c.Least == before.Least {
			require.Equal(t, before, c)
			continue
		}
		require.Equal(t, [...]any{before.Least + session, before.Most + session, 2 * before.Weight, before.Target}, [...]any{c.Least, c.Most, c.Weight, c.Target}, c.Spec.Name)
		short.Outlasting = true
		atHolder[c.Spec.Name] = short.Candidates()[i].Target
		short.Outlasting = false
		require.NotContains(t, c.Params["stream"], topologies.Downstream, "a session lives on where replies alone are lost")
	}
	require.Equal(t, map[string]string{"cut": "holder>etcd", "partition": "holder", "stall": "holder>etcd"}, atHolder)
}

// A target that begins with the word for a holder's zone is its links, or the zone itself, and no other name that begins like it.
func TestHolderIn(t *testing.T) {
	for target, want := range map[string]string{"holder": "zone-b", "holder>etcd": "zone-b>etcd", "holders": "holders", "zone-a>etcd": "zone-a>etcd", "": ""} {
		in, ok := faults.HolderIn("zone-b", target)
		require.Equal(t, want, in)
		require.Equal(t, want != target, ok, target)
	}
}
