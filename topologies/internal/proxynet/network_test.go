//go:build linux

package proxynet_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2/client"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lockchaos/lockchaos/internal/traffic"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/internal/proxynet"
)

func TestMain(m *testing.M) {
	if at := os.Getenv(dialTo); at != "" {
		os.Exit(dialler(at)) //nolint:forbidigo // it is main here
	}
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/lockchaos/lockchaos/internal/spawn.thread.func1"))
}

// The addresses of this package's tests: a slot that no deployment takes.
var (
	caller   = netip.MustParseAddr("127.251.3.1")
	stranger = netip.MustParseAddr("127.251.3.9")
)

// pair is a network with one link, from a caller to a server that sends every
// line back, and that pushes lines of its own to whoever says "push".
func pair(t *testing.T) (*proxynet.Network, topologies.Proxy, netip.AddrPort) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.251.1.1:0")
	require.NoError(t, err)
	at := l.Addr().(*net.TCPAddr).AddrPort()
	var served sync.WaitGroup
	served.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			served.Go(func() { serve(c) })
		}
	})
	virtual := netip.AddrPortFrom(netip.MustParseAddr("127.251.2.1"), at.Port())
	f, err := proxynet.New([]proxynet.Endpoint{
		{Name: "caller", Source: caller},
		{Name: "server", Source: at.Addr(), Virtual: virtual, Real: at},
	}, []topologies.Link{{From: "caller", To: "server", Kind: topologies.Client}})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, f.Close())
		require.NoError(t, l.Close())
		served.Wait()
	})
	return f, f.Link("caller>server"), virtual
}

func serve(c net.Conn) {
	defer c.Close()
	lines := bufio.NewScanner(c)
	for lines.Scan() {
		if lines.Text() == "push" {
			for i := 0; ; i++ {
				if _, err := fmt.Fprintln(c, "pushed", i); err != nil {
					return
				}
			}
		}
		if _, err := fmt.Fprintln(c, lines.Text()); err != nil {
			return
		}
	}
}

func dial(t *testing.T, from netip.Addr, to netip.AddrPort) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: from.AsSlice()}}
	c, err := d.DialContext(t.Context(), "tcp", to.String())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// judge has the messages of a link judged.
func judge(w topologies.Proxy, f func(traffic.Message) traffic.Action) (stop func(), err error) {
	return w.(*proxynet.Link).Judge(f)
}

func TestMessagesMeetTheirFate(t *testing.T) {
	_, w, virtual := pair(t)
	until, passed := make(chan struct{}), make(chan bool, 2)
	var ends atomic.Int64 // of a connection from which something was lost
	stop, err := judge(w, func(m traffic.Message) traffic.Action {
		if m.Kind != traffic.Command || len(m.Words) == 0 {
			return traffic.Action{}
		}
		switch m.Words[0] {
		case "keep":
			return traffic.Action{Until: until, Passed: passed}
		case "lose":
			return traffic.Action{Lost: true, Ends: traffic.End(ends.Load())}
		default:
			return traffic.Action{}
		}
	})
	require.NoError(t, err)
	say := func(c net.Conn, words ...string) {
		for _, word := range words {
			_, err := fmt.Fprintln(c, word)
			require.NoError(t, err)
		}
	}
	hear := func(c net.Conn, want string) {
		require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
		got := make([]byte, len(want))
		_, err := io.ReadFull(c, got)
		require.NoError(t, err)
		require.Equal(t, want, string(got))
	}

	lossy := dial(t, caller, virtual)
	say(lossy, "one", "lose", "two")
	hear(lossy, "one\ntwo\n")

	held, gone := dial(t, caller, virtual), dial(t, caller, virtual)
	say(held, "before", "keep", "after")
	hear(held, "before\n")
	say(gone, "keep")
	require.NoError(t, gone.Close()) // its end waits behind what is kept
	close(until)
	hear(held, "keep\nafter\n")
	require.True(t, <-passed)
	require.True(t, <-passed)

	ends.Store(int64(traffic.GoesSilent))
	dumb := dial(t, caller, virtual)
	say(dumb, "one", "lose", "two")
	hear(dumb, "one\n")
	require.NoError(t, dumb.(*net.TCPConn).CloseWrite())
	rest, err := io.ReadAll(dumb)
	require.NoError(t, err, "its end is passed on")
	require.Empty(t, rest)

	ends.Store(int64(traffic.Resets))
	reset := dial(t, caller, virtual)
	say(reset, "lose")
	_, err = io.ReadAll(reset)
	require.Error(t, err, "a reset is no end")

	stop()
	say(lossy, "lose")
	hear(lossy, "lose\n")
}

