package topologiestest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/topologies"
)

// name checks the address that leads to the master, of a topology that has one.
func (s suite) name() {
	topology := s.d.Topology()
	if !topology.Options.ByName() {
		s.t.Skip("clients go by no name")
	}
	zones, shard := topology.Of(topologies.Zone), topology.Shards()[0]
	d := s.d.(topologies.Replicated)
	var old, master string
	s.await("the master", func(ctx context.Context) (err error) {
		old, err = d.Master(ctx, shard)
		return err
	})
	seen := s.watch()
	s.await("Watch to report where the name leads", func(context.Context) error { return seen.name(old) })
	open := map[string]*redis.Conn{}
	for _, zone := range zones {
		open[zone] = s.client(zone)[0].(*redis.Client).Conn()
		defer open[zone].Close()
		s.await(zone+" to be led to "+old, func(ctx context.Context) error { return s.talksTo(ctx, open[zone], old) })
	}

	done := s.moves(d, shard, old)
	s.do("await another master", func(ctx context.Context) (err error) {
		master, err = d.AwaitMaster(ctx, shard, old)
		return err
	})
	done()
	s.await("Watch to report that the name moved", func(context.Context) error { return seen.name(master) })
	for _, zone := range zones {
		// Sentinels end the connections to a server that they demote.
		if err := s.talksTo(s.t.Context(), open[zone], old); err != nil && s.stays() {
			s.t.Errorf("the connection of %s that was open when the name moved: %v", zone, err)
		}
		s.await(zone+" to be led to "+master, func(ctx context.Context) error {
			conn := s.client(zone)[0].(*redis.Client).Conn()
			defer conn.Close()
			return s.talksTo(ctx, conn, master)
		})
	}

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

// stays reports whether connections to a server that becomes a replica stay open.
func (s suite) stays() bool { return !s.d.Topology().Elects() }

// moves makes another server the master, and returns what must be done after that.
func (s suite) moves(d topologies.Replicated, shard, old string) (done func()) {
	if f, ok := d.(topologies.Failover); ok {
		s.do("promote", func(ctx context.Context) error { return f.Promote(ctx, shard) })
		return func() { s.do("disarm", f.Disarm) }
	}
	members := d.Topology().Members(shard)
	next := members[0]
	if next == old {
		next = members[1]
	}
	var host, port string
	s.await("the address of "+next, func(ctx context.Context) error {
		config, err := d.Server(next).Observer().ConfigGet(ctx, "replica-announce-*").Result()
		host, port = config["replica-announce-ip"], config["replica-announce-port"]
		return err
	})
	s.await("no more to replicate", func(ctx context.Context) error {
		conn := d.Server(old).Observer().Conn()
		defer conn.Close()
		if err := conn.Set(ctx, "k", "v", time.Minute).Err(); err != nil {
			return err
		}
		n, err := conn.Wait(ctx, len(members)-1, 50*time.Millisecond).Result()
		if err == nil && int(n) < len(members)-1 {
			err = fmt.Errorf("%d replicas have it all", n)
		}
		return err
	})
	// Each can be said again, which it has to be where a slow disk keeps the answer back.
	s.await(next+" to be a master", func(ctx context.Context) error {
		return d.Server(next).Observer().Do(ctx, "REPLICAOF", "NO", "ONE").Err()
	})
	for _, name := range members {
		if name != next {
			s.await(name+" to follow "+next, func(ctx context.Context) error {
				return d.Server(name).Observer().Do(ctx, "REPLICAOF", host, port).Err()
			})
		}
	}
	return func() {
		for _, name := range members { // a restart keeps it
			s.await("what "+name+" follows to be written down", func(ctx context.Context) error {
				return d.Server(name).Observer().ConfigRewrite(ctx).Err()
			})
		}
	}
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

// name fails unless the name was reported last to lead to that server.
func (r *record) name(server string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := "nowhere"
	for _, o := range r.seen {
		if o.Node == topologies.Primary && o.What == "master" {
			last = o.Value
		}
	}
	if last != server {
		return fmt.Errorf("it is reported to lead to %s", last)
	}
	return nil
}
