package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/topologies"
)

const (
	// poolSize is how many connections a client may have to a server.
	poolSize = 64
	// tokenPool is for clients of which every worker blocks a connection.
	tokenPool = 320
	// serverLimit bounds what is asked of the servers between the slices.
	serverLimit = 20 * time.Second
)

// A testServers is the deployment that a workload uses, with the faults that the workload asks for.
type testServers struct {
	deployment topologies.Deployment
	heals      []func(context.Context) error
	live       []*redis.Client      // to ask the servers, past every fault
	kept       map[string][]Acquire // the instances of systems that stay, by name
}

// prepare puts the workload's conditions on a deployment.
func prepare(ctx context.Context, d topologies.Deployment, w Workload) (*testServers, error) {
	g := &testServers{deployment: d, kept: map[string][]Acquire{}}
	victim := ""
	if w.Dead || w.Silent {
		victim = d.Topology().Of(topologies.Redis)[0]
	}
	for _, name := range d.Topology().Of(topologies.Redis) {
		if n, _ := d.Topology().Node(name); name != victim && n.Role == topologies.Master {
			o := direct(d.Server(name), 1) // which may be busy with what is measured
			o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = serverLimit, serverLimit, serverLimit, serverLimit
			g.live = append(g.live, redis.NewClient(o))
		}
	}
	var err error
	if w.Delay > 0 {
		err = g.delay(w.Delay)
	}
	if s := d.Server(victim); err == nil && s != nil {
		if w.Dead {
			err = s.Kill(ctx)
			g.heals = append(g.heals, s.Restart)
		} else {
			err = s.Pause(ctx)
			g.heals = append(g.heals, s.Resume)
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("prepare %s: %w", w.Name, err), g.heal(ctx))
	}
	return g, nil
}

// delay puts the latency on what the zones send.
func (g *testServers) delay(d time.Duration) error {
	for _, l := range g.deployment.Topology().Links {
		if l.Kind != topologies.Client {
			continue
		}
		wire := g.deployment.Proxy(l.Name())
		if wire == nil {
			return fmt.Errorf("link %s can't be delayed on this backend", l.Name())
		}
		mend, err := wire.Put(topologies.Upstream, topologies.Latency(d, 0))
		if err != nil {
			return err
		}
		g.heals = append(g.heals, func(context.Context) error { mend(); return nil })
	}
	return nil
}

func (g *testServers) heal(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), serverLimit)
	defer cancel()
	var errs []error
	for _, heal := range g.heals {
		errs = append(errs, heal(ctx))
	}
	for _, rdb := range g.live {
		errs = append(errs, rdb.Close())
	}
	return errors.Join(errs...)
}

// clients connects an instance: by the links where there is a delay, else directly
// to the servers. All clients are alike: no request is repeated, and contexts end
// them.
func (g *testServers) clients(w Workload, system string, instance int) []redis.UniversalClient {
	pool := poolSize
	if system == BaselineToken {
		pool = tokenPool
	}
	d := g.deployment
	if w.Delay > 0 {
		zones := d.Topology().Of(topologies.Zone)
		o := d.ClientOptions(zones[instance%len(zones)])
		// The timeouts of a chaos run are short, for a harness that waits for them.
		o.PoolSize, o.ReadTimeout, o.WriteTimeout = pool, 0, 0
		return topologies.Clients(o)
	}
	if d.Topology().HasSlots() {
		return []redis.UniversalClient{g.cluster(pool)}
	}
	var clients []redis.UniversalClient
	for _, name := range d.Topology().Of(topologies.Redis) {
		if n, _ := d.Topology().Node(name); n.Role == topologies.Master {
			clients = append(clients, redis.NewClient(direct(d.Server(name), pool)))
		}
	}
	return clients
}

// direct connects to a server past its links.
func direct(s topologies.Server, pool int) *redis.Options {
	seen := s.Observer().Options()
	return &redis.Options{
		Network: seen.Network, Addr: seen.Addr, Username: seen.Username, Password: seen.Password, TLSConfig: seen.TLSConfig,
		PoolSize: pool, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
	}
}

// cluster follows the slots past the links: a server that is called by the address
// that it announces is dialled at its own.
func (g *testServers) cluster(pool int) *redis.ClusterClient {
	d := g.deployment
	return redis.NewClusterClient(&redis.ClusterOptions{
		Addrs:        d.ClientOptions(d.Topology().Of(topologies.Zone)[0]).Addrs,
		MaxRedirects: -1,
		NewClient: func(o *redis.Options) *redis.Client {
			if s := d.Server(d.NodeAt(o.Addr)); s != nil {
				return redis.NewClient(direct(s, pool))
			}
			return redis.NewClient(o)
		},
	})
}
