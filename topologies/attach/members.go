package attach

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/internal/bootstrap"
	"github.com/lockchaos/lockchaos/topologies/internal/proxynet"
)

// members are those of a consensus store that another operator runs. Clients reach them by
// proxies of our own, which no other program uses.
type members struct {
	topology topologies.Topology
	store    bootstrap.Consensus
	version  string
	nodes    map[string]bootstrap.Node
	links    *proxynet.Network
	claim    *memberClaim
}

// Why something can't be done to members.
const (
	noMemberProcess   = "the processes of members that lockchaos did not start are out of its reach"
	noMemberIsolation = "members reach each other past lockchaos' proxies, so that none of them can be cut off"
)

// startMembers attaches to the members that the endpoints name, all of them.
func (b Backend) startMembers(ctx context.Context, t topologies.Topology, store bootstrap.Consensus) (topologies.Deployment, error) {
	for _, not := range []struct { // what only Redis can be attached to with
		given bool
		what  string
	}{
		{b.Toxiproxy != "", "a toxiproxy"},
		{b.Compose != "", "a compose project"},
		{b.MasterName != "", "the name of a master"},
		{b.Username != "" || b.SentinelUsername != "", "a user"},
		{b.TLS != nil, "TLS"},
	} {
		if not.given {
			return nil, usage("topology %s is attached to by the addresses of its members alone, without %s", t.Name, not.what)
		}
	}
	m, err := b.findMembers(ctx, t, store)
	if err == nil {
		err = m.open(ctx, b.Log)
	}
	if err != nil {
		return nil, fmt.Errorf("attach to topology %s: %w", t.Name, err)
	}
	without := map[topologies.Capability]string{
		topologies.Processes: noMemberProcess, topologies.Isolation: noMemberIsolation,
		topologies.Wiping: noWiping, topologies.Settings: noSettings,
	}
	if !b.Yes {
		without[topologies.HandOvers] = noLeave
	}
	b.Log.InfoContext(ctx, "found", "topology", t.Name, "version", m.version, "servers", b.Endpoints)
	return bootstrap.Adopt(ctx, bootstrap.Parts{
		Topology: m.topology, Store: store, Version: m.version, Nodes: m.nodes,
		Proxy: func(name string) topologies.Proxy { return m.links.Link(name) },
		Dial: func(zone string) bootstrap.Dialer {
			return func(ctx context.Context, _, addr string) (net.Conn, error) { // along the links of the zone, and nothing past them
				for name, n := range m.nodes {
					if n.Announced == addr {
						return m.links.Dial(ctx, zone+">"+name)
					}
				}
				return nil, fmt.Errorf("no member of topology %s is at %s", m.topology.Name, addr)
			}
		},
		Foreign: true, Check: m.claim.held, Without: without, Log: b.Log,
		// Nothing of ours reaches the members any more when what we wrote is removed.
		Restore: func() error { return errors.Join(m.links.Close(), m.claim.end()) },
		Close: func() error {
			var errs []error
			for _, n := range m.nodes {
				errs = append(errs, n.Observer().Close())
			}
			return errors.Join(errs...)
		},
	})
}

// findMembers asks all members who they are, and waits a while for those that have no
// leader.
func (b Backend) findMembers(ctx context.Context, t topologies.Topology, store bootstrap.Consensus) (*members, error) {
	topology, err := topologies.New(t.Name, topologies.Options{Nodes: len(b.Endpoints)})
	if err != nil {
		return nil, usage("every member is an endpoint: %w", err)
	}
	m := &members{topology: topology, store: store, nodes: map[string]bootstrap.Node{}}
	m.topology.Links = slices.DeleteFunc(topology.Links, func(l topologies.Link) bool { return l.Kind != topologies.Client })
	met := make([]bootstrap.Introduction, len(b.Endpoints))
	at := make([]bootstrap.Address, len(b.Endpoints))
	err = settled(ctx, b.Log, func(ctx context.Context) error {
		group, ctx := errgroup.WithContext(ctx)
		for i, endpoint := range b.Endpoints {
			group.Go(func() (err error) {
				at[i], met[i], err = b.probe(ctx, topology, store, endpoint)
				return err
			})
		}
		return group.Wait()
	})
	if err != nil {
		return nil, err
	}
	m.version = met[0].Version
	for i, name := range m.topology.Servers() {
		if n := met[i].Members; n != len(met) {
			return nil, usage("%s is one of %d members, and %d endpoints were given: name all members, and no others", b.Endpoints[i], n, len(met))
		}
		for j := range i {
			if met[j].Member == met[i].Member {
				return nil, usage("%s and %s are the same member", b.Endpoints[j], b.Endpoints[i])
			}
		}
		o := bootstrap.ObserverOptions("")
		o.Dialer = bootstrap.NoRedis(name)
		unreached := &server{foundServer: &foundServer{name: name, client: redis.NewClient(o)}, why: noMemberProcess}
		m.nodes[name] = bootstrap.Node{Server: unreached, Announced: at[i].Announced.String(), At: at[i]}
	}
	return m, nil
}

