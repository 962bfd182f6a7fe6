package faultstest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/topologies"
)

// Every injects every fault that a backend's deployments can have, and checks of
// each that
//
//   - it keeps the contract of [Run], which looks at its effect;
//   - nothing is left of it when the run is called off at any moment of its
//     injection, be that an error then or not;
//   - nothing is left of it when the deployment is closed while it lasts, if it
//     is one that does.
//
// Nothing is left when the deployment is ready, every link answers, every clock
// shows the true time, and every setting is what it was. After Close, left
// returns what is left behind; nil means that it is not checked. Every returns the
// names of the faults that took effect.
func Every(t *testing.T, b topologies.Backend, left func(d topologies.Deployment) []string, ts ...topologies.Topology) (seen []string) {
	t.Helper()
	var mu sync.Mutex
	t.Run("on", func(t *testing.T) { // returns when all of its own tests have
		for _, topology := range ts {
			t.Run(where(topology), func(t *testing.T) {
				t.Parallel()
				d := deployed(t, b, topology, left)
				var lasting []entry
				for _, e := range entries() {
					if e.on == "" && where(topology) != where(ts[0]) || e.on != "" && e.on != where(topology) {
						continue
					}
					if _, err := e.make(d); err != nil {
						t.Logf("without %s: %v", e.Fault, err)
						continue
					}
					t.Run(e.Fault, func(t *testing.T) { e.keepsTheContract(t, d) })
					if spec, _ := faults.ByName(e.Fault); spec.Life != history.Momentary && !e.again {
						lasting = append(lasting, e)
					}
					mu.Lock()
					seen = append(seen, e.Fault)
					mu.Unlock()
				}
				slices.SortStableFunc(lasting, func(a, b entry) int { return cmp.Compare(a.rank(), b.rank()) })
				for len(lasting) > 0 {
					t.Run("closed", func(t *testing.T) { lasting = lasting[closed(t, b, topology, left, lasting):] })
				}
			})
		}
	})
	return seen
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
	s := &scene{d: d}
	defer s.leave()
	if err := s.ready(ctx); err != nil {
		return faults.Injection{}, fmt.Errorf("nothing to hit: %w", err)
	}
	for _, e := range entries() {
		if e.Fault == name && (e.on == "" || e.on == where(d.Topology())) {
			return e.inject(ctx, d)
		}
	}
	return faults.Injection{}, fmt.Errorf("topology %s can't have %s", where(d.Topology()), name)
}

// inject injects the fault.
func (e entry) inject(ctx context.Context, d topologies.Deployment) (faults.Injection, error) {
	f, err := e.make(d)
	if err != nil {
		return faults.Injection{}, err
	}
	return f.Inject(ctx)
}

// keepsTheContract injects the fault to the end, and then calls it off at several moments.
func (e entry) keepsTheContract(t *testing.T, d topologies.Deployment) {
	t.Helper()
	look := looks()[e.Fault]
	if look == nil {
		t.Fatalf("no look at the effect of %s", e.Fault)
	}
	made, err := e.make(d)
	if err != nil {
		t.Fatal(err)
	}
	var took time.Duration
	s, inject := newScene(t, d, e), made.Inject
	made.Inject = func(ctx context.Context) (faults.Injection, error) {
		began := time.Now()
		defer func() { took = time.Since(began) }()
		return inject(ctx)
	}
	Run(t, made, func(ctx context.Context) error { return look(ctx, s, e) }, s.whole)
	moments := []float64{0, 0.2, 0.4, 0.6, 0.8}
	switch {
	case e.again:
		return
	case took > time.Second:
		moments = []float64{0, 0.5}
	}
	for _, part := range moments {
		e.isCalledOff(t, s, time.Duration(part*float64(took)))
	}
}

// isCalledOff injects the fault and calls it off after a time.
func (e entry) isCalledOff(t *testing.T, s *scene, after time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*limit)
	defer cancel()
	f, err := e.make(s.d)
	if err = errors.Join(err, s.whole(ctx)); err != nil {
		t.Fatalf("before %s: %v", e.Fault, err)
	}
	run, end := context.WithTimeoutCause(ctx, after, errors.New("called off"))
	defer end()
	injection, err := f.Inject(run)
	switch {
	case err != nil && injection.Heal != nil:
		t.Errorf("%s failed, and is to be healed", e.Fault)
	case injection.Heal != nil:
		if _, err := injection.Heal(ctx); err != nil {
			t.Fatalf("heal %s: %v", e.Fault, err)
		}
	}
	if err := s.asItWas(ctx); err != nil {
		t.Fatalf("after %s was called off after %v: %v", e.Fault, after, err)
	}
}

// rank has first what lets another fault come on top of it: traps, then clocks, servers, links, and last what stops servers.
func (e entry) rank() int {
	spec, _ := faults.ByName(e.Fault)
	if spec.Life == history.Triggered {
		return 0
	}
	order := []faults.Family{faults.Clock, faults.Redis, faults.Network}
	if at := slices.Index(order, spec.Family); at >= 0 {
		return at + 1
	}
	return len(order) + 1
}

// closed closes a deployment of its own while as many faults last, of those in the list from the first one, as
// can come one on top of the other, and returns how many these are.
func closed(t *testing.T, b topologies.Backend, topology topologies.Topology, left func(d topologies.Deployment) []string, list []entry) (n int) {
	t.Helper()
	var heals []faults.Heal
	t.Cleanup(func() {
		for _, heal := range heals {
			_, _ = heal(t.Context()) // it takes turns in this process, whether or not there are links
		}
	})
	d := deployed(t, b, topology, left)
	if err := newScene(t, d, list[0]).ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		within := limit
		if n > 0 {
			within = 2 * time.Second // after which it is tried on a deployment without a fault
		}
		ctx, cancel := context.WithTimeout(t.Context(), within)
		injection, err := e.inject(ctx, d)
		cancel()
		if err != nil && n > 0 {
			break
		}
		if err != nil {
			t.Fatalf("inject %s: %v", e.Fault, err)
		}
		if e.Fault == "flap" {
			heals = append(heals, injection.Heal)
		}
		t.Log(injection.Effect)
		n++
	}
	return n
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
