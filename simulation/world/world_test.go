package world_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/simulation/world"
)

const ms = time.Millisecond

// options are those of a client in a zone.
func options(z *world.Zone, address string) *redis.Options {
	return &redis.Options{
		Addr: address, Dialer: z.Dialer(), MaxRetries: -1, DialerRetries: 1, PoolSize: 100, ReadTimeout: time.Second, ContextTimeoutEnabled: true,
		DisableIdentity: true, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// in runs a test in a bubble, with a server, its client, and faults.
func in(t *testing.T, plan []world.Fault, test func(t *testing.T, rdb *redis.Client)) {
	t.Helper()
	logging.Disable()
	synctest.Test(t, func(t *testing.T) {
		w := world.New(1, plan)
		n, z := w.AddServer("redis-1"), w.AddZone("zone-a")
		require.NoError(t, w.Start())
		rdb := redis.NewClient(options(z, n.Address()))
		defer func() {
			require.NoError(t, rdb.Close())
			time.Sleep(time.Minute)
			w.Close()
		}()
		test(t, rdb)
	})
}

func TestRequestsTakeTime(t *testing.T) {
	in(t, nil, func(t *testing.T, rdb *redis.Client) {
		t.Helper()
		begin := time.Now()
		require.NoError(t, rdb.Set(t.Context(), "k", "v", 0).Err())
		require.Equal(t, "v", rdb.Get(t.Context(), "k").Val())
		took := time.Since(begin)
		require.Greater(t, took, 4*50*time.Microsecond, "two ways there, and two back")
		require.Less(t, took, 100*ms)
	})
}

func TestStall(t *testing.T) {
	link := "zone-a>redis-1"
	for _, x := range []struct {
		stream  string
		arrives bool // at the server, before the heal
	}{{world.Both, false}, {world.Upstream, false}, {world.Downstream, true}} {
		t.Run(x.stream, func(t *testing.T) {
			in(t, []world.Fault{{Name: world.Stall, Target: link, Stream: x.stream, At: 10 * ms, For: 500 * ms}}, func(t *testing.T, rdb *redis.Client) {
				t.Helper()
				require.NoError(t, rdb.Ping(t.Context()).Err())
				time.Sleep(20 * ms)
				// Both are sent on one connection each, and answered after the heal.
				begin := time.Now()
				require.NoError(t, rdb.Set(t.Context(), "k", "v", 100*ms).Err())
				require.GreaterOrEqual(t, time.Since(begin), 450*ms)
				if x.arrives {
					require.Empty(t, rdb.Get(t.Context(), "k").Val(), "the key was set, and expired while the reply was held up")
				} else {
					require.Equal(t, "v", rdb.Get(t.Context(), "k").Val(), "the request arrived after the heal")
				}
			})
		})
	}
}

func TestWhatIsSentOnAConnectionArrivesInOrder(t *testing.T) {
	in(t, []world.Fault{
		{Name: world.Stall, Target: "zone-a>redis-1", At: 10 * ms, For: 50 * ms},
		{Name: world.DelayCommand, Target: "zone-a>redis-1", At: 200 * ms, By: 30 * ms},
	}, func(t *testing.T, rdb *redis.Client) {
		t.Helper()
		conn := rdb.Conn()
		defer conn.Close()
		for i := range 300 {
			pipe := conn.Pipeline()
			for range 5 {
				pipe.RPush(t.Context(), "list", i)
			}
			_, err := pipe.Exec(t.Context())
			require.NoError(t, err)
		}
		all := conn.LRange(t.Context(), "list", 0, -1).Val()
		require.Len(t, all, 1500)
		require.Equal(t, "0", all[0])
		require.Equal(t, "299", all[1499])
	})
}

func TestCut(t *testing.T) {
	in(t, []world.Fault{{Name: world.Cut, Target: "zone-a>redis-1", At: 10 * ms, For: 100 * ms}}, func(t *testing.T, rdb *redis.Client) {
		t.Helper()
		require.NoError(t, rdb.Ping(t.Context()).Err())
		time.Sleep(20 * ms)
		require.Error(t, rdb.Ping(t.Context()).Err(), "the connection was reset")
		require.ErrorContains(t, rdb.Ping(t.Context()).Err(), "connection refused")
		time.Sleep(100 * ms)
		require.NoError(t, rdb.Ping(t.Context()).Err())
	})
}

func TestFaultsOfOneRequest(t *testing.T) {
	second := &world.Anchor{Event: world.Request, Nth: 2, Command: "INCR"}
	for _, x := range []struct {
		fault string
		count string // after three requests, of which the second fails
	}{{world.DropCommand, "2"}, {world.DropReply, "3"}} {
		t.Run(x.fault, func(t *testing.T) {
			in(t, []world.Fault{{Name: x.fault, Target: "zone-a>redis-1", After: second}}, func(t *testing.T, rdb *redis.Client) {
				t.Helper()
				time.Sleep(ms)
				require.NoError(t, rdb.Ping(t.Context()).Err(), "another command")
				require.NoError(t, rdb.Incr(t.Context(), "n").Err())
				require.ErrorContains(t, rdb.Incr(t.Context(), "n").Err(), "connection reset")
				require.NoError(t, rdb.Incr(t.Context(), "n").Err())
				require.Equal(t, x.count, rdb.Get(t.Context(), "n").Val())
			})
		})
	}
}

// The client reads the first reply, and the server carries out both copies.
func TestRepeatedRequest(t *testing.T) {
	in(t, []world.Fault{{Name: world.RepeatCommand, Target: "zone-a>redis-1", By: 100 * ms}}, func(t *testing.T, rdb *redis.Client) {
		t.Helper()
		time.Sleep(ms)
		require.EqualValues(t, 1, rdb.Incr(t.Context(), "n").Val())
		require.Equal(t, "1", rdb.Get(t.Context(), "n").Val(), "the second copy is late")
		time.Sleep(150 * ms)
		require.Equal(t, "2", rdb.Get(t.Context(), "n").Val())
	})
}

// What a process has sent arrives though it is killed; it hears and sends nothing more.
func TestKillClient(t *testing.T) {
	plan := []world.Fault{{Name: world.KillClient, Target: "zone-a", After: &world.Anchor{Event: world.Request, Of: "zone-a>redis-1", Command: "INCR"}}}
	logging.Disable()
	synctest.Test(t, func(t *testing.T) {
		w := world.New(1, plan)
		n := w.AddServer("redis-1")
		zones := []*world.Zone{w.AddZone("zone-a"), w.AddZone("zone-b")}
		require.NoError(t, w.Start())
		a, b := redis.NewClient(options(zones[0], n.Address())), redis.NewClient(options(zones[1], n.Address()))
		require.NoError(t, a.Ping(t.Context()).Err())
		require.Error(t, a.Incr(t.Context(), "n").Err())
		require.Error(t, zones[0].Stand())
		require.ErrorContains(t, a.Ping(t.Context()).Err(), "the process of the client was killed")
		time.Sleep(100 * ms)
		require.Equal(t, "1", b.Get(t.Context(), "n").Val())
		require.NoError(t, zones[1].Stand())
		require.NoError(t, errors.Join(a.Close(), b.Close()))
		time.Sleep(time.Minute)
		w.Close()
	})
}

func TestDelays(t *testing.T) {
	for _, name := range []string{world.DelayCommand, world.DelayReply} {
		t.Run(name, func(t *testing.T) {
			in(t, []world.Fault{{Name: name, Target: "zone-a>redis-1", By: 700 * ms}}, func(t *testing.T, rdb *redis.Client) {
				t.Helper()
				time.Sleep(ms)
				begin := time.Now()
				require.NoError(t, rdb.Set(t.Context(), "k", "v", 300*ms).Err())
				require.GreaterOrEqual(t, time.Since(begin), 700*ms)
				require.Equal(t, name == world.DelayReply, rdb.Get(t.Context(), "k").Val() == "", "it expired while the reply was late")
			})
		})
	}
}

func TestKill(t *testing.T) {
	for _, keep := range []bool{false, true} {
		in(t, []world.Fault{{Name: world.Kill, Target: "redis-1", Keep: keep, After: &world.Anchor{Event: world.Write, Nth: 2}, For: 100 * ms}}, func(t *testing.T, rdb *redis.Client) {
			t.Helper()
			time.Sleep(ms)
			require.NoError(t, rdb.Set(t.Context(), "a", "1", 0).Err())
			require.Error(t, rdb.Set(t.Context(), "b", "2", 0).Err(), "it died when it had written")
			require.ErrorContains(t, rdb.Ping(t.Context()).Err(), "connection refused")
			time.Sleep(200 * ms)
			n, err := rdb.Exists(t.Context(), "a", "b").Result()
			require.NoError(t, err)
			if keep {
				require.Equal(t, int64(2), n)
			} else {
				require.Zero(t, n)
			}
		})
	}
}

func TestPause(t *testing.T) {
	for name, target := range map[string]string{world.Pause: "redis-1", world.PauseClient: "zone-a"} {
		in(t, []world.Fault{{Name: name, Target: target, At: 10 * ms, For: 300 * ms}}, func(t *testing.T, rdb *redis.Client) {
			t.Helper()
			require.NoError(t, rdb.Ping(t.Context()).Err())
			time.Sleep(20 * ms)
			begin := time.Now()
			require.NoError(t, rdb.Ping(t.Context()).Err())
			require.GreaterOrEqual(t, time.Since(begin), 250*ms)
		})
	}
}

// go-redis locks a subscription while it writes. Time must go on where another goroutine
// waits for that mutex.
func TestPauseClient_subscription(t *testing.T) {
	in(t, []world.Fault{{Name: world.PauseClient, Target: "zone-a", At: 10 * ms, For: 300 * ms}}, func(t *testing.T, rdb *redis.Client) {
		t.Helper()
		sub := rdb.Subscribe(t.Context(), "a")
		defer func() { require.NoError(t, sub.Close()) }()
		_, err := sub.Receive(t.Context())
		require.NoError(t, err)
		time.Sleep(20 * ms)
		begin := time.Now()
		sent := make(chan error)
		for _, channel := range []string{"b", "c"} {
			go func() { sent <- sub.Subscribe(t.Context(), channel) }()
		}
		for range 2 {
			require.NoError(t, <-sent)
			_, err := sub.Receive(t.Context())
			require.NoError(t, err)
		}
		require.GreaterOrEqual(t, time.Since(begin), 250*ms, "nothing leaves a process that stands still")
	})
}

func TestClocks(t *testing.T) {
	for _, x := range []struct {
		fault world.Fault
		there bool // a key of 200 ms, 100 ms later
	}{
		{world.Fault{Name: world.ClockForward, By: 150 * ms}, false},
		{world.Fault{Name: world.ClockForward, By: 50 * ms}, true},
		{world.Fault{Name: world.ClockRate, Percent: 150}, false},
		{world.Fault{Name: world.ClockRate, Percent: 50}, true},
		{world.Fault{Name: world.ClockBack, By: time.Hour}, true},
	} {
		x.fault.Target, x.fault.At, x.fault.For = "redis-1", 10*ms, time.Second
		t.Run(x.fault.String(), func(t *testing.T) {
			in(t, []world.Fault{x.fault}, func(t *testing.T, rdb *redis.Client) {
				t.Helper()
				require.NoError(t, rdb.Set(t.Context(), "k", "v", 200*ms).Err())
				time.Sleep(100 * ms)
				require.Equal(t, x.there, rdb.Exists(t.Context(), "k").Val() == 1)
			})
		})
	}
}

func TestFlush(t *testing.T) {
	in(t, []world.Fault{{Name: world.Flush, Target: "redis-1", At: 10 * ms}}, func(t *testing.T, rdb *redis.Client) {
		t.Helper()
		require.NoError(t, rdb.Set(t.Context(), "k", "v", 0).Err())
		time.Sleep(30 * ms)
		require.Zero(t, rdb.Exists(t.Context(), "k").Val())
	})
}

// replicated runs a test with a master, two replicas and a Sentinel.
func replicated(t *testing.T, plan []world.Fault, test func(t *testing.T, master *redis.Client, replicas []*redis.Client)) {
	t.Helper()
	logging.Disable()
	synctest.Test(t, func(t *testing.T) {
		w := world.New(1, plan)
		var nodes []*world.Node
		for _, name := range []string{"redis-1", "redis-2", "redis-3"} {
			nodes = append(nodes, w.AddServer(name))
		}
		nodes[1].Replicates(nodes[0])
		nodes[2].Replicates(nodes[0])
		sentinel, z := w.AddSentinel("sentinel-1"), w.AddZone("zone-a")
		require.NoError(t, w.Start())
		master := redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: world.MasterName, SentinelAddrs: []string{sentinel.Address()}, Dialer: z.Dialer(), MaxRetries: -1, DialerRetries: 1, PoolSize: 100,
		})
		replicas := []*redis.Client{redis.NewClient(options(z, nodes[1].Address())), redis.NewClient(options(z, nodes[2].Address()))}
		defer func() {
			for _, rdb := range append(replicas, master) {
				require.NoError(t, rdb.Close())
			}
			time.Sleep(time.Minute)
			w.Close()
		}()
		test(t, master, replicas)
	})
}

