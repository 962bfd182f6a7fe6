package topologiestest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/topologies"
)

// failovers checks that a shard's master changes, and that all nodes learn of
// it.
func (s suite) failovers() {
	if !s.d.Topology().Elects() {
		s.t.Skipf("topology %s has no master that could change", s.d.Topology().Name)
	}
	shards := s.d.Topology().Shards()
	_, err := s.d.Master(s.t.Context(), "no-such")
	assert.Error(s.t, err, "there is a master of an unknown shard")
	if s.without(topologies.Processes) {
		s.t.Logf("no crash, without %s", topologies.Processes)
	} else {
		s.changes(shards[0], func(old string) {
			s.do("arm", s.d.Arm)
			s.do("kill "+old, s.d.Server(old).Kill)
		}, func(old string) {
			s.do("restart "+old, s.d.Server(old).Restart)
		})
	}
	shard := shards[len(shards)-1]
	s.changes(shard, func(string) {
		s.do("promote", func(ctx context.Context) error { return s.d.Promote(ctx, shard) })
	}, func(string) {})
}

// master is that of a shard, once the servers have agreed on it.
func (s suite) master(shard string) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), limit)
	defer cancel()
	return MasterOf(ctx, s.t, s.d, shard)
}

// changes makes a shard fail over and sees what comes of it.
func (s suite) changes(shard string, begin, end func(old string)) {
	s.t.Helper()
	d := s.d
	var clients []redis.UniversalClient
	for _, zone := range d.Topology().Of(topologies.Zone) {
		clients = append(clients, s.client(zone)...)
	}
	old := s.master(shard)
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
	seen := &record{}
	s.t.Cleanup(await.Behind(s.t.Context(), func(ctx context.Context) {
		d.Watch(ctx, func(o topologies.Observation) {
			seen.mu.Lock()
			defer seen.mu.Unlock()
			seen.seen = append(seen.seen, o)
		})
	}))
	s.await("Watch to report every server", func(context.Context) error { return seen.complete(d.Topology()) })

	begin(old)
	master := ""
	s.do("await another master", func(ctx context.Context) (err error) {
		master, err = d.AwaitMaster(ctx, shard, old)
		return err
	})
	s.do("disarm", d.Disarm)
	require.NotEqual(s.t, old, master)
	write("after", master)
	s.await("Watch to report it", func(context.Context) error { return seen.promotion(d.Topology(), old, master) })
	end(old)
	s.whole()
	require.Equal(s.t, master, s.master(shard))
	write("at last", master)
}

// A record is what Watch reported until the test ends, in order.
type record struct {
	mu   sync.Mutex
	seen []topologies.Observation
}

// of is what was reported of a node first, and last.
func (r *record) of(node, what string) (first, last string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range r.seen {
		if o.Node == node && o.What == what {
			first, last = cmp.Or(first, o.Value), o.Value
		}
	}
	return first, last
}

// complete fails unless every server was reported once, and where the name leads.
func (r *record) complete(t topologies.Topology) error {
	if _, to := r.of(topologies.Primary, "master"); to == "" && t.Options.ByName() {
		return errors.New("where the name leads was not reported")
	}
	for _, server := range t.Of(topologies.Redis) {
		if _, role := r.of(server, "role"); role == "" {
			return fmt.Errorf("the role of %s was not reported", server)
		}
		if _, epoch := r.of(server, "epoch"); epoch == "" && t.HasSlots() {
			return fmt.Errorf("the epoch of %s was not reported", server)
		}
	}
	return nil
}

// promotion fails unless a promotion was reported as far as it could be seen: the new
// master's role, every sentinel's opinion, a higher epoch.
func (r *record) promotion(t topologies.Topology, old, master string) error {
	if _, role := r.of(master, "role"); role != topologies.Master {
		return fmt.Errorf("%s is reported as %q", master, role)
	}
	if _, to := r.of(topologies.Primary, "master"); to != master && t.Options.ByName() {
		return fmt.Errorf("the name is reported to lead to %q", to)
	}
	for _, sentinel := range t.Of(topologies.Sentinel) {
		if _, seen := r.of(sentinel, "master"); seen != master {
			return fmt.Errorf("%s is reported to take %q for the master", sentinel, seen)
		}
	}
	if !t.HasSlots() {
		return nil
	}
	before, after := r.of(master, "epoch")
	b, errBefore := strconv.Atoi(before)
	a, errAfter := strconv.Atoi(after)
	if errBefore != nil || errAfter != nil || a <= b {
		return fmt.Errorf("the epoch of %s went from %q to %q when it replaced %s", master, before, after, old)
	}
	return nil
}

// MasterOf is the master, or the leader, of a shard, on which the servers have agreed before ctx
// ends; else the test fails. A server may be late to answer on a busy machine, so that one look
// does not always find it.
func MasterOf(ctx context.Context, t *testing.T, d topologies.Deployment, shard string) (master string) {
	t.Helper()
	require.NoError(t, await.Until(ctx, func() (err error) {
		master, err = d.Master(ctx, shard)
		return err
	}))
	return master
}
