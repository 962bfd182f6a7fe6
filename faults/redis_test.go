package faults_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/faults/faultstest"
	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/topologies"
)

// deployed boots a topology, or skips the test where that can't be.
func deployed(t *testing.T, name string) topologies.Deployment {
	t.Helper()
	runtest.NeedStore(t, topologies.StoreRedis)
	var o topologies.Options
	if name == topologies.Cluster {
		o.NodeTimeout = time.Second // so that nobody fails over only because the machine is busy
	}
	topology, err := topologies.New(name, o)
	require.NoError(t, err)
	d, err := runtest.Backend{}.Start(t.Context(), topology)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

// startRedis returns a deployment, its server, and a client of it as a service has one.
func startRedis(t *testing.T) (topologies.Deployment, topologies.Server, *goredis.Client) {
	t.Helper()
	d := deployed(t, "single")
	rdb := goredis.NewUniversalClient(d.ClientOptions("zone-a")).(*goredis.Client)
	t.Cleanup(func() { _ = rdb.Close() })
	return d, d.Server("redis-1"), rdb
}

// answers checks that a request is answered with an error that begins so; "" is
// for none at all.
func answers(prefix string, request func(ctx context.Context) error) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		err := request(ctx)
		if prefix == "" && err != nil || prefix != "" && !goredis.HasErrorPrefix(err, prefix) {
			return fmt.Errorf("answered with %w, want %q", err, prefix)
		}
		return nil
	}
}

func TestFaultsThatLast(t *testing.T) {
	d, server, rdb := startRedis(t)
	write := func(ctx context.Context) error { return rdb.Set(ctx, "lock:{a}", 1, time.Minute).Err() }
	tests := []struct {
		fault         faults.Fault
		broken, whole func(ctx context.Context) error
	}{
		{built(t, d, "out-of-memory", server.Name()), answers("OOM", write), write},
		{built(t, d, "evict", server.Name()), func(ctx context.Context) error {
			if n := rdb.Exists(ctx, "lock:{a}").Val(); n != 0 {
				return errors.New("the key is still there")
			}
			return nil
		}, write},
		{built(t, d, "corrupt-key", server.Name(), "pattern", "lock:*"), answers("WRONGTYPE", func(ctx context.Context) error {
			return rdb.HGetAll(ctx, "lock:{a}").Err()
		}), write},
		{built(t, d, "pause-writes", server.Name()), func(ctx context.Context) error {
			if err := rdb.Get(ctx, "lock:{a}").Err(); err != nil {
				return fmt.Errorf("a read was answered with %w", err)
			}
			ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			defer cancel()
			var late interface{ Timeout() bool }
			if err := write(ctx); !errors.As(err, &late) || !late.Timeout() {
				return fmt.Errorf("a write was answered with %w", err)
			}
			return nil
		}, write},
		{built(t, d, "busy-script", server.Name()), answers("BUSY", write), write},
	}
	for _, tt := range tests {
		t.Run(tt.fault.Name(), func(t *testing.T) {
			before := settings(t, server.Observer())
			faultstest.Run(t, tt.fault, tt.broken, tt.whole)
			require.Equal(t, before, settings(t, server.Observer()), "the settings are as they were")
		})
	}
}

// settings are those that some fault changes.
func settings(t *testing.T, rdb *goredis.Client) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, name := range []string{"maxmemory", "maxmemory-policy", "busy-reply-threshold"} {
		got, err := rdb.WithTimeout(time.Minute).ConfigGet(t.Context(), name).Result() // it may be slow
		require.NoError(t, err)
		all[name] = got[name]
	}
	return all
}

