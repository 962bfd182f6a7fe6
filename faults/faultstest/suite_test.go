package faultstest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/topologies"
)

// Every injects every fault that a backend's deployments can have, and checks of
// each that
//
//   - it takes effect, and nothing is left of it once it was healed;
//   - nothing is left of it when the run is called off at any moment of its
//     injection, be that an error then or not;
//   - nothing is left of it when the deployment is closed while it lasts, if it
//     is one that does.
//
// Nothing is left when the deployment is ready, every link answers, every clock
// shows the true time, and every setting is what it was. After Close, left
// returns what is left behind; nil means that nobody looks. Every returns the
// names of the faults that took effect.
//
// Run is the closer look at one fault.
func Every(t *testing.T, b topologies.Backend, left func(d topologies.Deployment) []string, ts ...topologies.Topology) (seen []string) {
	t.Helper()
	var mu sync.Mutex
	t.Run("on", func(t *testing.T) { // returns when all of its own tests have
		for _, topology := range ts {
			t.Run(where(topology), func(t *testing.T) {
				t.Parallel()
				d := deployed(t, b, topology, left)
				was := settings(t, d)
				for _, e := range entries() {
					if e.on == "" && where(topology) != where(ts[0]) || e.on != "" && e.on != where(topology) {
						continue
					}
					if why := lacks(d, e); why != "" {
						t.Logf("without %s: %s", e.Fault, why)
						continue
					}
					lasts := false
					t.Run(e.Fault, func(t *testing.T) { lasts = e.isHealedAndCalledOff(t, d, was) })
					if lasts {
						e.endsWithItsDeployment(t, b, topology, left)
					}
					mu.Lock()
					seen = append(seen, e.Fault)
					mu.Unlock()
				}
			})
		}
	})
	return seen
}

// lacks is why a deployment can't have a fault; empty if it can.
func lacks(d topologies.Deployment, e entry) string {
	spec, err := faults.ByName(e.Fault)
	if err != nil {
		return err.Error()
	}
	if lack := spec.Lacks(d); lack != nil {
		return lack.Error()
	}
	if _, err := e.make(d); err != nil {
		return err.Error()
	}
	return ""
}

// deployed starts a deployment until the test ends.
func deployed(t *testing.T, b topologies.Backend, topology topologies.Topology, left func(d topologies.Deployment) []string) topologies.Deployment {
	t.Helper()
	d, err := b.Start(t.Context(), topology)
	if err != nil {
		t.Fatalf("start %s: %v", topology.Name, err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("close %s: %v", topology.Name, err)
		}
		if left != nil {
			if l := left(d); len(l) > 0 {
				t.Errorf("left behind: %v", l)
			}
		}
	})
	return d
}

// Inject makes a fault happen, by its name, to a deployment whose topology can
// have it.
func Inject(ctx context.Context, d topologies.Deployment, name string) (faults.Injection, error) {
	for _, e := range entries() {
		if e.Fault == name && (e.on == "" || e.on == where(d.Topology())) {
			f, closeAll, err := e.baited(ctx, d)
			if err != nil {
				return faults.Injection{}, err
			}
			defer closeAll()
			return f.Inject(ctx)
		}
	}
	return faults.Injection{}, fmt.Errorf("topology %s can't have %s", where(d.Topology()), name)
}

// baited makes the fault, and puts there what it can hit, until closeAll is called.
func (e entry) baited(ctx context.Context, d topologies.Deployment) (f faults.Fault, closeAll func(), err error) {
	if f, err = e.make(d); err != nil {
		return nil, nil, err
	}
	if _, foreign := d.Unsupported()[topologies.Settings]; !foreign && where(d.Topology()) == topologies.Single {
		key := strings.TrimSuffix(probes, "*") + "1"
		if err := patient(master(d)).Set(ctx, key, 1, time.Minute).Err(); err != nil {
			return nil, nil, fmt.Errorf("nothing to hit: %w", err)
		}
	}
	err = await.Until(ctx, func() (err error) {
		closeAll, err = bait(ctx, d)
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("nothing to hit: %w", err)
	}
	return f, closeAll, nil
}

// injected injects the fault where there is something to hit, and calls it off after
// a time, if that is not negative. It returns how long the injection alone took.
func (e entry) injected(t *testing.T, d topologies.Deployment, after time.Duration) (i faults.Injection, took time.Duration, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	f, closeAll, err := e.baited(ctx, d)
	if err != nil {
		t.Fatalf("inject %s: %v", e.Fault, err)
	}
	defer closeAll()
	if after >= 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, after, errors.New("called off"))
		defer cancel()
	}
	began := time.Now()
	i, err = f.Inject(ctx)
	return i, time.Since(began), err
}

