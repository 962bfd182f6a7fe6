package faults_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/topologies"
)

func TestMain(m *testing.M) { runtest.Main(m) }

// deployed is a deployment with its usual servers, or the test is skipped where there are none.
func deployed(t *testing.T, name string) topologies.Deployment {
	t.Helper()
	return runtest.Start(t, runtest.Servers(), name, topologies.Options{})
}

// client is a service's client in zone-a.
func client(t *testing.T, d topologies.Deployment) redis.UniversalClient {
	t.Helper()
	rdb := topologies.Clients(d.ClientOptions("zone-a"))[0]
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	return rdb
}

// zoneA is the link that the faults are put on.
const zoneA = "zone-a>redis-1"

// built makes a fault, with parameters as names and values.
func built(t *testing.T, d topologies.Deployment, fault, target string, params ...string) faults.Fault {
	t.Helper()
	step := faults.Step{Fault: fault, Target: target, Params: map[string]string{}}
	for i := 0; i < len(params); i += 2 {
		step.Params[params[i]] = params[i+1]
	}
	return made(t, faults.Site{Deployment: d}, step)
}

// made is the fault of a step of a script.
func made(t *testing.T, site faults.Site, step faults.Step) faults.Fault {
	t.Helper()
	p, err := faults.Environment{Topology: site.Deployment.Topology(), Script: true}.Resolve(step)
	require.NoError(t, err)
	f, err := p.On(site)
	require.NoError(t, err)
	return f
}

// past is a connection to the server past every fault, which waits for an answer
// longer than the observer, to whom a server that is slow is silent.
func past(d topologies.Deployment) *redis.Client {
	return d.Server("redis-1").Observer().WithTimeout(time.Minute)
}

// there waits until a key is there.
func there(t *testing.T, d topologies.Deployment, key string) {
	t.Helper()
	require.NoError(t, await.Until(t.Context(), func() error { return past(d).Get(t.Context(), key).Err() }))
}

func TestATrapWaitsForTheNthAndCountsWhatWasCarriedOut(t *testing.T) {
	t.Parallel()
	d := deployed(t, topologies.Single)
	rdb := client(t, d)
	script := redis.NewScript(`return redis.call('INCR', KEYS[1])`)
	f := made(t, faults.Site{Deployment: d, Scripts: map[string]string{script.Hash(): "count"}}, faults.Step{
		Fault: "drop-reply", Target: zoneA, Params: map[string]string{"command": "count key", "nth": "2"},
	})
	injection, err := f.Inject(t.Context())
	require.NoError(t, err)
	require.Equal(t, "waits for the reply to the second count key on 1 link", injection.Effect)
	require.True(t, f.Spec.OneShot())

	// The server learns the script by the first: it is asked twice, and answers
	// once that it does not know it.
	require.NoError(t, script.Run(t.Context(), rdb, []string{"key"}).Err())
	require.NoError(t, script.Run(t.Context(), rdb, []string{"other"}).Err())
	require.Error(t, script.Run(t.Context(), rdb, []string{"key"}).Err())
	require.NoError(t, script.Run(t.Context(), rdb, []string{"key"}).Err(), "it fired once")
	n, err := past(d).Get(t.Context(), "key").Int()
	require.NoError(t, err)
	require.Equal(t, 3, n, "every one was carried out")
	effect, err := injection.AwaitFiring(t.Context())
	require.NoError(t, err)
	require.Equal(t, "the reply to the second count key on zone-a>redis-1 was lost, and the connection reset", effect)
	_, err = injection.Heal(t.Context())
	require.NoError(t, err)

	// One that has no name is named by its SHA-1, also where it is sent in full.
	injection, err = built(t, d, "drop-reply", zoneA, "command", script.Hash()).Inject(t.Context())
	require.NoError(t, err)
	require.NoError(t, rdb.Eval(t.Context(), "return 1", nil).Err())
	require.Error(t, script.Eval(t.Context(), rdb, []string{"key"}).Err())
	_, err = injection.AwaitFiring(t.Context())
	require.NoError(t, err)
}

func TestWhatComesBeforeALostCommandIsCarriedOut(t *testing.T) {
	t.Parallel()
	d := deployed(t, topologies.Single)
	rdb := client(t, d)
	injection, err := built(t, d, "drop-command", zoneA, "command", "SET two").Inject(t.Context())
	require.NoError(t, err)
	pipe := rdb.Pipeline()
	for _, key := range []string{"one", "two", "three"} {
		pipe.Set(t.Context(), key, "value", 0)
	}
	_, err = pipe.Exec(t.Context())
	require.Error(t, err)
	_, err = injection.AwaitFiring(t.Context())
	require.NoError(t, err)
	there(t, d, "one")
	n, err := past(d).Exists(t.Context(), "two", "three").Result()
	require.NoError(t, err)
	require.Zero(t, n)
	_, err = injection.Heal(t.Context())
	require.NoError(t, err)
}

func TestATrapThatNeverStruckSaysSo(t *testing.T) {
	t.Parallel()
	d := deployed(t, topologies.Single)
	rdb := client(t, d)
	third := built(t, d, "hold-command", zoneA, "command", "set", "nth", "3")
	injection, err := third.Inject(t.Context())
	require.NoError(t, err)
	require.NoError(t, rdb.Set(t.Context(), "a", 1, 0).Err())
	effect, err := injection.Heal(t.Context())
	require.NoError(t, err)
	require.Equal(t, "1 link let everything pass, answering again", effect)
	_, err = injection.AwaitFiring(t.Context())
	require.EqualError(t, err, "hold-command never fired: the third set never came (1 of that kind passed)")

	cut, err := built(t, d, "cut", zoneA).Inject(t.Context())
	require.NoError(t, err)
	_, err = third.Inject(t.Context())
	require.ErrorContains(t, err, "no link answered before it")
	_, err = cut.Heal(t.Context())
	require.NoError(t, err)
}