// set sets a key and waits for replicas, on one connection.
func set(ctx context.Context, rdb *redis.Client, key string, replicas int) (acked int64, err error) {
	conn := rdb.Conn()
	defer conn.Close()
	if err := conn.Set(ctx, key, "v", 0).Err(); err != nil {
		return 0, err
	}
	return conn.Wait(ctx, replicas, 200*ms).Result()
}

func TestReplication(t *testing.T) {
	replicated(t, []world.Fault{{Name: world.Stall, Target: "redis-3>redis-1", At: 100 * ms, For: time.Second}}, func(t *testing.T, master *redis.Client, replicas []*redis.Client) {
		t.Helper()
		acked, err := set(t.Context(), master, "before", 2)
		require.NoError(t, err)
		require.Equal(t, int64(2), acked)
		require.Equal(t, "v", replicas[1].Get(t.Context(), "before").Val())
		time.Sleep(100 * ms)
		begin := time.Now()
		acked, err = set(t.Context(), master, "during", 2)
		require.NoError(t, err)
		require.Equal(t, int64(1), acked, "one replica is out of reach")
		require.GreaterOrEqual(t, time.Since(begin), 200*ms)
		require.Zero(t, replicas[1].Exists(t.Context(), "during").Val())
		require.ErrorContains(t, replicas[0].Set(t.Context(), "k", "v", 0).Err(), "READONLY")
		time.Sleep(time.Second)
		require.Equal(t, "v", replicas[1].Get(t.Context(), "during").Val())
	})
}