// isHealedAndCalledOff injects the fault to the end, and then calls it off at
// several moments. It reports whether the fault is one that lasts.
func (e entry) isHealedAndCalledOff(t *testing.T, d topologies.Deployment, was map[string]string) (lasts bool) {
	t.Helper()
	injection, took, err := e.injected(t, d, -1)
	if err != nil || injection.Effect == "" {
		t.Fatalf("inject %s: %q, %v", e.Fault, injection.Effect, err)
	}
	heal(t, e.Fault, injection)
	nothingLeft(t, e.Fault+" was healed", d, was)
	moments := []float64{0, 0.2, 0.4, 0.6, 0.8}
	if took > time.Second {
		moments = []float64{0, 0.5}
	}
	for _, part := range moments {
		after := time.Duration(part * float64(took))
		injection, _, err := e.injected(t, d, after)
		if err == nil {
			heal(t, e.Fault, injection)
		} else if injection.Heal != nil {
			t.Errorf("%s failed, and is to be healed", e.Fault)
		}
		nothingLeft(t, fmt.Sprintf("%s was called off after %v (%v)", e.Fault, after, err), d, was)
	}
	return injection.Heal != nil
}

// heal ends a fault after its run has ended, twice.
func heal(t *testing.T, name string, injection faults.Injection) {
	t.Helper()
	if injection.Heal == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), limit)
	defer cancel()
	for range 2 {
		if _, err := injection.Heal(ctx); err != nil {
			t.Fatalf("heal %s: %v", name, err)
		}
	}
}

// endsWithItsDeployment closes a deployment of the fault's own while it lasts,
// beside those of other faults.
func (e entry) endsWithItsDeployment(t *testing.T, b topologies.Backend, topology topologies.Topology, left func(d topologies.Deployment) []string) {
	t.Helper()
	t.Run(e.Fault+" closed", func(t *testing.T) {
		t.Parallel()
		var injection faults.Injection
		t.Cleanup(func() {
			if e.Fault == "flap" && injection.Heal != nil {
				_, _ = injection.Heal(t.Context()) // it takes turns in this process, whether or not there are links
			}
		})
		d := deployed(t, b, topology, left)
		var err error
		if injection, _, err = e.injected(t, d, -1); err != nil {
			t.Fatalf("inject %s: %v", e.Fault, err)
		}
	})
}

// nothingLeft waits until a deployment is as it was before the fault.
func nothingLeft(t *testing.T, after string, d topologies.Deployment, was map[string]string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*limit)
	defer cancel()
	if err := d.AwaitReady(ctx); err != nil {
		t.Fatalf("after %s: %v", after, err)
	}
	if err := await.Until(ctx, func() error { return whole(ctx, d) }); err != nil {
		t.Fatalf("after %s: %v", after, err)
	}
	for what, now := range settings(t, d) {
		if now != was[what] {
			t.Errorf("after %s: %s is %q, and was %q", after, what, now, was[what])
		}
	}
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
		if d.Clock(name) == nil {
			continue
		}
		ahead, err := faults.ClockAhead(ctx, d.Server(name))
		if err == nil && ahead != 0 {
			err = fmt.Errorf("it is %v off", ahead)
		}
		if err != nil {
			return fmt.Errorf("clock of %s: %w", name, err)
		}
		if n := d.Disk(name).Stalled(); n > 0 {
			return fmt.Errorf("disk of %s: %d syncs wait", name, n)
		}
	}
	return nil
}

// patient is a connection past every fault that waits for an answer longer than
// the observer, to whom a server that is slow is silent.
func patient(s topologies.Server) *goredis.Client { return s.Observer().WithTimeout(limit) }

// settings are those of all servers that no failover changes.
func settings(t *testing.T, d topologies.Deployment) map[string]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	all := map[string]string{}
	for _, name := range d.Topology().Of(topologies.Redis) {
		rdb := patient(d.Server(name))
		config, err := rdb.ConfigGet(ctx, "*").Result()
		if err != nil {
			t.Fatalf("settings of %s: %v", name, err)
		}
		for what, value := range config {
			if !slices.Contains([]string{"replicaof", "slaveof"}, what) {
				all[name+" "+what] = value
			}
		}
		foreign, err := rdb.Keys(ctx, probes).Result()
		if err != nil {
			t.Fatalf("keys of %s: %v", name, err)
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
			t.Fatalf("settings of %s: %v", name, err)
		}
		for _, m := range masters {
			fields, ok := m.(map[any]any)
			if !ok {
				t.Fatalf("settings of %s: %v", name, m)
			}
			for _, what := range []string{"down-after-milliseconds", "quorum", "failover-timeout", "parallel-syncs"} {
				all[name+" "+what] = fmt.Sprint(fields[what])
			}
		}
	}
	return all
}