func TestWhatWasKeptIsLostWithItsConnection(t *testing.T) {
	_, w, virtual := pair(t)
	judged, passed := make(chan struct{}), make(chan bool, 1)
	stop, err := judge(w, func(traffic.Message) traffic.Action {
		close(judged)
		return traffic.Action{Until: make(chan struct{}), Passed: passed}
	})
	require.NoError(t, err)
	defer stop()
	c := dial(t, caller, virtual)
	_, err = fmt.Fprintln(c, "kept")
	require.NoError(t, err)
	<-judged
	require.Equal(t, 1, w.Reset())
	require.False(t, <-passed)
}

func TestRequestsOfClientsAreCounted(t *testing.T) {
	_, w, virtual := pair(t)
	counts := func() (begun, open, refused int64) { return w.(*proxynet.Link).Requests() }
	reads := func(want, wantOpen int64) {
		t.Helper()
		require.Eventually(t, func() bool {
			begun, open, _ := counts()
			return begun == want && open == wantOpen
		}, time.Minute, time.Millisecond)
	}
	probing, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	_, err := w.Probe(probing)
	require.NoError(t, err)
	reads(0, 0) // what the harness sends is no request of a client

	c := dial(t, caller, virtual) // the server sends each line back, which is its reply
	lines := bufio.NewScanner(c)
	for _, line := range []string{"PING", "HELLO 3", "SET lockchaos:ready 1", "DEL lockchaos:ready{x}", "GET k"} {
		_, err = fmt.Fprintln(c, line)
		require.NoError(t, err)
		require.True(t, lines.Scan())
	}
	reads(1, 0)
	mend, err := w.Put(topologies.Upstream, topologies.Hold())
	require.NoError(t, err)
	_, err = fmt.Fprintln(c, "GET k")
	require.NoError(t, err)
	reads(2, 1) // on its way
	mend()
	require.True(t, lines.Scan())
	reads(2, 0)

	mend, err = w.Put(topologies.Upstream, topologies.Hold())
	require.NoError(t, err)
	_, err = fmt.Fprintln(c, "GET k")
	require.NoError(t, err)
	reads(3, 1)
	together := w.Cut()
	require.False(t, lines.Scan())
	reads(3, 0) // lost with its connection
	_, err = w.Probe(probing)
	require.Error(t, err)
	reads(3, 0)
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: caller.AsSlice()}}
	if refused, err := d.DialContext(t.Context(), "tcp", virtual.String()); err == nil {
		_, err = io.ReadAll(refused)
		require.Error(t, err)
		refused.Close()
	}
	reads(4, 0) // a connection that was refused
	_, _, refused := counts()
	require.EqualValues(t, 1, refused)
	together()
	mend()
}

// echo is a server that says its name first, and then sends every line back.
func echo(t *testing.T, name string, at netip.Addr) netip.AddrPort {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", netip.AddrPortFrom(at, 0).String())
	require.NoError(t, err)
	var served sync.WaitGroup
	served.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			served.Go(func() {
				fmt.Fprintln(c, name)
				serve(c)
			})
		}
	})
	t.Cleanup(func() {
		require.NoError(t, l.Close())
		served.Wait()
	})
	return l.Addr().(*net.TCPAddr).AddrPort()
}

func TestAnAddressThatMovesLeavesConnectionsWhereTheyAre(t *testing.T) {
	one := echo(t, "one", netip.MustParseAddr("127.251.1.1"))
	two := echo(t, "two", netip.MustParseAddr("127.251.1.2"))
	name := netip.MustParseAddrPort("127.251.2.200:22001")
	f, err := proxynet.New([]proxynet.Endpoint{
		{Name: "caller", Source: caller},
		{Name: "one", Source: one.Addr(), Real: one},
		{Name: "two", Source: two.Addr(), Real: two},
		{Name: "name", Virtual: name, Moves: true},
	}, []topologies.Link{
		{From: "caller", To: "one", Kind: topologies.Client},
		{From: "caller", To: "two", Kind: topologies.Client},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	// refused dials, and sees the connection end: a reset may come before the dial is
	// done, or after.
	refused := func(from netip.Addr) {
		t.Helper()
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: from.AsSlice()}}
		c, err := d.DialContext(t.Context(), "tcp", name.String())
		if err == nil {
			defer c.Close()
			_, err = io.ReadAll(c)
		}
		require.Error(t, err)
	}
	hears := func(lines *bufio.Scanner, want string) {
		t.Helper()
		require.True(t, lines.Scan(), "%v", lines.Err())
		require.Equal(t, want, lines.Text())
	}
	refused(caller) // it leads nowhere yet

	f.Point("name", "one")
	first := dial(t, caller, name)
	ofFirst := bufio.NewScanner(first)
	hears(ofFirst, "one")
	f.Point("name", "two")
	second := dial(t, caller, name)
	ofSecond := bufio.NewScanner(second)
	hears(ofSecond, "two")
	_, err = fmt.Fprintln(first, "still here")
	require.NoError(t, err)
	hears(ofFirst, "still here")
	refused(stranger)

	// The faults of a link are those of the connections to its server.
	mend := f.Link("caller>two").Cut()
	require.False(t, ofSecond.Scan())
	refused(caller)
	_, err = fmt.Fprintln(first, "unharmed")
	require.NoError(t, err)
	hears(ofFirst, "unharmed")
	mend()
	third := bufio.NewScanner(dial(t, caller, name))
	hears(third, "two")
}

