package faults_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/faults/faultstest"
	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/topologies"
)

func TestMain(m *testing.M) {
	logging.Disable()
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/lockchaos/lockchaos/internal/spawn.thread.func1"))
}

// start starts one server, or skips the test where none can be run.
func start(t *testing.T) topologies.Deployment {
	t.Helper()
	runtest.NeedStore(t, topologies.StoreRedis)
	topology, err := topologies.ByName(topologies.Single)
	require.NoError(t, err)
	d, err := runtest.Backend{}.Start(t.Context(), topology)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

// client is a service's client in zone-a; change alters its options.
func client(t *testing.T, d topologies.Deployment, change func(*redis.UniversalOptions)) redis.UniversalClient {
	t.Helper()
	o := d.ClientOptions("zone-a")
	if change != nil {
		change(o)
	}
	rdb := topologies.Clients(o)[0]
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
	f, err := faults.New(faults.Site{Deployment: d}, step)
	require.NoError(t, err)
	return f
}

// past is a connection to the server past every fault, which waits for an answer
// longer than the observer, to whom a server that is slow is silent.
func past(d topologies.Deployment) *redis.Client {
	return d.Server("redis-1").Observer().WithTimeout(time.Minute)
}

// A fixture is one server, a client of it that has one connection, and a look
// past every fault.
type fixture struct {
	rdb      redis.UniversalClient
	observer *redis.Client
	keys     int
}

// impatient is how long a client waits for an answer that does not come.
const impatient = 200 * time.Millisecond

// set asks for a new key to be set, on a connection that is there already, and
// returns its name.
func (f *fixture) set(ctx context.Context) (key string, err error) {
	f.keys++
	key = fmt.Sprintf("key-%d", f.keys)
	if err := await.Until(ctx, func() error { return f.rdb.Ping(ctx).Err() }); err != nil {
		return key, err
	}
	ctx, cancel := context.WithTimeout(ctx, impatient)
	defer cancel()
	return key, f.rdb.Set(ctx, key, "value", 0).Err()
}

// there waits until a key is there, or not.
func (f *fixture) there(ctx context.Context, key string, want int64) error {
	for {
		n, err := f.observer.Exists(ctx, key).Result()
		if err == nil && n == want {
			return nil
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("key %s: there is %d, want %d (%w)", key, n, want, errors.Join(err, ctx.Err()))
		}
	}
}

// TestTriggersKeepTheContract fires every fault that waits for a message.
func TestTriggersKeepTheContract(t *testing.T) {
	t.Parallel()
	d := start(t)
	f := &fixture{rdb: client(t, d, nil), observer: past(d)}
	held := "" // a key whose command is kept, and must be there in the end
	fails := func(there int64) func(context.Context) error {
		return func(ctx context.Context) error {
			key, err := f.set(ctx)
			if err == nil {
				return errors.New("the client got an answer")
			}
			return f.there(ctx, key, there)
		}
	}
	keeps := func(ctx context.Context) error {
		key, err := f.set(ctx)
		if err == nil {
			return errors.New("the client got an answer")
		}
		held = key
		return f.there(ctx, key, 0)
	}
	const late = 30 * time.Millisecond
	slow := func(ctx context.Context) error {
		begin := time.Now()
		err := f.rdb.Set(ctx, "key-late", "value", 0).Err()
		if took := time.Since(begin); err == nil && took < late {
			err = fmt.Errorf("it was answered after %v", took)
		}
		return err
	}
	whole := func(ctx context.Context) error {
		if held != "" {
			if err := f.there(ctx, held, 1); err != nil {
				return fmt.Errorf("what was held back: %w", err)
			}
			held = ""
		}
		return d.AwaitReady(ctx)
	}
	for name, tt := range map[string]struct {
		fault  faults.Fault
		broken func(context.Context) error
	}{
		"drop-command":         {built(t, d, "drop-command", zoneA, "command", "SET key-"), fails(0)},
		"drop-command, silent": {built(t, d, "drop-command", zoneA, "command", "SET key-", "then", "silent"), fails(0)},
		"drop-reply":           {built(t, d, "drop-reply", zoneA, "command", "SET key-"), fails(1)},
		"drop-reply, silent":   {built(t, d, "drop-reply", zoneA, "command", "SET key-", "then", "silent"), fails(1)},
		"hold-command":         {built(t, d, "hold-command", zoneA, "command", "SET key-"), keeps},
		"hold-reply":           {built(t, d, "hold-reply", zoneA, "command", "SET key-"), fails(1)},
		"delay-command":        {built(t, d, "delay-command", zoneA, "command", "SET key-", "for", "30"), slow},
		"delay-reply":          {built(t, d, "delay-reply", zoneA, "command", "SET key-", "for", "30"), slow},
	} {
		t.Run(name, func(t *testing.T) { faultstest.Run(t, tt.fault, tt.broken, whole) })
	}
}

func TestALostMessageIsTheOnlyOneLost(t *testing.T) {
	t.Parallel()
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprintf("RESP%d", protocol), func(t *testing.T) {
			t.Parallel()
			d := start(t)
			rdb := client(t, d, func(o *redis.UniversalOptions) { o.Protocol = protocol })
			observer := past(d)
			subscriber := rdb.Subscribe(t.Context(), "channel")
			defer subscriber.Close()
			_, err := subscriber.Receive(t.Context())
			require.NoError(t, err)
			receives := func(ctx context.Context, want string) error {
				m, err := subscriber.ReceiveMessage(ctx)
				if err == nil && m.Payload != want {
					err = fmt.Errorf("%q came, and not %q", m.Payload, want)
				}
				return err
			}
			send := func(ctx context.Context, texts ...string) error {
				for _, text := range texts {
					if err := observer.Publish(ctx, "channel", text).Err(); err != nil {
						return err
					}
				}
				return nil
			}
			broken := func(ctx context.Context) error {
				return errors.Join(send(ctx, "wanted 1", "other", "wanted 2", "wanted 3"),
					receives(ctx, "wanted 1"), receives(ctx, "other"), receives(ctx, "wanted 3"))
			}
			whole := func(ctx context.Context) error {
				return errors.Join(send(ctx, "wanted again"), receives(ctx, "wanted again"), d.AwaitReady(ctx))
			}
			faultstest.Run(t, built(t, d, "drop-message", zoneA, "command", "wanted", "nth", "2"), broken, whole)
		})
	}
}

