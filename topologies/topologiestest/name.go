package topologiestest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/topologies"
)

// name checks the address that leads to the master, of a topology that has one and whose servers replace it.
func (s suite) name() {
	topology := s.d.Topology()
	if !topology.Options.ByName() || !topology.Elects() {
		s.t.Skip("clients go by no name, or nothing moves it")
	}
	zones, shard := topology.Of(topologies.Zone), topology.Shards()[0]
	old, seen := s.master(shard), s.watch()
	leads := func(want string) func(context.Context) error {
		return func(context.Context) error {
			if _, to := seen.of(topologies.Primary, "master"); to != want {
				return fmt.Errorf("it is reported to lead to %q", to)
			}
			return nil
		}
	}
	s.await("Watch to report where the name leads", leads(old))
	led := func(to string) {
		for _, zone := range zones {
			s.await(zone+" to be led to "+to, func(ctx context.Context) error {
				conn := s.client(zone)[0].(*redis.Client).Conn()
				defer conn.Close()
				return s.talksTo(ctx, conn, to)
			})
		}
	}
	led(old)
	s.do("promote", func(ctx context.Context) error { return s.d.Promote(ctx, shard) })
	master := s.replaces(shard, old)
	s.await("Watch to report that the name moved", leads(master))
	led(master)

	// The link to the server behind the name is the one that its connections pass.
	inside, outside := s.client(zones[0])[0], s.client(zones[1])[0]
	for _, c := range []redis.UniversalClient{inside, outside} {
		s.await("a client to write", func(ctx context.Context) error { return c.Set(ctx, "k", "v", time.Minute).Err() })
	}
	mend := s.d.Proxy(zones[0] + ">" + master).Cut()
	if err := inside.Set(s.t.Context(), "k", "v", time.Minute).Err(); err == nil {
		s.t.Errorf("%s is cut off from %s, and writes to the master by its name", zones[0], master)
	}
	s.await(zones[1]+" to write", func(ctx context.Context) error { return outside.Set(ctx, "k", "v", time.Minute).Err() })
	mend()
	s.whole()
}

// talksTo fails unless a connection leads to that server.
func (s suite) talksTo(ctx context.Context, conn *redis.Conn, server string) error {
	id := func(info string, err error) (string, error) {
		_, id, _ := strings.Cut(info, "run_id:")
		return strings.Fields(id + " ?")[0], err
	}
	there, err := id(conn.Info(ctx, "server").Result())
	if err != nil {
		return err
	}
	wanted, err := id(s.d.Server(server).Observer().Info(ctx, "server").Result())
	if err == nil && there != wanted {
		err = fmt.Errorf("it leads elsewhere than to %s", server)
	}
	return err
}
