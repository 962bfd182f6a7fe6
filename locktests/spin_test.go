package locktests

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

// spinning is the spin mutex as a lock.
func spinning(c *lock.Client, b lock.Backoff) lock.Locker {
	return lock.LockerFunc(func(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
		return c.SpinMutex(name, b).Acquire(ctx, o)
	})
}

// scripted is how many scripts a server was asked to run.
func scripted(t *testing.T, rdb *redis.Client) string {
	t.Helper()
	for line := range strings.SplitSeq(rdb.Info(t.Context(), "commandstats").Val(), "\r\n") {
		if calls, ok := strings.CutPrefix(line, "cmdstat_evalsha:"); ok {
			calls, _, _ = strings.Cut(calls, ",")
			return calls
		}
	}
	return ""
}

func TestSpinMutexSubscribesToNothing(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	require.NoError(t, rdb.ACLSetUser(t.Context(), "mute", "on", "nopass", "~*", "allchannels", "+@all", "-subscribe", "-psubscribe", "-ssubscribe").Err())
	c := newClient(t, s.Client(t, func(o *redis.Options) { o.Username = "mute"; o.Password = "x" }), lock.Config{})
	h := acquire(t, open(t, s, lock.Config{}), "a", long) // a plain mutex of that name is the same lock
	waiter := waiting(t.Context(), t, spinning(c, lock.Backoff{}), lock.Options{Lease: long, Wait: lock.Forever})
	for range 3 {
		before := scripted(t, rdb)
		redistest.Await(t, "another try", func() bool { return scripted(t, rdb) != before })
		require.Empty(t, rdb.PubSubChannels(t.Context(), "*").Val())
		list, err := rdb.Do(t.Context(), "CLIENT", "LIST", "TYPE", "pubsub").Text()
		require.NoError(t, err)
		require.Empty(t, list)
	}
	require.NoError(t, h.Release(t.Context()))
	require.NoError(t, <-waiter)
}

func TestSpinMutexPauses(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	tests := []struct {
		name    string
		give    lock.Backoff
		longest []time.Duration // of the first pauses, and of all that follow
		wait    time.Duration
	}{
		{"default", lock.Backoff{}, []time.Duration{ms, 2 * ms, 4 * ms, 8 * ms, 16 * ms, 32 * ms, 64 * ms, 128 * ms}, 2 * time.Second},
		{"own", lock.Backoff{Min: 10 * ms, Max: 35 * ms}, []time.Duration{10 * ms, 20 * ms, 35 * ms}, 2 * time.Second},
		{"no less than Min", lock.Backoff{Min: time.Second}, []time.Duration{time.Second}, 2 * time.Second},
		{"no more than Max", lock.Backoff{Max: 500 * time.Microsecond}, []time.Duration{500 * time.Microsecond}, 100 * ms},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, rdb := newFake(t)
				f.answers(func(script string) string {
					if script == "acquire" {
						return "*2\r\n:0\r\n:60000\r\n"
					}
					return yes
				})
				c, err := lock.New(rdb, lock.Config{})
				require.NoError(t, err)
				begin := time.Now()
				_, err = c.SpinMutex("orders", tt.give).Acquire(t.Context(), within(tt.wait, lock.Options{Lease: long}))
				require.ErrorIs(t, err, lock.ErrNotAcquired)
				require.Equal(t, tt.wait, time.Since(begin))
				var at []time.Duration
				for _, when := range f.log("acquire") {
					d, err := time.ParseDuration(when)
					require.NoError(t, err)
					at = append(at, d)
				}
				require.Greater(t, len(at), len(tt.longest))
				require.Zero(t, at[0])
				differ := false
				for i := range len(at) - 1 {
					longest := tt.longest[min(i, len(tt.longest)-1)]
					pause := at[i+1] - at[i]
					require.GreaterOrEqual(t, pause, longest/2, "pause %d", i)
					require.LessOrEqual(t, pause, longest, "pause %d", i)
					differ = differ || pause != longest
				}
				require.True(t, differ, "waiters don't ask in step")
				c.Close()
				require.NoError(t, rdb.Close())
				time.Sleep(2 * time.Hour) // until everything that sleeps has seen it
			})
		})
	}
}

func TestSpinMutexWaitThatEnds(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	holder, c := open(t, s, lock.Config{}), open(t, s, lock.Config{})
	h := acquire(t, holder, "a", long)
	slow := spinning(c, lock.Backoff{Min: time.Hour}) // in the middle of a pause
	ctx, cancel := context.WithCancel(t.Context())
	cancelled := waiting(ctx, t, slow, lock.Options{Wait: lock.Forever})
	closed := waiting(t.Context(), t, slow, lock.Options{Wait: lock.Forever})
	_, err := c.SpinMutex("orders", lock.Backoff{Min: time.Hour}).Acquire(t.Context(), within(20*time.Millisecond, lock.Options{}))
	require.ErrorIs(t, err, lock.ErrNotAcquired)
	cancel()
	require.ErrorIs(t, <-cancelled, context.Canceled)
	c.Close()
	require.ErrorIs(t, <-closed, lock.ErrClosed)
	require.NoError(t, h.Release(t.Context()))
	require.Empty(t, keysLeft(t, rdb))
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