func TestATrapWaitsForTheNthAndCountsWhatWasCarriedOut(t *testing.T) {
	t.Parallel()
	d := start(t)
	rdb := client(t, d, nil)
	script := redis.NewScript(`return redis.call('INCR', KEYS[1])`)
	f, err := faults.New(faults.Site{Deployment: d, Scripts: map[string]string{script.Hash(): "count"}}, faults.Step{
		Fault: "drop-reply", Target: zoneA, Params: map[string]string{"command": "count key", "nth": "2"},
	})
	require.NoError(t, err)
	injection, err := f.Inject(t.Context())
	require.NoError(t, err)
	require.Equal(t, "waits for the reply to the second count key on 1 link", injection.Effect)
	require.True(t, injection.OneShot)

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
}

func TestWhatComesBeforeALostCommandIsCarriedOut(t *testing.T) {
	t.Parallel()
	d := start(t)
	rdb := client(t, d, nil)
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
	f := &fixture{observer: past(d)}
	require.NoError(t, f.there(t.Context(), "one", 1))
	n, err := f.observer.Exists(t.Context(), "two", "three").Result()
	require.NoError(t, err)
	require.Zero(t, n)
	_, err = injection.Heal(t.Context())
	require.NoError(t, err)
}

// A script that has no name is named by its SHA-1, also where it is sent in full.
func TestATrapWaitsForAScriptByItsSHA(t *testing.T) {
	t.Parallel()
	d := start(t)
	rdb := client(t, d, nil)
	const source = `return redis.call('INCR', KEYS[1])`
	injection, err := built(t, d, "drop-reply", zoneA, "command", redis.NewScript(source).Hash()).Inject(t.Context())
	require.NoError(t, err)
	require.NoError(t, rdb.Eval(t.Context(), "return 1", nil).Err())
	require.Error(t, rdb.Eval(t.Context(), source, []string{"key"}).Err())
	effect, err := injection.AwaitFiring(t.Context())
	require.NoError(t, err)
	require.Contains(t, effect, "was lost")
}

