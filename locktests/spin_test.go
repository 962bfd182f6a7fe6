package locktests

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

func TestSpinMutexSubscribesToNothing(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	require.NoError(t, rdb.ACLSetUser(t.Context(), "mute", "on", "nopass", "~*", "allchannels", "+@all", "-subscribe", "-psubscribe", "-ssubscribe").Err())
	c := newClient(t, s.Client(t, func(o *redis.Options) { o.Username = "mute"; o.Password = "x" }), lock.Config{})
	h := acquire(t, open(t, s, lock.Config{}), "a", long) // a plain mutex of that name is the same lock
	waiter := waiting(t.Context(), t, c.Spin(lock.Backoff{}), lock.Options{Lease: long, Wait: lock.Forever})
	for range 3 {
		before := scriptsRun(t, rdb)
		redistest.Await(t, "another try", func() bool { return scriptsRun(t, rdb) != before })
		require.Empty(t, rdb.PubSubChannels(t.Context(), "*").Val())
		list, err := rdb.Do(t.Context(), "CLIENT", "LIST", "TYPE", "pubsub").Text()
		require.NoError(t, err)
		require.Empty(t, list)
		require.NotContains(t, rdb.InfoMap(t.Context(), "commandstats").Val()["Commandstats"], "cmdstat_subscribe", "it doesn't try to")
	}
	require.NoError(t, h.Release(t.Context()))
	require.NoError(t, <-waiter)
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	tests := []struct {
		give lock.Backoff
		want string
	}{
		{lock.Backoff{}, ""},
		{lock.Backoff{Min: time.Second}, ""},
		{lock.Backoff{Max: time.Microsecond}, ""},
		{lock.Backoff{Min: time.Second, Max: time.Second}, ""},
		{lock.Backoff{Min: -1}, "give positive ones"},
		{lock.Backoff{Max: -1}, "give positive ones"},
		{lock.Backoff{Min: 2, Max: 1}, "not below Min"},
	}
	s := redistest.Start(t)
	c := open(t, s, lock.Config{})
	for _, tt := range tests {
		h, err := c.SpinMutex("orders", tt.give).Acquire(t.Context(), lock.Options{Lease: long})
		if tt.want == "" {
			require.NoError(t, tt.give.Validate())
			require.NoError(t, err)
			require.NoError(t, h.Release(t.Context()))
			continue
		}
		require.ErrorContains(t, tt.give.Validate(), tt.want)
		require.ErrorContains(t, err, tt.want)
		require.NotErrorIs(t, err, lock.ErrNotAcquired)
	}
	require.NoError(t, acquire(t, c, "a", long).Release(t.Context()), "the plain mutex is as it was")
	require.Empty(t, keysLeft(t, s.Client(t, nil)))
}
