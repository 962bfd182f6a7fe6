package attach

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/Shopify/toxiproxy/v2/client"
	"github.com/moby/moby/client"

	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/internal/bootstrap"
)

// discoverTimeout bounds how long it may take to find out what there is.
const discoverTimeout = 20 * time.Second

// Start attaches to the deployment and returns once it proved whole. Of the
// topology that is given, only the name counts: how many servers there are, the
// deployment knows. Its servers are named after the proxies before them, the
// others in the order of their addresses, or of the endpoints for independent.
//
// It writes to no server before all was checked, and then first that the
// deployment is taken: one that another run has is refused. What can't be
// attached to is [ErrUsage]. Closing the deployment ends every fault, lets run again what was
// killed or paused, and puts back the settings of sentinels that were changed;
// it stops no server.
func (b Backend) Start(ctx context.Context, t topologies.Topology) (topologies.Deployment, error) {
	if err := b.Validate(); err != nil {
		return nil, err
	}
	if err := CheckOptions(t.Options); err != nil {
		return nil, err
	}
	if b.Log == nil {
		b.Log = slog.New(slog.DiscardHandler)
	}
	if store := bootstrap.NewConsensus(t.Store()); store != nil {
		return b.startMembers(ctx, t, store)
	}
	s, err := b.discover(ctx, t.Name)
	var p bootstrap.Parts
	if err == nil {
		if p, err = b.parts(ctx, s); err != nil {
			s.close()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("attach to topology %s: %w", t.Name, err)
	}
	d, err := bootstrap.Adopt(ctx, p)
	if errors.Is(err, bootstrap.ErrRefused) || errors.Is(err, bootstrap.ErrUnsettled) {
		return nil, usage("%w", err)
	}
	return d, err
}

// CheckOptions refuses options of a topology that no deployment which runs already
// can have: they are of what starts it.
func CheckOptions(o topologies.Options) error {
	if o.ByName() {
		return usage("access %s needs an address that lockchaos moves, and clients of a deployment that runs already dial its own (use --backend process or container)", topologies.AccessName)
	}
	return nil
}

// settleTimeout bounds how long a deployment may take to become whole that is
// not: one sentinel may just have lost sight of another.
const settleTimeout = 5 * time.Second

// discover asks the containers, the proxies and the servers, and changes nothing.
func (b Backend) discover(ctx context.Context, topology string) (*discovery, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, discoverTimeout, fmt.Errorf("no answer after %v", discoverTimeout))
	defer cancel()
	y, err := b.openProxies(ctx, topology)
	if err != nil {
		return nil, err
	}
	var s *discovery
	err = settled(ctx, b.Log, func(ctx context.Context) error {
		var err error
		s, err = b.look(ctx, y, topology)
		return err
	})
	return s, err
}

// settled looks at a deployment until it is whole, for a while.
func settled(ctx context.Context, log *slog.Logger, look func(context.Context) error) error {
	for until := time.Now().Add(settleTimeout); ; {
		err := look(ctx)
		if !errors.Is(err, errUnsettled) || time.Now().After(until) {
			return err
		}
		log.InfoContext(ctx, "waiting", "for", "the deployment to be whole", "because", err)
		if over := await.Pause(ctx, settleTimeout/20); over != nil {
			return errors.Join(over, err)
		}
	}
}

