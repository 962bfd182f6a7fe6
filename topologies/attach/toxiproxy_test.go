//go:build linux

package attach_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/Shopify/toxiproxy/v2/toxics"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/topologies"
)

// stockCommand has the test binary serve a toxiproxy.
const stockCommand = "serve-toxiproxy"

// A stock is a stock toxiproxy, before servers of an installation.
type stock struct{ api string }

// serveToxiproxy is what a process of [proxied] does instead of tests: what the program toxiproxy-server does, which
// takes two seconds of processor time to link, or what lockchaos-toxiproxy does.
func serveToxiproxy(address, config, hold string) {
	if hold != topologies.TypeHold {
		delete(toxics.ToxicRegistry, topologies.TypeHold)
	}
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	server.PopulateConfig(config)
	panic(server.Listen(address))
}

// proxied runs a stock toxiproxy with proxies of these names before these addresses.
func proxied(t *testing.T, upstreams map[string]string) stock {
	t.Helper()
	return proxiedBy(t, upstreams, "")
}

// proxiedBy runs one that holds by such a toxic; empty: a stock one.
func proxiedBy(t *testing.T, upstreams map[string]string, hold string) stock {
	t.Helper()
	dir := t.TempDir()
	type proxy struct {
		Name     string `json:"name"`
		Listen   string `json:"listen"`
		Upstream string `json:"upstream"`
		Enabled  bool   `json:"enabled"`
	}
	var proxies []proxy
	for name, upstream := range upstreams {
		proxies = append(proxies, proxy{name, fmt.Sprintf("%s:%d", ownAddress(), nextPort()), upstream, true})
	}
	config, err := json.Marshal(proxies)
	require.NoError(t, err)
	file := filepath.Join(dir, "proxies.json")
	require.NoError(t, os.WriteFile(file, config, 0o600))
	s := stock{netip.AddrPortFrom(ownAddress(), nextPort()).String()}
	cmd := exec.Command(os.Args[0], stockCommand, s.api, file, hold)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	ctx := within(t)
	require.NoError(t, await.Until(ctx, func() error {
		if found, err := s.ask(http.MethodGet, "proxies", ""); err != nil || strings.Count(found, `"listen"`) < len(upstreams) {
			return fmt.Errorf("%s: %w", found, err)
		}
		return nil
	}))
	return s
}