func TestATrapThatNeverStruckSaysSo(t *testing.T) {
	t.Parallel()
	d := start(t)
	rdb := client(t, d, nil)
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

// What is late arrives although whoever sent it is long gone.
func TestAHeldCommandIsDeliveredAfterItsClientHasGone(t *testing.T) {
	t.Parallel()
	d := start(t)
	f := &fixture{rdb: client(t, d, nil), observer: past(d)}
	injection, err := built(t, d, "hold-command", zoneA, "command", "SET").Inject(t.Context())
	require.NoError(t, err)
	key, err := f.set(t.Context())
	require.Error(t, err)
	require.NoError(t, f.rdb.Ping(t.Context()).Err(), "others pass")
	require.NoError(t, f.there(t.Context(), key, 0))
	effect, err := injection.Heal(t.Context())
	require.NoError(t, err)
	require.Equal(t, "the first SET was delivered, 1 link let everything pass, answering again", effect)
	require.NoError(t, f.there(t.Context(), key, 1))
}

func TestFaultsOfThePaceKeepTheContract(t *testing.T) {
	t.Parallel()
	d := start(t)
	link := d.Proxy(zoneA)
	pacer, ok := link.(topologies.Shaper)
	require.True(t, ok)
	const by = 50 * time.Millisecond
	atLeast := func(look func(context.Context) (time.Duration, error)) func(context.Context) error {
		return func(ctx context.Context) error {
			took, err := look(ctx)
			if err == nil && took < by {
				err = fmt.Errorf("it took %v", took)
			}
			return err
		}
	}
	burst := atLeast(func(ctx context.Context) (time.Duration, error) { return pacer.ProbeBandwidth(ctx, 1000) })
	refuses := func(ctx context.Context) error {
		var err error
		for ctx.Err() == nil && err == nil {
			_, err = link.Probe(ctx)
		}
		return ctx.Err()
	}
	for name, tt := range map[string]struct {
		fault  faults.Fault
		broken func(context.Context) error
	}{
		"bandwidth up":   {built(t, d, "bandwidth", zoneA, "rate", "20000", "stream", "upstream"), burst},
		"bandwidth down": {built(t, d, "bandwidth", zoneA, "rate", "20000", "stream", "downstream"), burst},
		"bandwidth":      {built(t, d, "bandwidth", zoneA, "rate", "20000"), burst},
		"slow-close":     {built(t, d, "slow-close", zoneA, "by", "50", "stream", "upstream"), atLeast(pacer.ProbeClose)},
		"slow-close, down": {
			built(t, d, "slow-close", zoneA, "by", "50", "stream", "downstream"), atLeast(pacer.ProbeClose),
		},
		"flap":              {built(t, d, "flap", zoneA, "down", "20", "up", "20"), refuses},
		"partition":         {built(t, d, "partition", "redis-1"), refuses},
		"partition, silent": {built(t, d, "partition", "redis-1", "how", "stall"), func(ctx context.Context) error { return silent(ctx, link) }},
	} {
		t.Run(name, func(t *testing.T) { faultstest.Run(t, tt.fault, tt.broken, d.AwaitReady) })
	}
}

func silent(ctx context.Context, l topologies.Proxy) error {
	ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if _, err := l.Probe(ctx); err == nil {
		return errors.New("it answers")
	}
	return nil
}