func TestFaultsAddUp(t *testing.T) {
	_, w, virtual := pair(t)
	probe := func() (time.Duration, error) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		return w.Probe(ctx)
	}
	const late = 200 * time.Millisecond
	one, err := w.Put(topologies.Upstream, topologies.Latency(late, 0))
	require.NoError(t, err)
	two, err := w.Put(topologies.Upstream, topologies.Latency(late, 0))
	require.NoError(t, err)
	took, err := probe()
	require.NoError(t, err)
	// Of two latencies, toxiproxy takes off twice what data waited before the first.
	require.GreaterOrEqual(t, took, late+late/2)
	one()
	one() // to mend twice does nothing
	took, err = probe()
	require.NoError(t, err)
	require.GreaterOrEqual(t, took, late)
	two()

	first, second := w.Cut(), w.Cut()
	first()
	_, err = probe()
	require.Error(t, err, "one of two cuts is left")
	second()
	_, err = probe()
	require.NoError(t, err)

	_, err = w.Put("sideways", topologies.Hold())
	require.ErrorContains(t, err, `unknown stream "sideways"`)
	require.Eventually(t, func() bool { return w.Reset() == 0 }, time.Minute, time.Millisecond, "no connection is left")
	dial(t, caller, virtual)
	require.Eventually(t, func() bool { return w.Reset() == 1 }, time.Minute, time.Millisecond)
}

func TestAHoldKeepsItsDataWhileOtherFaultsComeAndGo(t *testing.T) {
	_, w, virtual := pair(t)
	c := dial(t, caller, virtual)
	early, err := w.Put(topologies.Upstream, topologies.Latency(time.Millisecond, 0))
	require.NoError(t, err)
	lift, err := w.Put(topologies.Upstream, topologies.Hold())
	require.NoError(t, err)
	_, err = fmt.Fprintln(c, "kept")
	require.NoError(t, err)
	late, err := w.Put(topologies.Upstream, topologies.Latency(time.Millisecond, 0))
	require.NoError(t, err)
	early()
	late()
	require.NoError(t, c.(*net.TCPConn).CloseWrite())
	require.NoError(t, c.SetReadDeadline(time.Now().Add(30*time.Millisecond)))
	_, err = c.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "it lets nothing through")
	lift()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
	got, err := io.ReadAll(c)
	require.NoError(t, err)
	require.Equal(t, "kept\n", string(got))
}

// TestTorture changes the faults of a link while its connections come, push
// data and die. In toxiproxy's own proxies this hangs within seconds.
func TestTorture(t *testing.T) {
	_, w, virtual := pair(t)
	var changes atomic.Int64
	begin := time.Now()
	goesOn := func() bool { return time.Since(begin) < 2*time.Second || changes.Load() < 10 }
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(i)))
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: caller.AsSlice()}}
			for goesOn() {
				c, err := d.DialContext(t.Context(), "tcp", virtual.String())
				if err != nil {
					continue
				}
				fmt.Fprintln(c, "push")
				_, _ = io.CopyN(io.Discard, c, rng.Int64N(1<<16))
				c.Close()
			}
		})
	}
	for i := range 3 {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(2, uint64(i)))
			for goesOn() {
				mend := func() {}
				var err error
				switch rng.IntN(7) {
				case 0:
					mend, err = w.Put(topologies.Both, topologies.Hold())
				case 1:
					mend, err = w.Put(topologies.Downstream, topologies.Latency(2*time.Millisecond, time.Millisecond))
				case 2:
					mend = w.Cut()
				case 3:
					mend, err = w.Put(topologies.Upstream, topologies.Rate(64))
				case 4:
					mend, err = w.Put(topologies.Downstream, topologies.SlowClose(time.Millisecond))
				case 5:
					until := make(chan struct{})
					var stop func()
					stop, err = judge(w, func(traffic.Message) traffic.Action { return traffic.Action{Until: until} })
					mend = func() {
						stop()
						close(until)
					}
				default:
					w.Reset()
				}
				if err != nil {
					t.Error(err)
				}
				time.Sleep(time.Duration(rng.IntN(5)) * time.Millisecond) // what happens meanwhile is what is tested
				mend()
				changes.Add(1)
			}
		})
	}
	done := make(chan struct{})
	go func() {
		all.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		t.Fatal("a change of the faults hangs")
	}
	probing, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	_, err := w.Probe(probing)
	require.NoError(t, err, "with every fault mended, the link works")
}