func TestFailover(t *testing.T) {
	for _, lag := range []time.Duration{0, 50 * ms} {
		replicated(t, []world.Fault{{
			Name: world.CrashFailover, Lag: lag, By: 100 * ms, For: 300 * ms, After: &world.Anchor{Event: world.Write, Of: world.TheMaster, Nth: 2},
		}}, func(t *testing.T, master *redis.Client, _ []*redis.Client) {
			t.Helper()
			time.Sleep(ms)
			_, err := set(t.Context(), master, "first", 2)
			require.NoError(t, err)
			err = master.Set(t.Context(), "second", "v", 0).Err()
			if lag == 0 {
				require.Error(t, err, "it died when it had written")
			} else {
				require.NoError(t, err)
			}
			time.Sleep(time.Second)
			require.NoError(t, master.Set(t.Context(), "third", "v", 0).Err(), "the new master")
			require.Equal(t, int64(1), master.Exists(t.Context(), "first").Val())
			acked, err := set(t.Context(), master, "fourth", 2)
			require.NoError(t, err)
			require.Equal(t, int64(2), acked, "the old master is back as a replica")
			if lag > 0 {
				require.Zero(t, master.Exists(t.Context(), "second").Val(), "what no replica had is lost")
			}
		})
	}
}

func TestSentinelsReplaceAMasterThatIsGone(t *testing.T) {
	for _, name := range []string{world.Kill, world.Pause} {
		replicated(t, []world.Fault{{Name: name, Target: "redis-1", Keep: true, At: 10 * ms, For: 2 * time.Second}}, func(t *testing.T, master *redis.Client, _ []*redis.Client) {
			t.Helper()
			require.NoError(t, master.Ping(t.Context()).Err())
			time.Sleep(time.Second)
			var role []any
			require.Eventually(t, func() bool {
				r, err := master.Do(t.Context(), "ROLE").Slice()
				role = r
				return err == nil
			}, 10*time.Second, 100*ms)
			require.Equal(t, "master", role[0])
			require.Len(t, role[2], 1, "the other replica follows it")
		})
	}
}

