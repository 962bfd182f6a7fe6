package topologiestest

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"

	"github.com/lockchaos/lockchaos/topologies"
)

// processes checks the faults of processes: on a master without its replicas,
// so that no server replaces it in that time or gives it back what it lost, and on a
// sentinel.
func (s suite) processes() {
	topology := s.d.Topology()
	for _, name := range topology.Of(topologies.Sentinel)[:min(1, len(topology.Of(topologies.Sentinel)))] {
		s.standsStill(s.d.Server(name))
		s.dies(s.d.Server(name))
	}
	s.whole()
	shard := topology.Of(topologies.Redis)[0]
	var master topologies.Server
	var replicas []topologies.Server
	for _, name := range topology.Members(shard) {
		role := ""
		s.await("the role of "+name, func(ctx context.Context) (err error) {
			role, _, err = topologies.RoleOf(ctx, s.d.Server(name).Observer())
			return err
		})
		if role == topologies.Master {
			master = s.d.Server(name)
		} else {
			replicas = append(replicas, s.d.Server(name))
		}
	}
	for _, r := range replicas {
		s.do("kill "+r.Name(), r.Kill)
	}
	s.standsStill(master)
	s.dies(master)
	if topology.Options.MinReplicas == 0 { // else it takes no write, being alone
		s.keeps(master, topology.Options.Persistence)
	}
	for _, r := range replicas {
		s.do("restart "+r.Name(), r.Restart)
	}
}

// standsStill pauses a server.
func (s suite) standsStill(server topologies.Server) {
	s.t.Helper()
	ping := func(ctx context.Context) error { return server.Observer().Ping(ctx).Err() }
	s.do("pause "+server.Name(), server.Pause)
	err := ping(s.t.Context())
	assert.True(s.t, silent(err), "%s is paused, and not silent: %v", server.Name(), err)
	s.do("resume "+server.Name(), server.Resume)
	s.await(server.Name()+" to answer", ping)
}

// dies kills a server and starts it again.
func (s suite) dies(server topologies.Server) {
	s.t.Helper()
	ping := func(ctx context.Context) error { return server.Observer().Ping(ctx).Err() }
	assert.Error(s.t, server.Restart(s.t.Context()), "%s runs, and is started", server.Name())
	s.do("kill "+server.Name(), server.Kill)
	s.do("kill it again, which is no error", server.Kill)
	assert.Error(s.t, ping(s.t.Context()), "%s is dead, and answers", server.Name())
	assert.Error(s.t, server.Pause(s.t.Context()), "%s is dead, and is paused", server.Name())
	s.do("restart "+server.Name(), server.Restart)
	s.await(server.Name()+" to answer", ping)
}

// keeps checks what a server has after it was killed, and after it was wiped.
func (s suite) keeps(server topologies.Server, persistence string) {
	s.t.Helper()
	// A cluster's node serves some keys only. Others may write keys too, such as
	// a claim.
	key := s.keyOf(server.Observer())
	again := func() {
		s.do("kill "+server.Name(), server.Kill)
		s.do("restart "+server.Name(), server.Restart)
	}
	has := func(want bool, after string) {
		s.t.Helper()
		// A cluster's node that was just started may not serve its slots yet.
		s.await(server.Name()+" to serve "+key, func(ctx context.Context) error {
			n, err := server.Observer().Exists(ctx, key).Result()
			if err == nil && (n > 0) != want {
				err = fmt.Errorf("after %s it has %d of it", after, n)
			}
			return err
		})
	}
	again()
	has(persistence != "" && persistence != topologies.PersistNone, "a kill")
	if s.without(topologies.Wiping) {
		return
	}
	s.await(server.Name()+" to take a write", func(ctx context.Context) error {
		return server.Observer().Set(ctx, key, "v", 0).Err()
	})
	assert.Error(s.t, server.Wipe(s.t.Context()), "%s runs, and is wiped", server.Name())
	has(true, "a wipe that was refused")
	s.do("kill "+server.Name(), server.Kill)
	s.do("wipe "+server.Name(), server.Wipe)
	s.do("restart "+server.Name(), server.Restart)
	has(false, "a wipe")
}

// keyOf writes a key that a server serves, and returns it.
func (s suite) keyOf(c *redis.Client) string {
	s.t.Helper()
	key := ""
	s.await("a key that it serves", func(ctx context.Context) error {
		var err error
		for i := range 100 {
			key = fmt.Sprintf("k%d", i)
			if err = c.Set(ctx, key, "v", 0).Err(); err == nil {
				return nil
			}
		}
		return errors.Join(errors.New("none of a hundred"), err)
	})
	return key
}
