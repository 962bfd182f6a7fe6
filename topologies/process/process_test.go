package process_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/process"
)

func TestMain(m *testing.M) {
	logging.Disable()
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/lockchaos/lockchaos/topologies/process.newSpawner.func1"))
}

// start boots a topology, or skips the test where there is no redis-server.
func start(t *testing.T, name string) topologies.Deployment {
	t.Helper()
	if testing.Short() {
		t.Skip("needs real servers; -short leaves them out")
	}
	if _, err := process.FindBinary(t.Context()); err != nil {
		if os.Getenv("LOCKCHAOS_TEST_REQUIRE") == "1" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	topology, err := topologies.ByName(name)
	require.NoError(t, err)
	d, err := process.Backend{}.Start(t.Context(), topology)
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			for _, n := range topology.Nodes {
				if s := d.Server(n.Name); s != nil {
					log, err := os.ReadFile(s.Log())
					t.Logf("log of %s (%v):\n%s", n.Name, err, log)
				}
			}
		}
		require.NoError(t, d.Close())
	})
	return d
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestEveryClientLinkOfEveryTopologyCanBeCutHeldDelayedAndMended(t *testing.T) {
	for _, name := range topologies.Names() {
		t.Run(name, func(t *testing.T) {
			d := start(t, name)
			links, err := d.Topology().Select("zone-a")
			require.NoError(t, err)
			for _, l := range links {
				w := d.Wire(l.Name())
				probe := func(limit time.Duration) (time.Duration, error) {
					ctx, cancel := context.WithTimeout(t.Context(), limit)
					defer cancel()
					return w.Probe(ctx)
				}
				_, err := probe(time.Second)
				require.NoError(t, err, l.Name())

				mend := w.Cut()
				_, err = probe(time.Second)
				require.Error(t, err, "%s is cut", l.Name())
				require.False(t, timedOut(err), "a cut refuses, and does not stay silent: %v", err)
				mend()

				for _, s := range []topologies.Stream{topologies.Upstream, topologies.Downstream} {
					mend, err := w.Hold(s)
					require.NoError(t, err)
					_, err = probe(30 * time.Millisecond)
					require.True(t, timedOut(err), "%s is held %s: %v", l.Name(), s, err)
					mend()
				}

				mend, err = w.Delay(topologies.Downstream, 40*time.Millisecond, 0)
				require.NoError(t, err)
				took, err := probe(time.Second)
				require.NoError(t, err)
				require.GreaterOrEqual(t, took, 40*time.Millisecond)
				mend()

				_, err = probe(time.Second)
				require.NoError(t, err, "%s is mended", l.Name())
			}
		})
	}
}

func timedOut(err error) bool {
	var netErr net.Error
	return errors.As(err, &netErr) && netErr.Timeout()
}

func TestWhatIsHeldIsDeliveredOnceMended(t *testing.T) {
	d := start(t, "single")
	ctx := within(t)
	client := redis.NewUniversalClient(d.ClientOptions("zone-a"))
	defer client.Close()
	require.NoError(t, client.Ping(ctx).Err())

	w := d.Wire("zone-a>redis-1")
	mend, err := w.Hold(topologies.Downstream)
	require.NoError(t, err)
	reply := make(chan error, 1)
	go func() { reply <- client.Set(ctx, "k", "v", 0).Err() }()
	observer := d.Server("redis-1").Observer()
	require.Eventually(t, func() bool { return observer.Get(ctx, "k").Val() == "v" }, 500*time.Millisecond, time.Millisecond,
		"the request goes through, only its reply is held")
	select {
	case err := <-reply:
		t.Fatalf("the reply came through a held stream: %v", err)
	default:
	}
	mend()
	require.NoError(t, <-reply)
}

func TestFaultsOnOneZoneLeaveTheOtherAlone(t *testing.T) {
	d := start(t, "single")
	ctx := within(t)
	defer d.Wire("zone-a>redis-1").Cut()()
	b := redis.NewUniversalClient(d.ClientOptions("zone-b"))
	defer b.Close()
	require.NoError(t, b.Ping(ctx).Err())
	a := redis.NewUniversalClient(d.ClientOptions("zone-a"))
	defer a.Close()
	require.Error(t, a.Ping(ctx).Err())
}

func TestResetEndsEveryConnectionOnce(t *testing.T) {
	d := start(t, "single")
	ctx := within(t)
	conn := redis.NewUniversalClient(d.ClientOptions("zone-a")).(*redis.Client)
	defer conn.Close()
	id := conn.ClientID(ctx).Val()
	require.Positive(t, d.Wire("zone-a>redis-1").Reset())
	require.Eventually(t, func() bool {
		again, err := conn.ClientID(ctx).Result()
		return err == nil && again != id
	}, time.Second, time.Millisecond)
}