func TestSplitBrain(t *testing.T) {
	replicated(t, []world.Fault{{Name: world.SplitBrain, At: 10 * ms, By: 50 * ms, For: 500 * ms}}, func(t *testing.T, master *redis.Client, replicas []*redis.Client) {
		t.Helper()
		conn := master.Conn() // stays with the old master
		defer conn.Close()
		require.NoError(t, conn.Ping(t.Context()).Err())
		time.Sleep(20 * ms)
		require.NoError(t, conn.Set(t.Context(), "k", "v", 0).Err())
		time.Sleep(20 * ms)
		for _, r := range replicas {
			require.Zero(t, r.Exists(t.Context(), "k").Val(), "nothing that the old master writes is replicated")
		}
	})
}

// The same seed and the same faults are the same world.
func TestSameSeed(t *testing.T) {
	var sent [2][]world.Sent
	for i := range sent {
		synctest.Test(t, func(t *testing.T) {
			w := world.New(7, []world.Fault{{Name: world.Stall, Target: "zone-a>redis-1", At: 5 * ms, For: 20 * ms}})
			n, z := w.AddServer("redis-1"), w.AddZone("zone-a")
			require.NoError(t, w.Start())
			rdb := redis.NewClient(options(z, n.Address()))
			for range 50 {
				require.NoError(t, rdb.Incr(t.Context(), "n").Err())
			}
			require.NoError(t, rdb.Close())
			time.Sleep(time.Minute)
			sent[i] = w.Sent()
			w.Close()
		})
	}
	require.Len(t, sent[0], 50)
	require.Equal(t, sent[0], sent[1])
}

