package locktests

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

// Without a lease the lock is kept until the client closes: no other client gets
// in, however long the work takes.
func TestWatchdogKeepsALockThatIsNeverReleased(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c, other := open(t, s, lock.Config{Watchdog: shortWatchdog}), open(t, s, lock.Config{})
	h := acquire(t, c, "a", 0)
	_, err := other.Acquire(t.Context(), "orders", lock.Options{Owner: "b", Wait: 3 * shortWatchdog / 2})
	require.ErrorIs(t, err, lock.ErrNotAcquired)
	c.Close()
	next, err := other.Acquire(t.Context(), "orders", lock.Options{Owner: "b", Wait: lock.Forever})
	require.NoError(t, err)
	<-h.Lost()
	require.ErrorIs(t, h.Release(t.Context()), lock.ErrNotHeld)
	require.NoError(t, next.Release(t.Context()))
}

func TestOneSubscriptionForManyWaiters(t *testing.T) {
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	c, holder := open(t, s, lock.Config{}), open(t, s, lock.Config{})
	h := acquire(t, holder, "a", long)
	var waiters []<-chan error
	for range 20 {
		waiters = append(waiters, waiting(t.Context(), t, c, lock.Options{Lease: long, Wait: lock.Forever}))
	}
	parked(t, rdb, 1)
	channel := rdb.PubSubChannels(t.Context(), "*").Val()[0]
	require.Equal(t, map[string]int64{channel: 1}, rdb.PubSubNumSub(t.Context(), channel).Val())
	require.NoError(t, h.Release(t.Context()))
	for _, w := range waiters {
		require.NoError(t, <-w)
	}
	parked(t, rdb, 1) // and no other was made
	c.Close()
	parked(t, rdb, 0)
}

// What a server in trouble answers is an error that says what to do, and leaves
// the lock as it was.
func TestServerInTrouble(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		// trouble makes it, and ends it.
		trouble func(t *testing.T, s *redistest.Server, rdb *redis.Client) (end func())
		want    string
	}{
		{"full", func(t *testing.T, _ *redistest.Server, rdb *redis.Client) func() {
			t.Helper()
			require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
			return func() { require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "0").Err()) }
		}, "raise maxmemory"},
		{"busy", func(t *testing.T, _ *redistest.Server, rdb *redis.Client) func() {
			t.Helper()
			require.NoError(t, rdb.ConfigSet(t.Context(), "busy-reply-threshold", "1").Err())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_ = rdb.Eval(t.Context(), "while true do end", nil).Err()
			}()
			redistest.Await(t, "the server to be busy", func() bool {
				return redis.HasErrorPrefix(rdb.Ping(t.Context()).Err(), "BUSY")
			})
			return func() {
				require.NoError(t, rdb.ScriptKill(t.Context()).Err())
				<-ended
			}
		}, "SCRIPT KILL"},
		{"password", func(t *testing.T, _ *redistest.Server, rdb *redis.Client) func() {
			t.Helper()
			require.NoError(t, rdb.ConfigSet(t.Context(), "requirepass", "secret").Err())
			return func() {
				conn := rdb.Conn()
				defer conn.Close()
				require.NoError(t, conn.Auth(t.Context(), "secret").Err())
				require.NoError(t, conn.ConfigSet(t.Context(), "requirepass", "").Err())
			}
		}, "the user and the password"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := redistest.Start(t)
			once := func(o *redis.Options) { o.MaxRetries, o.PoolSize = -1, 50 }
			h := acquire(t, open(t, s, lock.Config{}), "a", long)
			end := tt.trouble(t, s, s.Client(t, func(o *redis.Options) { o.ReadTimeout = -1 }))
			// A connection of its own, which the server knows nothing of yet.
			c := newClient(t, s.Client(t, once), lock.Config{})
			_, err := c.Acquire(t.Context(), "other", lock.Options{Lease: long})
			require.ErrorContains(t, err, tt.want)
			require.NotErrorIs(t, err, lock.ErrNotAcquired)
			end()
			_, err = c.Acquire(t.Context(), "orders", lock.Options{Lease: long})
			require.ErrorIs(t, err, lock.ErrNotAcquired, "the lock is as it was")
			require.NoError(t, h.Release(t.Context()))
			redistest.Await(t, "the lock that was refused", func() bool {
				state, err := c.Mutex("other").State(t.Context())
				return err == nil && state.Holds == 0
			})
		})
	}
}

func TestConfig(t *testing.T) {
	require.NoError(t, lock.Config{}.Validate())
	err := lock.Config{Prefix: "{a}", Watchdog: 1, Drift: 1, ReplicaAcks: -1, AckTimeout: 1}.Validate()
	for _, want := range []string{"prefix", "watchdog", "drift", "replica acks", "ack timeout"} {
		require.ErrorContains(t, err, want)
	}
	require.ErrorContains(t, lock.Config{Watchdog: 10 * time.Millisecond, Drift: 0.9}.Validate(), "smaller drift")
	require.NoError(t, lock.Config{Watchdog: 10 * time.Millisecond, Drift: 0.7}.Validate())
	_, err = lock.New(nil, lock.Config{Drift: -1})
	require.ErrorContains(t, err, "no Redis client")
	require.ErrorContains(t, err, "drift")
	ring := redis.NewRing(&redis.RingOptions{})
	defer func() { require.NoError(t, ring.Close()) }()
	_, err = lock.New(ring, lock.Config{})
	require.ErrorContains(t, err, "ring")
	rdb := redis.NewClient(&redis.Options{ReadTimeout: time.Second})
	defer func() { require.NoError(t, rdb.Close()) }()
	_, err = lock.New(rdb, lock.Config{ReplicaAcks: 1})
	require.ErrorContains(t, err, "less than the read timeout")
	_, err = lock.New(rdb, lock.Config{})
	require.NoError(t, err)
}