func TestServersAreKilledRestartedPausedAndResumed(t *testing.T) {
	d := start(t, "single")
	ctx := within(t)
	s := d.Server("redis-1")
	require.NoError(t, s.Observer().Set(ctx, "k", "v", 0).Err())

	require.NoError(t, s.Pause(ctx))
	require.True(t, timedOut(s.Observer().Ping(ctx).Err()), "a paused server is silent")
	require.NoError(t, s.Resume(ctx))
	require.Eventually(t, func() bool { return s.Observer().Ping(ctx).Err() == nil }, 5*time.Second, time.Millisecond)
	require.Equal(t, "v", s.Observer().Get(ctx, "k").Val())

	require.ErrorContains(t, s.Restart(ctx), "still runs")
	require.NoError(t, s.Kill(ctx))
	require.NoError(t, s.Kill(ctx), "to kill what is gone is no error")
	require.Error(t, s.Observer().Ping(ctx).Err())
	require.Error(t, s.Pause(ctx), "what is gone can't be paused")
	require.NoError(t, s.Restart(ctx))
	require.ErrorIs(t, s.Observer().Get(ctx, "k").Err(), redis.Nil, "without persistence a restart forgets")
	log, err := os.ReadFile(s.Log())
	require.NoError(t, err)
	require.Contains(t, string(log), "Ready to accept connections")
}

func TestFailoverByCrashAndByRequest(t *testing.T) {
	d := start(t, "sentinel").(topologies.Failover)
	ctx := within(t)
	client := redis.NewUniversalClient(d.ClientOptions("zone-a"))
	defer client.Close()
	require.NoError(t, client.Set(ctx, "k", "v", 0).Err())
	old, err := d.Master(ctx)
	require.NoError(t, err)
	require.Equal(t, "redis-1", old)
	require.EqualValues(t, 2, client.Do(ctx, "WAIT", 2, 1000).Val())

	require.NoError(t, d.Arm(ctx))
	require.NoError(t, d.Server(old).Kill(ctx))
	second, err := d.AwaitMaster(ctx, old)
	require.NoError(t, err)
	require.NoError(t, d.Disarm(ctx))
	require.Eventually(t, func() bool { return client.Get(ctx, "k").Val() == "v" }, 10*time.Second, 5*time.Millisecond,
		"clients find the new master, which has what was replicated")
	require.NoError(t, d.Server(old).Restart(ctx))
	require.NoError(t, d.AwaitReady(ctx), "the old master comes back as a replica")

	require.NoError(t, d.Promote(ctx))
	third, err := d.AwaitMaster(ctx, second)
	require.NoError(t, err)
	require.NotEqual(t, second, third)
	require.NoError(t, d.Disarm(ctx))
	require.NoError(t, d.AwaitReady(ctx))
	require.Eventually(t, func() bool { return client.Set(ctx, "k", "w", 0).Err() == nil }, 10*time.Second, 5*time.Millisecond)
}

func TestWatchReportsPromotions(t *testing.T) {
	d := start(t, "sentinel").(topologies.Failover)
	ctx, cancel := context.WithCancel(within(t))
	seen := make(chan topologies.Observation, 100)
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.Watch(ctx, func(o topologies.Observation) { seen <- o })
	}()
	promoted := func(o topologies.Observation) bool {
		return o.Node != "redis-1" && o.What == "role" && o.Value == topologies.Master
	}
	require.NoError(t, d.Promote(ctx))
	for saw := false; !saw; {
		select {
		case o := <-seen:
			saw = promoted(o)
		case <-ctx.Done():
			t.Fatal("no promotion was reported")
		}
	}
	cancel()
	<-done
}

func TestCloseLeavesNothing(t *testing.T) {
	for _, name := range topologies.Names() {
		d := start(t, name)
		dir := d.(interface{ Dir() string }).Dir()
		require.DirExists(t, dir)
		require.NoError(t, d.Server("redis-1").Pause(within(t)), "a paused process goes as well")
		require.NoError(t, d.Close())
		require.NoDirExists(t, dir)
		require.Empty(t, processesIn(t, dir))
	}
}

// processesIn finds processes that work, or worked, inside dir.
func processesIn(t *testing.T, dir string) []string {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/cwd")
	require.NoError(t, err)
	var found []string
	for _, link := range links {
		if cwd, err := os.Readlink(link); err == nil && strings.HasPrefix(cwd, dir) {
			found = append(found, link)
		}
	}
	return found
}

func TestTwoDeploymentsRunSideBySide(t *testing.T) {
	ctx := within(t)
	one, two := start(t, "single"), start(t, "single")
	require.NoError(t, one.Server("redis-1").Observer().Set(ctx, "k", "one", 0).Err())
	require.ErrorIs(t, two.Server("redis-1").Observer().Get(ctx, "k").Err(), redis.Nil)
}

func TestStartSaysWhatIsMissing(t *testing.T) {
	topology, err := topologies.ByName("single")
	require.NoError(t, err)
	script := func(body string) string {
		path := filepath.Join(t.TempDir(), "redis-server")
		require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o700))
		return path
	}
	tests := []struct {
		name, binary, want string
		is                 error
	}{
		{"no binary", "/nowhere/redis-server", "names /nowhere/redis-server, and there is no such program", topologies.ErrMissing},
		{"too old", script("echo Redis server v=6.2.14 sha=0"), "7.0.0 is the oldest", topologies.ErrTooOld},
		{"not a redis", script("echo hello"), "no version in", nil},
		{"does not start", script(`[ "$1" = --version ] && echo v=7.0.0 || { echo "Out of luck"; exit 1; }`), "Out of luck", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv(process.BinaryVariable, tt.binary)
			_, err := process.Backend{}.Start(within(t), topology)
			require.ErrorContains(t, err, tt.want)
			if tt.is != nil {
				require.ErrorIs(t, err, tt.is)
			}
		})
	}
}