func TestValidate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, x := range []struct {
			fault world.Fault
			want  string
		}{
			{world.Fault{Name: "storm"}, `unknown simulated fault "storm"`},
			{world.Fault{Name: world.Stall, Target: "redis-1"}, "is no link"},
			{world.Fault{Name: world.Cut, Target: "redis-1>redis-1/bus"}, "is no link"}, // which only a cluster has
			{world.Fault{Name: world.Stall, Target: "zone-b>redis-1"}, "is no link"},
			{world.Fault{Name: world.Kill, Target: "zone-a"}, "is no server"},
			{world.Fault{Name: world.PauseClient, Target: "redis-1"}, "is no zone"},
			{world.Fault{Name: world.KillClient, Target: "redis-1"}, "is no zone"},
			{world.Fault{Name: world.CrashFailover}, "nothing to fail over to"},
			{world.Fault{Name: world.Kill, Target: "redis-1", For: -1}, "below 0"},
			{world.Fault{Name: world.ClockRate, Target: "redis-1", Percent: -100}, "percent"},
			{world.Fault{Name: world.Stall, Target: "zone-a>redis-1", Stream: "sideways"}, "stream"},
			{world.Fault{Name: world.Kill, Target: "redis-1", After: &world.Anchor{Event: "wish"}}, "event"},
			{world.Fault{Name: world.DropReply, Target: "zone-a>redis-1", After: &world.Anchor{Event: world.Write, Of: "redis-1"}}, "of a request on its own link"},
		} {
			w := world.New(1, []world.Fault{x.fault})
			w.AddServer("redis-1")
			w.AddZone("zone-a")
			require.ErrorContains(t, w.Start(), x.want)
			w.Close()
		}
	})
}