// Faults that last are toxics, and a cut a proxy that is disabled, to whoever looks at toxiproxy's API.
func TestFaultsShowInToxiproxysAPI(t *testing.T) {
	f, w, _ := pair(t)
	api := httptest.NewServer(f.API())
	defer api.Close()
	shows := func() string {
		p, err := toxiproxy.NewClient(api.URL).Proxy(w.Name())
		require.NoError(t, err)
		shown := fmt.Sprint(p.Enabled)
		for _, x := range p.ActiveToxics {
			shown += fmt.Sprintf(" %s/%s%v", x.Type, x.Stream, x.Attributes)
		}
		return shown
	}
	require.Equal(t, "true", shows())
	for _, tt := range []struct {
		put  topologies.Toxic
		want string
	}{
		{topologies.Hold(), "true hold/upstreammap[]"},
		{topologies.Latency(2*time.Millisecond, time.Millisecond), "true latency/upstreammap[jitter:1 latency:2]"},
		{topologies.Rate(3), "true bandwidth/upstreammap[rate:3]"},
		{topologies.SlowClose(4 * time.Millisecond), "true slow_close/upstreammap[delay:4]"},
	} {
		mend, err := w.Put(topologies.Upstream, tt.put)
		require.NoError(t, err)
		require.Equal(t, tt.want, shows())
		mend()
		require.Equal(t, "true", shows())
	}
	mend := w.Cut()
	require.Equal(t, "false", shows())
	mend()
	require.Equal(t, "true", shows())
	_, err := w.Put(topologies.Both, topologies.Toxic{Type: "none"})
	require.ErrorContains(t, err, "put none on caller>server: invalid toxic type")
}

// Whatever toxics come and go, all that is sent arrives in order, and the end after it.
func TestToxicsLoseNothing(t *testing.T) {
	_, w, virtual := pair(t)
	begin := time.Now()
	sent := make(chan struct{})
	var clients, all sync.WaitGroup
	for i := range 4 {
		clients.Go(func() {
			rng := rand.New(rand.NewPCG(3, uint64(i)))
			for time.Since(begin) < 2*time.Second {
				d := net.Dialer{LocalAddr: &net.TCPAddr{IP: caller.AsSlice()}}
				c, err := d.DialContext(t.Context(), "tcp", virtual.String())
				if err != nil {
					t.Error(err)
					return
				}
				var said strings.Builder
				for line := range 1 + rng.IntN(30) {
					one := fmt.Sprintln(line, strings.Repeat("x", rng.IntN(300)))
					said.WriteString(one)
					_, err = fmt.Fprint(c, one)
					if rng.IntN(3) == 0 {
						time.Sleep(time.Duration(rng.IntN(3)) * time.Millisecond) // what comes between is what is tested
					}
				}
				err = errors.Join(err, c.(*net.TCPConn).CloseWrite(), c.SetReadDeadline(time.Now().Add(time.Minute)))
				heard, wrong := io.ReadAll(c)
				if err = errors.Join(err, wrong); err != nil || string(heard) != said.String() {
					t.Errorf("%d bytes were sent, and %d came back: %v", said.Len(), len(heard), err)
				}
				c.Close()
			}
		})
	}
	for i := range 2 {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(4, uint64(i)))
			for {
				select {
				case <-sent:
					return
				default:
				}
				toxics := []topologies.Toxic{topologies.Hold(), topologies.Hold(), topologies.Latency(2*time.Millisecond, time.Millisecond), topologies.Rate(500), topologies.SlowClose(3 * time.Millisecond)}
				mend, err := w.Put([]topologies.Stream{topologies.Upstream, topologies.Downstream, topologies.Both}[rng.IntN(3)], toxics[rng.IntN(len(toxics))])
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(time.Duration(rng.IntN(8)) * time.Millisecond)
				mend()
			}
		})
	}
	clients.Wait()
	close(sent)
	all.Wait()
}
