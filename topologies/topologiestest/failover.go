package topologiestest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/topologies"
)

// failovers checks that a shard's master changes, and that all nodes learn of
// it.
func (s suite) failovers() {
	d, ok := s.d.(topologies.Failover)
	if !ok {
		s.t.Skipf("topology %s has no master that could change", s.d.Topology().Name)
	}
	shards := d.Topology().Shards()
	if _, err := d.Master(s.t.Context(), "no-such"); err == nil {
		s.t.Error("there is a master of an unknown shard")
	}
	if s.without(topologies.Processes) {
		s.t.Logf("no crash, without %s", topologies.Processes)
	} else {
		s.changes(d, shards[0], func(old string) {
			s.do("arm", d.Arm)
			s.do("kill "+old, d.Server(old).Kill)
		}, func(old string) {
			s.do("restart "+old, d.Server(old).Restart)
		})
	}
	shard := shards[len(shards)-1]
	s.changes(d, shard, func(string) {
		s.do("promote", func(ctx context.Context) error { return d.Promote(ctx, shard) })
	}, func(string) {})
}

// changes makes a shard fail over and sees what comes of it.
func (s suite) changes(d topologies.Failover, shard string, begin, end func(old string)) {
	s.t.Helper()
	var clients []redis.UniversalClient
	for _, zone := range d.Topology().Of(topologies.Zone) {
		clients = append(clients, s.client(zone)...)
	}
	var old, master string
	s.await("the master", func(ctx context.Context) (err error) {
		old, err = d.Master(ctx, shard)
		return err
	})
	key := s.keyOf(d.Server(old).Observer())
	// What a client writes while the old master still takes itself for one is
	// lost, so that each goes on until it is seen on the new one.
	write := func(when, on string) {
		s.t.Helper()
		for i, c := range clients {
			value := fmt.Sprintf("%s, by client %d", when, i)
			s.await(value+", a write to "+on, func(ctx context.Context) error {
				if err := c.Set(ctx, key, value, time.Minute).Err(); err != nil {
					return err
				}
				v, err := d.Server(on).Observer().Get(ctx, key).Result()
				if err == nil && v != value {
					err = fmt.Errorf("there is %q", v)
				}
				return err
			})
		}
	}
	write("before", old)
	seen := s.watch()
	s.await("Watch to report every server", func(context.Context) error { return seen.complete(d.Topology()) })

	begin(old)
	s.do("await another master", func(ctx context.Context) (err error) {
		master, err = d.AwaitMaster(ctx, shard, old)
		return err
	})
	s.do("disarm", d.Disarm)
	if master == old {
		s.t.Fatalf("%s replaced itself", old)
	}
	write("after", master)
	s.await("Watch to report it", func(context.Context) error { return seen.promotion(d.Topology(), old, master) })
	end(old)
	s.whole()
	var now string
	s.await("the master that is left", func(ctx context.Context) (err error) {
		now, err = d.Master(ctx, shard)
		return err
	})
	if now != master {
		s.t.Fatalf("%s replaced %s again", now, master)
	}
	write("at last", master)
}

// A record is what Watch reported, in order.
type record struct {
	mu   sync.Mutex
	seen []topologies.Observation
}

// watch records what is reported until the test ends.
func (s suite) watch() *record {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	r := &record{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.d.Watch(ctx, func(o topologies.Observation) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.seen = append(r.seen, o)
		})
	}()
	s.t.Cleanup(func() {
		cancel()
		<-done
	})
	return r
}

// complete fails unless every server was reported once.
func (r *record) complete(t topologies.Topology) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	whats := []string{"role"}
	if t.HasSlots() {
		whats = append(whats, "epoch")
	}
	for _, server := range t.Of(topologies.Redis) {
		for _, what := range whats {
			if !slices.ContainsFunc(r.seen, func(o topologies.Observation) bool { return o.Node == server && o.What == what }) {
				return fmt.Errorf("the %s of %s was not reported", what, server)
			}
		}
	}
	return nil
}

// promotion fails unless a promotion was reported as far as it could be seen
// it: the new master's role, every sentinel's opinion, a higher epoch.
func (r *record) promotion(t topologies.Topology, old, master string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := func(node, what string) (first, last string) {
		for _, o := range r.seen {
			if o.Node != node || o.What != what {
				continue
			}
			if first == "" {
				first = o.Value
			}
			last = o.Value
		}
		return first, last
	}
	if _, role := last(master, "role"); role != topologies.Master {
		return fmt.Errorf("%s is reported as %q", master, role)
	}
	for _, sentinel := range t.Of(topologies.Sentinel) {
		if _, seen := last(sentinel, "master"); seen != master {
			return fmt.Errorf("%s is reported to take %q for the master", sentinel, seen)
		}
	}
	if t.HasSlots() {
		before, after := last(master, "epoch")
		b, errBefore := strconv.Atoi(before)
		a, errAfter := strconv.Atoi(after)
		if errBefore != nil || errAfter != nil || a <= b {
			return fmt.Errorf("the epoch of %s went from %q to %q when it replaced %s", master, before, after, old)
		}
	}
	return nil
}