// ask is a request of the owner to the API.
func (s stock) ask(method, path, body string) (string, error) {
	request, err := http.NewRequest(method, "http://"+s.api+"/"+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	said, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode >= 300 {
		err = errors.New(response.Status)
	}
	return string(said), err
}

func (s stock) must(t *testing.T, method, path, body string) string {
	t.Helper()
	said, err := s.ask(method, path, body)
	require.NoError(t, err, said)
	return said
}

func probe(t *testing.T, w topologies.Proxy, limit time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	_, err := w.Probe(ctx)
	return err
}

func TestLinksOfAStockToxiproxy(t *testing.T) {
	t.Parallel()
	i := install(t, topologies.Single)
	at := i.endpoint("redis-1")
	s := proxied(t, map[string]string{"zone-a>redis-1": at, "zone-b>redis-1": at, "web": at})
	b := i.backend()
	b.Toxiproxy = s.api
	b.Endpoints = nil // the proxies tell

	t.Run("all of them", func(t *testing.T) {
		d := attached(t, i, b)
		require.NotContains(t, d.Unsupported(), topologies.Proxies)
		var names []string
		for _, l := range d.Topology().Links {
			names = append(names, l.Name())
			require.NoError(t, probe(t, d.Proxy(l.Name()), time.Minute))
		}
		require.ElementsMatch(t, []string{"zone-a>redis-1", "zone-b>redis-1"}, names)
	})
	t.Run("reset counts", func(t *testing.T) {
		d := attached(t, i, b)
		require.Zero(t, d.Proxy("zone-a>redis-1").Reset())
		c := topologies.Clients(d.ClientOptions("zone-a"))[0]
		defer c.Close()
		require.NoError(t, c.Ping(within(t)).Err())
		require.Equal(t, 1, d.Proxy("zone-a>redis-1").Reset())
		require.Zero(t, d.Proxy("zone-b>redis-1").Reset())
		require.NoError(t, c.Ping(within(t)).Err(), "it dials again")
	})
	t.Run("what is held arrives", func(t *testing.T) {
		d := attached(t, i, b)
		o := d.ClientOptions("zone-a")
		o.ReadTimeout = time.Minute // the reply is late
		c := topologies.Clients(o)[0]
		defer c.Close()
		require.NoError(t, c.Ping(within(t)).Err())
		w := d.Proxy("zone-a>redis-1")
		mend, err := w.Put(topologies.Downstream, topologies.Hold())
		require.NoError(t, err)
		reply := make(chan error, 1)
		go func() { reply <- c.Set(within(t), "held", "v", time.Minute).Err() }()
		require.Eventually(t, func() bool { return d.Server("redis-1").Observer().Exists(within(t), "held").Val() == 1 },
			time.Minute, time.Millisecond, "only the reply is held")
		mend()
		require.NoError(t, <-reply)
	})
	t.Run("faults add up", func(t *testing.T) {
		d := attached(t, i, b)
		w := d.Proxy("zone-b>redis-1")
		one, err := w.Put(topologies.Both, topologies.Hold())
		require.NoError(t, err)
		two, err := w.Put(topologies.Upstream, topologies.Hold())
		require.NoError(t, err)
		cut := w.Cut()
		one()
		cut()
		require.Error(t, probe(t, w, 30*time.Millisecond), "one hold is left")
		two()
		require.NoError(t, probe(t, w, time.Minute))
	})
	t.Run("close mends", func(t *testing.T) {
		before := s.must(t, http.MethodGet, "proxies", "")
		d := attached(t, i, b)
		_, err := d.Proxy("zone-a>redis-1").Put(topologies.Both, topologies.Hold())
		require.NoError(t, err)
		d.Proxy("zone-b>redis-1").Cut()
		require.NotEqual(t, before, s.must(t, http.MethodGet, "proxies", ""))
		require.NoError(t, d.Close())
		require.Equal(t, before, s.must(t, http.MethodGet, "proxies", ""))
	})
	t.Run("leftovers of a killed run", func(t *testing.T) {
		s.must(t, http.MethodPost, "proxies/zone-a%3Eredis-1/toxics", `{"name":"lockchaos-1","type":"bandwidth","attributes":{"rate":0}}`)
		s.must(t, http.MethodPost, "proxies/zone-a%3Eredis-1/toxics", `{"name":"ours","type":"latency","attributes":{"latency":1}}`)
		s.must(t, http.MethodPost, "proxies/zone-b%3Eredis-1", `{"enabled":false}`)
		d := attached(t, i, b)
		now := s.must(t, http.MethodGet, "proxies", "")
		require.NotContains(t, now, "lockchaos-")
		require.NotContains(t, now, `"enabled":false`)
		require.NoError(t, probe(t, d.Proxy("zone-b>redis-1"), time.Minute))
		require.Contains(t, now, "ours", "what is somebody else's stays")
		s.must(t, http.MethodPost, "reset", "")
	})
	t.Run("without leave", func(t *testing.T) {
		b := b
		b.Yes = false
		d := attached(t, i, b)
		require.Contains(t, d.Unsupported()[topologies.Proxies], "leave")
		require.Nil(t, d.Proxy("zone-a>redis-1"))
	})
	t.Run("an endpoint is a proxy", func(t *testing.T) {
		b := b
		b.Endpoints = []string{listens(t, s, "zone-b>redis-1")}
		at := attached(t, i, b)
		require.NoError(t, probe(t, at.Proxy("zone-a>redis-1"), time.Minute))
	})
	t.Run("disabled", func(t *testing.T) {
		s.must(t, http.MethodPost, "proxies/zone-b%3Eredis-1", `{"enabled":false}`)
		b := b
		b.Yes = false
		refused(t, b, topologies.Single, "proxy zone-b>redis-1 is disabled")
		s.must(t, http.MethodPost, "reset", "")
	})
	t.Run("named otherwise", func(t *testing.T) {
		b := b
		b.Toxiproxy = proxied(t, map[string]string{"web": at, "db": at}).api
		refused(t, b, topologies.Single, "no proxy that is named as a link, such as zone-a>redis-1, but db, web")
	})
	t.Run("gone", func(t *testing.T) {
		i.kill("redis-1")
		refused(t, b, topologies.Single, "nothing listens at "+at)
	})
}

// Both kinds of toxiproxy have all faults of links that last, of which a stock one has the hold by a bandwidth of nothing.
func TestToxicsOfAToxiproxy(t *testing.T) {
	t.Parallel()
	i := install(t, topologies.Single)
	at := i.endpoint("redis-1")
	for _, hold := range []string{"", topologies.TypeHold} {
		b := i.backend()
		b.Toxiproxy, b.Endpoints = proxiedBy(t, map[string]string{"zone-a>redis-1": at, "zone-b>redis-1": at}, hold).api, nil
		d := attached(t, i, b)
		w := d.Proxy("zone-a>redis-1")
		took := func(least time.Duration, do func(context.Context) (time.Duration, error)) {
			t.Helper()
			got, err := do(within(t))
			require.NoError(t, err)
			require.GreaterOrEqual(t, got, least)
		}
		for _, tt := range []struct {
			put   topologies.Toxic
			shown string
			look  func()
		}{
			{topologies.Latency(40*time.Millisecond, 0), "latency", func() { took(40*time.Millisecond, w.Probe) }},
			{topologies.SlowClose(40 * time.Millisecond), "slow_close", func() { took(40*time.Millisecond, w.ProbeClose) }},
			{topologies.Rate(20), "bandwidth", func() {
				took(50*time.Millisecond, func(ctx context.Context) (time.Duration, error) { return w.ProbeBandwidth(ctx, 1000) })
			}},
			{topologies.Hold(), cmp.Or(hold, "bandwidth"), func() { require.Error(t, probe(t, w, 30*time.Millisecond)) }},
		} {
			mend, err := w.Put(topologies.Upstream, tt.put)
			require.NoError(t, err)
			tt.look()
			shown, enabled, err := w.Toxics(within(t))
			require.NoError(t, err)
			require.Equal(t, []string{tt.shown}, shown)
			require.True(t, enabled)
			mend()
			require.NoError(t, probe(t, w, time.Minute))
		}
		mend := w.Cut()
		_, enabled, err := w.Toxics(within(t))
		require.NoError(t, err)
		require.False(t, enabled)
		mend()
		require.NoError(t, d.Close())
	}
}

// listens is where a proxy listens.
func listens(t *testing.T, s stock, name string) string {
	t.Helper()
	var all map[string]struct {
		Listen string `json:"listen"`
	}
	require.NoError(t, json.Unmarshal([]byte(s.must(t, http.MethodGet, "proxies", "")), &all))
	return all[name].Listen
}

func aLinkThatNoProxyStandsForIsNamed(t *testing.T, i *installation) {
	t.Helper()
	s := proxied(t, map[string]string{
		"zone-a>redis-1": i.endpoint("redis-1"), "zone-b>redis-1": i.endpoint("redis-1"),
		"zone-a>redis-2": i.endpoint("redis-2"),
	})
	b := i.backend()
	b.Toxiproxy = s.api
	d := attached(t, i, b)
	require.Contains(t, d.Unsupported()[topologies.Proxies], "zone-a>redis-3")
	require.NotContains(t, d.Unsupported()[topologies.Proxies], "zone-a>redis-2")
	require.NotNil(t, d.Proxy("zone-a>redis-2"), "what there is can be used")
	require.Nil(t, d.Proxy("zone-b>redis-2"))
}
