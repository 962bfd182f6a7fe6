package process_test

import (
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/process"
	"github.com/lockchaos/lockchaos/topologies/topologiestest"
)

// The members of a consensus store elect another leader whatever becomes of the one that they have, are
// whole again afterwards, and leave nothing behind. Each is told from the others by its process, or its address.
func TestMembersKeepTheContract(t *testing.T) {
	t.Parallel()
	for _, name := range []string{topologies.EtcdCluster, topologies.ZooKeeperEnsemble} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runtest.NeedStore(t, topologies.StoreOf(name))
			if name == topologies.ZooKeeperEnsemble {
				runtest.NeedCompiler(t)
			}
			topology, err := topologies.ByName(name)
			require.NoError(t, err)
			began := time.Now()
			d, err := process.Backend{}.Start(t.Context(), topology)
			require.NoError(t, err)
			t.Logf("whole after %v", time.Since(began))
			membersKeepTheContract(t, d)
		})
	}
}

// Nothing of what clients wrote is left for the next run.
func etcdEmpties(t *testing.T, d topologies.Deployment) {
	t.Helper()
	o := d.ClientOptions("zone-a")
	client := &http.Client{Transport: &http.Transport{DialContext: o.Dialer, DisableKeepAlives: true}}
	ask := func(what, body string) string {
		response, err := client.Post("http://"+o.Addrs[0]+"/v3/"+what, "application/json", strings.NewReader(body))
		require.NoError(t, err)
		defer response.Body.Close()
		said, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, response.StatusCode, "%s", said)
		return string(said)
	}
	ask("lease/grant", `{"TTL": 60, "ID": 7}`)
	ask("kv/put", `{"key": "YQ==", "lease": 7}`)
	ask("kv/put", `{"key": "Yg=="}`)
	const all = `{"key": "AA==", "range_end": "AA=="}`
	require.Contains(t, ask("kv/range", all), `"count":"2"`)
	require.NoError(t, d.Empty(t.Context()))
	require.NotContains(t, ask("kv/range", all), `"count"`)
	require.NotContains(t, ask("lease/leases", "{}"), `"ID"`)
}

// membersKeepTheContract does so, and ends them.
func membersKeepTheContract(t *testing.T, d topologies.Deployment) {
	t.Helper()
	first := d.Topology().Servers()[0]
	dir := filepath.Dir(filepath.Dir(d.Server(first).Log()))
	t.Cleanup(func() {
		require.NoError(t, d.Close())
		require.NoDirExists(t, dir)
	})
	ctx := t.Context()
	for _, l := range d.Topology().Links {
		_, err := d.Proxy(l.Name()).Probe(ctx)
		require.NoError(t, err, l.Name())
		_, reads := d.Proxy(l.Name()).(topologies.Interceptor)
		require.False(t, reads, "what passes %s is not Redis", l.Name())
	}
	if d.Topology().Store() == topologies.StoreEtcd {
		etcdEmpties(t, d)
	}
	servers := d.Topology().Servers()
	for i, a := range servers {
		for _, b := range servers[i+1:] {
			require.NoError(t, await.Until(ctx, func() error {
				if d.Proxy(a+">"+b).Reset()+d.Proxy(b+">"+a).Reset() == 0 {
					return assert.AnError
				}
				return nil
			}), "%s and %s are not connected by their links", a, b)
		}
	}
	require.Contains(t, d.Unsupported(), topologies.Settings)
	require.ErrorContains(t, d.Server(first).Observer().Ping(ctx).Err(), first+" is no Redis server")
	require.Equal(t, d.Topology().Servers()[1], d.NodeAt(d.ClientOptions("zone-a").Addrs[1]))

	cutOff := func(group ...string) (mend func()) {
		var mends []func()
		for _, l := range d.Topology().Across(group) {
			mends = append(mends, d.Proxy(l.Name()).Cut())
			_, err := d.Proxy(l.Name()).Probe(ctx)
			require.Error(t, err, l.Name())
		}
		return func() {
			for _, mend := range mends {
				mend()
			}
		}
	}
	server := func(do func(topologies.Server, context.Context) error, name string) {
		require.NoError(t, do(d.Server(name), ctx))
	}
	for _, tt := range []struct {
		name string
		do   func(leader string) (undo func())
	}{
		{"split", func(leader string) func() { return cutOff(leader, "zone-a") }},
		{"hand over", func(string) func() {
			require.NoError(t, d.Promote(ctx, first))
			return func() {}
		}},
		{"kill", func(leader string) func() {
			server(topologies.Server.Kill, leader)
			return func() { server(topologies.Server.Restart, leader) }
		}},
		{"pause", func(leader string) func() {
			server(topologies.Server.Pause, leader)
			return func() { server(topologies.Server.Resume, leader) }
		}},
	} {
		if why, without := d.Unsupported()[topologies.HandOvers]; without && tt.name == "hand over" {
			require.ErrorContains(t, d.Promote(ctx, first), why)
			continue
		}
		require.NoError(t, d.AwaitReady(ctx), tt.name)
		leader := topologiestest.MasterOf(ctx, t, d, first)
		began := time.Now()
		undo := tt.do(leader)
		next, err := d.AwaitMaster(ctx, first, leader)
		require.NoError(t, err, tt.name)
		require.NotEqual(t, leader, next, tt.name)
		elected := time.Since(began)
		undo()
		began = time.Now()
		require.NoError(t, d.AwaitReady(ctx), tt.name)
		t.Logf("%s: another leader after %v, whole %v after the heal", tt.name, elected, time.Since(began))
	}
	var mu sync.Mutex
	roles := map[string]string{}
	watching, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	d.Watch(watching, func(o topologies.Observation) {
		mu.Lock()
		defer mu.Unlock()
		roles[o.Node] = o.Value
		if slices.Equal(slices.Sorted(maps.Values(roles)), []string{topologies.Follower, topologies.Follower, topologies.Leader}) {
			stop()
		}
	})
	require.ErrorIs(t, watching.Err(), context.Canceled, "%v", roles)

	if strings.HasPrefix(first, "zookeeper") && !runtest.Nightly() {
		return // each start of a Java costs seconds
	}
	// Another program has the port of a member that comes back.
	server(topologies.Server.Kill, first)
	announced, err := netip.ParseAddrPort(d.ClientOptions("zone-a").Addrs[0])
	require.NoError(t, err)
	at := announced.Addr().As4()
	at[2] = 1 // where it listens
	taken, err := net.Listen("tcp", netip.AddrPortFrom(netip.AddrFrom4(at), announced.Port()).String())
	require.NoError(t, err)
	err = d.Server(first).Restart(ctx)
	require.NoError(t, taken.Close())
	require.ErrorContains(t, err, "await "+first+": it ended")
	require.Regexp(t, `(?i)address already in use`, err.Error())
	server(topologies.Server.Restart, first)
}
