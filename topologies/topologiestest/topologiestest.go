// Package topologiestest is the contract of [topologies.Backend] as a test
// suite, in the manner of testing/fstest: the author of a backend runs
// [Run] in a test, on servers that are really there.
package topologiestest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/topologies"
)

// limit bounds one condition that is awaited, on a machine that may be busy.
const limit = time.Minute

// Run starts each topology with the backend and checks that
//
//   - the deployment is what was asked for, and serves every zone;
//   - every link can be cut and mended, and one of each kind be held and
//     delayed, in each direction;
//   - servers are killed, restarted, wiped, paused and resumed, and keep their
//     data if, and only if, they were to;
//   - a failover, by crash and by request, ends with clients of every zone
//     writing to the new master, and is reported by Watch;
//   - a name leads clients to the master, over the link to it, before and after a
//     failover, and Watch reports where;
//   - it is whole again after all of that, and can be closed twice.
//
// What the deployment says it is [topologies.Deployment.Without] is left out,
// and the test's log says so. After Close, left returns what is left behind;
// nil means that it is not checked.
func Run(t *testing.T, b topologies.Backend, left func(d topologies.Deployment) []string, ts ...topologies.Topology) {
	t.Helper()
	for _, topology := range ts {
		t.Run(fmt.Sprint(topology.Name, " ", topology.Options.Changed(topology.Name)), func(t *testing.T) { run(t, b, topology, left) })
	}
}

func run(t *testing.T, b topologies.Backend, topology topologies.Topology, left func(d topologies.Deployment) []string) {
	t.Helper()
	started := time.Now()
	d, err := b.Start(t.Context(), topology)
	require.NoError(t, err)
	t.Logf("ready after %v", time.Since(started).Round(time.Millisecond))
	t.Cleanup(func() {
		for _, n := range d.Topology().Nodes {
			if server := d.Server(n.Name); t.Failed() && server != nil && server.Log() != "" {
				log, err := os.ReadFile(server.Log())
				t.Logf("log of %s (%v):\n%s", n.Name, err, log)
			}
		}
		assert.NoError(t, errors.Join(d.Close(), d.Close()))
		if left != nil {
			assert.Empty(t, left(d), "left behind")
		}
	})
	for c, why := range d.Unsupported() {
		t.Logf("without %s: %s", c, why)
	}
	for _, c := range []struct {
		name  string
		needs topologies.Capability
		check func(s suite)
	}{
		{"boots", "", suite.boots},
		{"links", topologies.Proxies, suite.links},
		{"failover", topologies.Failovers, suite.failovers},
		{"processes", topologies.Processes, suite.processes},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := suite{t, d}
			if s.without(c.needs) {
				t.Skipf("without %s", c.needs)
			}
			c.check(s)
			s.whole()
		})
	}
}

// A suite is the deployment under test, and the test that looks at it.
type suite struct {
	t *testing.T
	d topologies.Deployment
}

func (s suite) without(c topologies.Capability) bool {
	_, without := s.d.Unsupported()[c]
	return without
}

// whole waits until the deployment is as it was at first.
func (s suite) whole() {
	s.t.Helper()
	s.do("await readiness", s.d.AwaitReady)
}

// do calls something that has to succeed within the limit.
func (s suite) do(what string, act func(ctx context.Context) error) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), limit)
	defer cancel()
	require.NoError(s.t, act(ctx), what)
}

// await waits until a condition holds.
func (s suite) await(what string, holds func(ctx context.Context) error) {
	s.t.Helper()
	s.do("await "+what, func(ctx context.Context) error {
		return await.Until(ctx, func() error { return holds(ctx) })
	})
}

// client connects clients of a zone.
func (s suite) client(zone string) []redis.UniversalClient {
	s.t.Helper()
	clients := topologies.Clients(s.d.ClientOptions(zone))
	s.t.Cleanup(func() {
		for _, c := range clients {
			_ = c.Close()
		}
	})
	return clients
}

// boots checks that the deployment is what was asked for.
func (s suite) boots() {
	topology := s.d.Topology()
	assert.NotEmpty(s.t, s.d.Version())
	for _, n := range topology.Nodes {
		server := s.d.Server(n.Name)
		if n.Kind == topologies.Zone {
			assert.Nil(s.t, server, n.Name)
			continue
		}
		require.NotNil(s.t, server, n.Name)
		require.Equal(s.t, n.Name, server.Name())
		s.await(n.Name+" to be observed", func(ctx context.Context) error { return server.Observer().Ping(ctx).Err() })
		if log := server.Log(); log != "" {
			assert.FileExists(s.t, log)
		}
		if n.Kind != topologies.Redis {
			continue
		}
		s.await(n.Name+" to be a "+n.Role, func(ctx context.Context) error {
			role, _, err := topologies.RoleOf(ctx, server.Observer())
			if err == nil && role != n.Role {
				err = fmt.Errorf("it is a %s", role)
			}
			return err
		})
	}
	for _, l := range topology.Links {
		if !s.without(topologies.Proxies) {
			require.NotNil(s.t, s.d.Proxy(l.Name()), l.Name())
			assert.Equal(s.t, l.Name(), s.d.Proxy(l.Name()).Name())
		}
	}
	assert.Nil(s.t, s.d.Server("no-such"))
	assert.Nil(s.t, s.d.Proxy("no-such>redis-1"))
	for _, zone := range topology.Of(topologies.Zone) {
		o := s.d.ClientOptions(zone)
		for _, at := range o.Addrs {
			_, known := topology.Node(s.d.NodeAt(at))
			assert.True(s.t, known || topology.Options.ByName() && s.d.NodeAt(at) == topologies.Primary, "%s is told to dial %s, which is no server", zone, at)
		}
		for _, c := range s.client(zone) {
			s.await(zone+" to write", func(ctx context.Context) error { return c.Set(ctx, "k", zone, time.Minute).Err() })
		}
	}
}

// silent tells an answer that did not come from one that was refused.
func silent(err error) bool {
	var netErr net.Error
	return errors.As(err, &netErr) && netErr.Timeout()
}