func TestFaultsThatHappenOnce(t *testing.T) {
	d, server, rdb := startRedis(t)
	fill := func() { require.NoError(t, rdb.Set(t.Context(), "lock:{a}", 1, time.Minute).Err()) }
	empty := func() bool {
		n, err := rdb.Exists(t.Context(), "lock:{a}").Result()
		return err == nil && n == 0
	}
	subscribed := rdb.Subscribe(t.Context(), "released")
	defer subscribed.Close()
	_, err := subscribed.Receive(t.Context())
	require.NoError(t, err)
	loaded := rdb.ScriptLoad(t.Context(), "return 2").Val()
	tests := []struct {
		fault faults.Fault
		done  func() bool
	}{
		{built(t, d, "flush", server.Name()), empty},
		{built(t, d, "drop-key", server.Name(), "pattern", "lock:*"), empty},
		{built(t, d, "script-flush", server.Name()), func() bool {
			known, err := rdb.ScriptExists(t.Context(), loaded).Result()
			return err == nil && !known[0]
		}},
		{built(t, d, "kill-pubsub", server.Name()), func() bool {
			_, err := subscribed.ReceiveTimeout(t.Context(), time.Minute)
			return errors.Is(err, io.EOF)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.fault.Name(), func(t *testing.T) {
			fill()
			injection, err := tt.fault.Inject(t.Context())
			require.NoError(t, err)
			require.Nil(t, injection.Heal)
			require.Contains(t, injection.Effect, "redis-1 ")
			require.True(t, tt.done(), "it shows")
		})
	}
}

// What has no effect is an error, and leaves the server as it was.
func TestFaultsWithoutEffect(t *testing.T) {
	d, server, _ := startRedis(t)
	before := settings(t, server.Observer())
	require.NoError(t, server.Observer().FlushAll(t.Context()).Err())
	for _, f := range []faults.Fault{
		built(t, d, "flush", server.Name()), built(t, d, "drop-key", server.Name(), "pattern", "lock:*"), built(t, d, "corrupt-key", server.Name(), "pattern", "lock:*"),
		built(t, d, "kill-pubsub", server.Name()), built(t, d, "evict", server.Name()),
	} {
		t.Run(f.Name(), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			_, err := f.Inject(ctx)
			require.ErrorContains(t, err, f.Name()+" on redis-1: ")
			require.Equal(t, before, settings(t, server.Observer()))
		})
	}
}

// Each node of a cluster takes the keys of its own slots only, and of one at a
// time.
func TestFaultsOfAClustersNode(t *testing.T) {
	d := deployed(t, "cluster")
	rdb := topologies.Clients(d.ClientOptions("zone-a"))[0]
	t.Cleanup(func() { _ = rdb.Close() })
	servers := []string{"redis-1", "redis-2", "redis-3"}
	fill := func() {
		for i := range 60 {
			require.NoError(t, rdb.Set(t.Context(), fmt.Sprintf("lock:%d", i), 1, time.Minute).Err())
		}
		for _, name := range servers {
			n, err := d.Server(name).Observer().WithTimeout(time.Minute).DBSize(t.Context()).Result()
			require.NoError(t, err)
			require.Greater(t, n, int64(1), "it has several, each in a slot of its own")
		}
	}
	for _, name := range servers {
		server := d.Server(name)
		for _, f := range []faults.Fault{
			built(t, d, "out-of-memory", server.Name()), built(t, d, "evict", server.Name()), built(t, d, "drop-key", server.Name(), "pattern", "lock:*"), built(t, d, "corrupt-key", server.Name(), "pattern", "lock:*"),
			built(t, d, "flush", server.Name()), built(t, d, "pause-writes", server.Name()), built(t, d, "busy-script", server.Name()), built(t, d, "script-flush", server.Name()),
		} {
			t.Run(f.Name()+" on "+name, func(t *testing.T) {
				fill()
				injection, err := f.Inject(t.Context())
				require.NoError(t, err)
				require.Contains(t, injection.Effect, name)
				if injection.Heal != nil {
					_, err := injection.Heal(t.Context())
					require.NoError(t, err)
				}
				require.NoError(t, d.AwaitReady(t.Context()))
			})
		}
	}
}
