package locktests

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

func TestMutexTellsWhoHoldsIt(t *testing.T) {
	s := redistest.Start(t)
	m := open(t, s, lock.Config{}).Mutex("orders")
	ctx := t.Context()
	state := func(owner string) (locked, held bool, count int, ttl time.Duration) {
		locked, err := m.IsLocked(ctx)
		require.NoError(t, err)
		held, err = m.IsHeldBy(ctx, owner)
		require.NoError(t, err)
		count, err = m.HoldCount(ctx, owner)
		require.NoError(t, err)
		ttl, err = m.TTL(ctx)
		require.NoError(t, err)
		return locked, held, count, ttl
	}

	locked, held, count, ttl := state("a")
	require.Zero(t, []any{locked, held, count, ttl}[2])
	require.False(t, locked)
	require.False(t, held)
	require.Zero(t, ttl)

	first, err := m.Acquire(ctx, within(lock.Forever, lock.Options{Owner: "a", Lease: long}))
	require.NoError(t, err)
	second, err := m.Acquire(ctx, lock.Options{Owner: "a", Lease: long / 4})
	require.NoError(t, err)
	require.Equal(t, 2, second.Lease().Holds)
	_, err = m.Acquire(ctx, within(10*time.Millisecond, lock.Options{Owner: "b"}))
	require.ErrorIs(t, err, lock.ErrNotAcquired)
	locked, held, count, ttl = state("a")
	require.True(t, locked)
	require.True(t, held)
	require.Equal(t, 2, count)
	require.Greater(t, ttl, long/2, "the shorter re-entry leaves the longer lease alone")
	require.LessOrEqual(t, ttl, long)
	_, held, count, _ = state("b")
	require.False(t, held)
	require.Zero(t, count)

	require.NoError(t, first.Release(ctx))
	_, _, count, ttl = state("a")
	require.Equal(t, 1, count)
	require.LessOrEqual(t, ttl, long/4, "what is left is the shorter lease")
	require.NoError(t, second.Release(ctx))
	require.ErrorIs(t, second.Release(ctx), lock.ErrReleased)
	locked, _, _, _ = state("a")
	require.False(t, locked)
	require.Equal(t, "orders", m.Name())
	require.Empty(t, keysLeft(t, s.Client(t, nil)))
}

func TestForceUnlock(t *testing.T) {
	s := redistest.Start(t)
	c := open(t, s, lock.Config{})
	m := c.Mutex("orders")
	was, err := m.ForceUnlock(t.Context())
	require.NoError(t, err)
	require.False(t, was)
	h := acquire(t, c, "a", long)
	waiter := waiting(t.Context(), t, open(t, s, lock.Config{}), lock.Options{Wait: lock.Forever, Lease: long})
	parked(t, s.Client(t, nil), 1)
	was, err = m.ForceUnlock(t.Context())
	require.NoError(t, err)
	require.True(t, was)
	require.NoError(t, <-waiter)
	require.ErrorIs(t, h.Extend(t.Context(), long), lock.ErrNotHeld)
	<-h.Lost()
}

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

func TestEventsOfAWait(t *testing.T) {
	s := redistest.Start(t)
	e := &events{}
	c := open(t, s, lock.Config{Observer: e})
	h := acquire(t, c, "a", long)
	_, err := c.Acquire(t.Context(), "orders", lock.Options{Owner: "b", Lease: long, Wait: 10 * time.Millisecond})
	require.ErrorIs(t, err, lock.ErrNotAcquired)
	require.NoError(t, h.Release(t.Context()))
	all := e.list()
	require.Len(t, all, 4)
	require.Equal(t, []lock.EventKind{lock.Acquired, lock.Waited, lock.Refused, lock.Released},
		[]lock.EventKind{all[0].Kind, all[1].Kind, all[2].Kind, all[3].Kind})
	require.Equal(t, "b", all[1].Lease.Owner)
	require.GreaterOrEqual(t, all[1].Took, 10*time.Millisecond)
	require.ErrorIs(t, all[1].Err, lock.ErrNotAcquired)
	require.Equal(t, h.Lease(), all[3].Lease)
	require.NoError(t, all[3].Err)
	require.Equal(t, "waited", lock.Waited.String())
	require.Equal(t, "event 0", lock.EventKind(0).String())
}

func TestErrorsSayWhatToDo(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	replica, _ := s.Replica(t)
	rdb := s.Client(t, nil)
	require.NoError(t, rdb.Set(t.Context(), "lock:{text}", "my data", 0).Err())
	c := open(t, s, lock.Config{})
	onReplica := newClient(t, replica.Client(t, func(o *redis.Options) { o.MaxRetries = -1 }), lock.Config{})
	tests := []struct {
		name string
		c    *lock.Client
		lock string
		give lock.Options
		want string
	}{
		{"wrong type", c, "text", lock.Options{}, "use another name or Config.Prefix"},
		{"read only", onReplica, "orders", lock.Options{}, "connect to the master"},
		{"no name", c, "", lock.Options{}, "give the lock a name"},
		{"negative lease", c, "orders", lock.Options{Lease: -1}, "give a positive one"},
		{"tiny lease", c, "orders", lock.Options{Lease: time.Microsecond}, "give at least 1ms"},
		{"lease within the margin", c, "orders", lock.Options{Lease: 2 * time.Millisecond}, "clock drift"},
		{"negative wait", c, "orders", lock.Options{Wait: -1}, "give 0 for one try"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := tt.c.Acquire(t.Context(), tt.lock, tt.give)
			require.ErrorContains(t, err, tt.want)
			require.NotErrorIs(t, err, lock.ErrNotAcquired)
		})
	}
	_, err := c.Mutex("text").ForceUnlock(t.Context())
	require.ErrorContains(t, err, "use another name")
	_, err = c.Mutex("text").TTL(t.Context())
	require.ErrorContains(t, err, "use another name")
	require.Equal(t, "my data", rdb.Get(t.Context(), "lock:{text}").Val())
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
				locked, err := c.Mutex("other").IsLocked(t.Context())
				return err == nil && !locked
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

// A lease that is as long as can be said is never told as one that is over.
func TestTTLOfAnEndlessLease(t *testing.T) {
	s := redistest.Start(t)
	ctx := t.Context()
	c, rdb := open(t, s, lock.Config{}), s.Client(t, nil)
	acquire(t, c, "", lock.Forever)
	require.NoError(t, rdb.Do(ctx, "PEXPIRE", "lock:{orders}", int64(1e13)).Err()) // the milliseconds are rounded up
	ttl, err := c.Mutex("orders").TTL(ctx)
	require.NoError(t, err)
	require.Equal(t, lock.Forever, ttl)

	m := c.RWMutex("stock", lock.RWOptions{})
	_, err = m.Write().Acquire(ctx, lock.Options{Lease: lock.Forever})
	require.NoError(t, err)
	for _, grant := range rdb.ZRange(ctx, "lock:{stock}", 0, -1).Val() {
		require.NoError(t, rdb.ZAdd(ctx, "lock:{stock}", redis.Z{Member: grant, Score: 1e13 + 1e15 + 2e15}).Err())
	}
	ttl, err = m.TTL(ctx)
	require.NoError(t, err)
	require.Equal(t, lock.Forever, ttl)
}