// memberAccess is how members let us in: as they let any client.
func memberAccess(t topologies.Topology) access { return access{to: t.Store() + " member"} }

// probe asks one member for its identity.
func (b Backend) probe(ctx context.Context, t topologies.Topology, store bootstrap.Consensus, endpoint string) (at bootstrap.Address, met bootstrap.Introduction, err error) {
	ctx, cancel := context.WithTimeout(ctx, meetTimeout)
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", endpoint) // which may be given by a name
	if err == nil {
		at.Listen, err = netip.ParseAddrPort(c.RemoteAddr().String())
		at.Announced = at.Listen
		_ = c.Close()
	}
	if err == nil {
		met, err = store.Meet(ctx, at)
	}
	switch {
	case err != nil:
		return at, met, memberAccess(t).refused(endpoint, err)
	case met.Leaderless != "":
		return at, met, unsettled("%s: %s", endpoint, met.Leaderless)
	}
	return at, met, nil
}

// open claims the members, and puts the proxies before them.
func (m *members) open(ctx context.Context, log *slog.Logger) (err error) {
	if m.claim, err = m.take(ctx, log); err != nil {
		return err
	}
	var endpoints []proxynet.Endpoint
	for _, zone := range m.topology.Of(topologies.Zone) {
		endpoints = append(endpoints, proxynet.Endpoint{Name: zone})
	}
	for name, n := range m.nodes {
		endpoints = append(endpoints, proxynet.Endpoint{Name: name, Real: n.At.Listen, Greeting: m.store.Greeting})
	}
	if m.links, err = proxynet.New(endpoints, m.topology.Links); err != nil {
		return errors.Join(err, m.claim.end())
	}
	return nil
}

// A memberClaim is our right to drive members.
type memberClaim struct {
	bootstrap.Claim
	renewal
}

// take claims the members, and sees that each knows of it: one that does not is of another cluster.
func (m *members) take(ctx context.Context, log *slog.Logger) (*memberClaim, error) {
	c := &memberClaim{renewal: renewal{log: log}}
	var members []bootstrap.Address
	for _, name := range m.topology.Servers() {
		members = append(members, m.nodes[name].At)
	}
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	owner := claimOwner()
	var who string
	var err error
	if c.Claim, who, err = m.store.Claim(ctx, members, owner, claimLease); err != nil {
		return nil, memberAccess(m.topology).refused(members[0].Announced.String(), err)
	}
	if who != "" {
		return nil, usage("another run drives this deployment: %s; if that one is dead, its claim %s ends by itself within %v", who, bootstrap.ClaimKey, claimLease)
	}
	var knows, other string
	for _, at := range members {
		seen, err := c.Owner(ctx, at)
		if err != nil {
			return nil, errors.Join(memberAccess(m.topology).refused(at.Announced.String(), err), c.Release(ctx))
		}
		if seen == owner {
			knows = at.Announced.String()
		} else {
			other = at.Announced.String()
		}
	}
	if other != "" {
		return nil, errors.Join(usage("%s is of another cluster than %s", other, knows), c.Release(ctx))
	}
	c.begin(func(ctx context.Context) {
		if err := c.Renew(ctx); errors.Is(err, bootstrap.ErrClaimLost) {
			c.lose(ctx, err)
		}
	})
	return c, nil
}

// end removes what was written under the claim, and gives it up. Where it is lost, another
// run may have written since.
func (c *memberClaim) end() error {
	c.stop()
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	err := c.Renew(ctx)
	if err == nil {
		err = c.Sweep(ctx)
	}
	if err = errors.Join(err, c.Release(ctx)); err != nil {
		return fmt.Errorf("what is new below %s: %w", bootstrap.LocksPrefix, err)
	}
	return nil
}
