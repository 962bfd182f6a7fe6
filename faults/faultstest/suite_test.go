//go:build linux

package faultstest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/process"
)

func TestMain(m *testing.M) {
	logging.Disable()
	if len(os.Args) == 4 && os.Args[1] == "harness" {
		if err := harness(os.Args[2], os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1) //nolint:forbidigo // this is main
		}
		return
	}
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/lockchaos/lockchaos/internal/spawn.thread.func1"))
}

// limit bounds one injection or heal, on a machine that may be busy.
const limit = time.Minute

// Every fault that servers can have, which are processes, is injected: all that the list has but those of clients, which
// package harness checks, and those of a driver's clock, which package drivers does. Of each,
//
//   - it keeps its contract, see [entry.keepsTheContract];
//   - nothing is left of it when the run is called off at any moment of its
//     injection, be that an error then or not;
//   - nothing is left of it when the deployment is closed while it lasts, if it
//     is one that does.
//
// Nothing is left when the deployment is ready, every link answers, every clock
// shows the true time, and every setting is what it was.
func TestProcessesCanHaveEveryFault(t *testing.T) {
	t.Parallel()
	need(t)
	var mu sync.Mutex
	seen := []string{"client-clock-back", "client-clock-forward", "kill-client", "pause-client", "throttle-client"}
	t.Run("on", func(t *testing.T) { // returns when all of its own tests have
		for _, topology := range []string{topologies.Single, singleByName, topologies.Sentinels, topologies.Cluster, topologies.Independent} {
			t.Run(topology, func(t *testing.T) {
				t.Parallel()
				d := deployed(t, topology)
				for _, e := range entries() {
					if e.on != topology {
						continue
					}
					t.Run(e.Fault, func(t *testing.T) { e.keepsTheContract(t, d) })
					if e.lasts() {
						t.Run(e.Fault+" closed", e.isClosed)
					}
					mu.Lock()
					seen = append(seen, e.Fault)
					mu.Unlock()
				}
			})
		}
	})
	listed := faults.Names(faults.All())
	slices.Sort(listed)
	slices.Sort(seen)
	require.Equal(t, listed, slices.Compact(seen))
}

// need skips the test where it can't have servers with clocks and disks of their
// own.
func need(t *testing.T) {
	t.Helper()
	runtest.NeedStore(t, topologies.StoreRedis)
	runtest.NeedCompiler(t)
}

// start starts a topology. Servers of Redis have clocks and disks that can be interfered with, and an append-only file.
func start(ctx context.Context, name string) (topologies.Deployment, error) {
	o, backend := topologies.Options{Persistence: topologies.PersistAlways}, process.Backend{}.Instrumented()
	switch {
	case name == singleByName:
		name, o = topologies.Single, topologies.Options{Access: topologies.AccessName}
	case name == topologies.Cluster:
		o.NodeTimeout = time.Second // so that it does not fail over only because the machine is busy
	case topologies.StoreOf(name) != topologies.StoreRedis:
		o, backend = topologies.Options{}, process.Backend{}
	}
	topology, err := topologies.New(name, o)
	if err != nil {
		return nil, err
	}
	return backend.Start(ctx, topology)
}

// deployed starts a deployment until the test ends, which leaves nothing behind.
func deployed(t *testing.T, name string) topologies.Deployment {
	t.Helper()
	d, err := start(t.Context(), name)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, d.Close())
		require.Empty(t, left(filepath.Dir(filepath.Dir(d.Server("redis-1").Log()))))
	})
	return d
}

// keepsTheContract injects the fault, heals it, and checks that
//
//   - the fault says what it did, and what was seen of its end;
//   - what worked before works again: [scene.whole] returns nil;
//   - a heal works although the run's context has ended;
//   - a second heal does nothing;
//   - it can be done all over again.
//
// While the fault lasts, or once it happened, its [look] sees the effect. For an armed fault, that makes its trigger happen, and
// looks at what became of that; the fault reports that it fired, and, where the trigger does not happen, that it did
// not. At last the fault is called off at several moments.
func (e entry) keepsTheContract(t *testing.T, d topologies.Deployment) {
	t.Helper()
	look := looks()[e.Fault]
	require.NotNil(t, look, "there is no look at the effect of %s", e.Fault)
	f, err := e.make(d)
	require.NoError(t, err)
	s, took, armed := newScene(t, d, e), time.Duration(0), false
	for range 2 {
		run, end := context.WithTimeout(t.Context(), limit)
		require.NoError(t, s.whole(run), "not whole before the fault")
		began := time.Now()
		injection, err := f.Inject(run)
		took = time.Since(began)
		require.NoError(t, err)
		assert.NotEmpty(t, injection.Effect, "it does not say what it did")
		assert.NoError(t, look(run, s, e), "it shows no effect")
		if armed = injection.AwaitFiring != nil; armed {
			effect, err := injection.AwaitFiring(run)
			assert.NoError(t, err)
			assert.NotEmpty(t, effect, "it fired")
		}
		end() // as Ctrl-C does
		healing := runtest.Within(t, limit)
		for again := range 2 {
			if injection.Heal == nil {
				break
			}
			effect, err := injection.Heal(healing)
			require.NoError(t, err)
			assert.Equal(t, again > 0, effect == "", "heal %d says %q", again+1, effect)
		}
		require.NoError(t, s.whole(healing), "not whole after the fault")
	}
	moments := []float64{0, 0.2, 0.4, 0.6, 0.8}
	switch {
	case e.again:
		moments = nil
	case took > time.Second:
		moments = []float64{0, 0.5}
	}
	for _, part := range moments {
		e.isCalledOff(t, s, time.Duration(part*float64(took)))
	}
	if armed {
		e.isCalledOff(t, s, limit) // which is after its injection, and before it fired
	}
}