// look surveys the deployment as it is now.
func (b Backend) look(ctx context.Context, y *proxySet, topology string) (*discovery, error) {
	s := &discovery{
		proxies:    y,
		topology:   topology,
		masterName: b.MasterName,
		redis:      access{username: b.Username, password: b.Password, tls: b.TLS},
		sentinels:  access{username: b.SentinelUsername, password: b.SentinelPassword, tls: b.TLS},
	}
	endpoints, err := b.endpoints(ctx, s)
	if err == nil {
		err = s.run(ctx, endpoints)
	}
	if err == nil {
		err = s.assignNames()
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// openProxies finds the containers and the proxies.
func (b Backend) openProxies(ctx context.Context, topology string) (*proxySet, error) {
	y := &proxySet{}
	if b.Compose != "" {
		if err := y.enter(ctx, b.Compose); err != nil {
			return nil, err
		}
	}
	api := b.Toxiproxy
	for i, c := range y.containers {
		at, ok := c.publishedPort(toxiproxyPort)
		if !ok || api == "" && c.service() != topology+"-toxiproxy" && c.service() != "toxiproxy" {
			continue
		}
		if api == "" || api == at {
			api, y.proxied = at, &y.containers[i]
		}
	}
	if api == "" {
		return y, nil
	}
	y.toxiproxy = &toxiproxyAPI{toxiproxy.NewClient(api), api}
	all, err := inTime(y.toxiproxy.Proxies)
	if err != nil {
		return nil, usage("no toxiproxy answers at %s: %w", api, err)
	}
	return y, y.open(all, b.Yes)
}

// toxiproxyPort is where a toxiproxy has its API by default.
const toxiproxyPort = "8474"

// enter finds the containers of a compose project.
func (y *proxySet) enter(ctx context.Context, project string) error {
	var err error
	if y.engine, err = newEngine(); err != nil {
		return usage("%w", err)
	}
	list, err := y.engine.ContainerList(ctx, client.ContainerListOptions{ // stopped ones too
		All: true, Filters: client.Filters{}.Add("label", projectLabel+"="+project),
	})
	if err != nil {
		return fmt.Errorf("%w: no Docker engine answers: docker: %w", topologies.ErrMissing, err)
	}
	for _, c := range list.Items {
		y.containers = append(y.containers, container{c})
	}
	slices.SortFunc(y.containers, func(a, b container) int { return strings.Compare(a.service(), b.service()) })
	if len(y.containers) == 0 {
		return usage("there is no container of a compose project %s", project)
	}
	return nil
}

// endpoints are those that were typed, or all that the proxies lead to: of those,
// the ones to start from.
func (b Backend) endpoints(ctx context.Context, s *discovery) ([]string, error) {
	if len(b.Endpoints) > 0 {
		return b.Endpoints, nil
	}
	all := s.proxies.upstreams()
	if len(all) == 0 {
		return nil, usage("no endpoint was given, and project %s has no service %s-toxiproxy that would tell where the servers are; is that topology up?",
			b.Compose, s.topology)
	}
	if s.topology != topologies.Sentinels {
		return all, nil
	}
	var sentinels []string
	for _, at := range all {
		// Servers and sentinels let us in by different words, so nothing is said
		// here about those that do not let us in.
		if f, err := s.probe(ctx, s.sentinels, at); err == nil && f.kind == topologies.Sentinel {
			sentinels = append(sentinels, at)
		}
	}
	if len(sentinels) == 0 {
		return nil, usage("no sentinel answers behind the proxies, at %s", strings.Join(all, ", "))
	}
	return sentinels, nil
}

// assignNames names the servers: after their proxies, the others by
// numbers.
func (s *discovery) assignNames() error {
	if s.topology != topologies.Independent {
		slices.SortStableFunc(s.found, func(a, b *foundServer) int { return say.Natural(a.announced, b.announced) })
	}
	taken := map[string]bool{}
	for _, f := range s.found {
		f.name = s.proxies.named(f.announced)
		if f.name != "" && taken[f.name] {
			return usage("two servers are behind the proxies of %s, and %s is one of them", f.name, f.announced)
		}
		taken[f.name] = true
	}
	for _, f := range s.found {
		if f.name == "" {
			for i := 1; f.name == "" || taken[f.name]; i++ {
				f.name = fmt.Sprintf("%s-%d", f.kind, i)
			}
			taken[f.name] = true
		}
	}
	slices.SortStableFunc(s.found, func(a, b *foundServer) int { return say.Natural(a.name, b.name) })
	return nil
}