// isCalledOff injects the fault and calls it off after a time.
func (e entry) isCalledOff(t *testing.T, s *scene, after time.Duration) {
	t.Helper()
	ctx := runtest.Within(t, 2*limit)
	require.NoError(t, s.whole(ctx), "before it is called off")
	f, err := e.make(s.d)
	require.NoError(t, err)
	run, end := context.WithTimeoutCause(ctx, after, errors.New("called off"))
	defer end()
	injection, err := f.Inject(run)
	switch {
	case err != nil:
		assert.Nil(t, injection.Heal, "it failed, and is to be healed")
	case injection.Heal != nil:
		_, err = injection.Heal(ctx)
		require.NoError(t, err)
	}
	if err == nil && injection.AwaitFiring != nil {
		effect, err := injection.AwaitFiring(ctx)
		assert.Error(t, err, "it was healed before it fired, and says that it did")
		assert.Empty(t, effect)
	}
	require.NoError(t, s.asItWas(ctx), "after it was called off after %v", after)
}

// lasts reports whether the fault does, and is the first of its name on a topology.
func (e entry) lasts() bool {
	spec, _ := faults.ByName(e.Fault)
	return spec.Life != history.Momentary && !e.again
}

// isClosed closes a deployment of its own while the fault lasts.
func (e entry) isClosed(t *testing.T) {
	t.Helper()
	var injection faults.Injection
	t.Cleanup(func() {
		if e.Fault == "flap" {
			_, _ = injection.Heal(context.WithoutCancel(t.Context())) // it takes turns in this process, whether or not there are links
		}
	})
	d, ctx := deployed(t, e.on), runtest.Within(t, limit)
	require.NoError(t, newScene(t, d, e).ready(ctx))
	f, err := e.make(d)
	require.NoError(t, err)
	injection, err = f.Inject(ctx)
	require.NoError(t, err)
	t.Log(injection.Effect)
}

// whole fails if a link does not answer, or a clock does not show the true time.
func whole(ctx context.Context, d topologies.Deployment) error {
	for _, l := range d.Topology().Links {
		w := d.Proxy(l.Name())
		if w == nil {
			continue
		}
		short, cancel := context.WithTimeout(ctx, time.Second)
		_, err := w.Probe(short)
		cancel()
		if err != nil {
			return fmt.Errorf("link %s: %w", l.Name(), err)
		}
	}
	for _, name := range d.Topology().Of(topologies.Redis) {
		if d.Instruments(name) == nil {
			continue
		}
		ahead, _, err := faults.ClockAhead(ctx, d.Server(name))
		if err == nil && ahead != 0 {
			err = fmt.Errorf("it is %v off", ahead)
		}
		if err != nil {
			return fmt.Errorf("clock of %s: %w", name, err)
		}
		if n := d.Instruments(name).Stalled(); n > 0 {
			return fmt.Errorf("disk of %s: %d syncs wait", name, n)
		}
	}
	return nil
}

// patient is a connection past every fault that waits for an answer longer than
// the observer, to whom a server that is slow is silent.
func patient(s topologies.Server) *goredis.Client { return s.Observer().WithTimeout(limit) }

// settings are those of all servers that no failover changes.
func settings(ctx context.Context, d topologies.Deployment) (map[string]string, error) {
	all := map[string]string{}
	for _, name := range d.Topology().Of(topologies.Redis) {
		rdb := patient(d.Server(name))
		config, err := rdb.ConfigGet(ctx, "*").Result()
		if err != nil {
			return nil, fmt.Errorf("settings of %s: %w", name, err)
		}
		for what, value := range config {
			if !slices.Contains([]string{"replicaof", "slaveof"}, what) {
				all[name+" "+what] = value
			}
		}
		foreign, err := rdb.Keys(ctx, probes).Result()
		if err != nil {
			return nil, fmt.Errorf("keys of %s: %w", name, err)
		}
		for _, key := range foreign {
			kept, err := rdb.Get(ctx, key).Result()
			if err == nil && kept != "1" {
				all[name+" "+key] = kept
			}
		}
	}
	for _, name := range d.Topology().Of(topologies.Sentinel) {
		masters, err := patient(d.Server(name)).Do(ctx, "SENTINEL", "MASTERS").Slice()
		if err != nil {
			return nil, fmt.Errorf("settings of %s: %w", name, err)
		}
		for _, m := range masters {
			fields, ok := m.(map[any]any)
			if !ok {
				return nil, fmt.Errorf("settings of %s: %v", name, m)
			}
			for _, what := range []string{"down-after-milliseconds", "quorum", "failover-timeout", "parallel-syncs"} {
				all[name+" "+what] = fmt.Sprint(fields[what])
			}
		}
	}
	return all, nil
}
