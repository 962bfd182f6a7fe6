package lock

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/lock/internal/require"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

// What was counted is remembered for two minutes, and leaves nothing else behind.
func TestMarksOfACycleEndSoon(t *testing.T) {
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	ctx := t.Context()
	c, err := New(s.Client(t, nil), Config{})
	require.NoError(t, err)
	defer c.Close()
	permits, latch := c.Semaphore("orders"), c.CountDownLatch("orders")
	_, err = permits.TrySetPermits(ctx, 2)
	require.NoError(t, err)
	_, err = latch.TrySetCount(ctx, 2)
	require.NoError(t, err)
	for range 2 {
		require.NoError(t, permits.Acquire(ctx, 1, 0))
		require.NoError(t, permits.Release(ctx, 1))
		_, err = latch.CountDown(ctx)
		require.NoError(t, err)
	}
	for _, remove := range []func() (bool, error){
		func() (bool, error) { return permits.Delete(ctx) }, func() (bool, error) { return latch.Delete(ctx) },
	} {
		deleted, err := remove()
		require.NoError(t, err)
		require.True(t, deleted)
	}
	left := rdb.Keys(ctx, "*").Val()
	require.Len(t, left, 10, "a mark for each request")
	for _, key := range left {
		ttl := rdb.PTTL(ctx, key).Val()
		require.Positive(t, ttl, key)
		require.LessOrEqual(t, ttl, 2*time.Minute, key)
	}
}

// A mark lives for as long as copies may come: longer where the library doesn't know.
func TestHowLongCountedRequestsAreRemembered(t *testing.T) {
	for _, tt := range []struct {
		name string
		rdb  redis.UniversalClient
		c    Config
		want time.Duration
	}{
		{"defaults", redis.NewClient(&redis.Options{}), Config{}, 2 * time.Minute},
		{"no read timeout", redis.NewClient(&redis.Options{ReadTimeout: -1}), Config{}, 5 * time.Minute},
		{"a long write timeout", redis.NewClient(&redis.Options{WriteTimeout: time.Hour}), Config{}, 5 * time.Minute},
		{"replicas", redis.NewClient(&redis.Options{}), Config{ReplicaAcks: 1}, 5 * time.Minute},
		{"cluster", redis.NewClusterClient(&redis.ClusterOptions{}), Config{}, 5 * time.Minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			defer tt.rdb.Close()
			c, err := New(tt.rdb, tt.c)
			require.NoError(t, err)
			defer c.Close()
			require.Equal(t, tt.want, c.repeatLife)
		})
	}
}

// What is counted is repeated within a window, and counted once: the repetition finds the
// mark. After the window it isn't repeated, since the mark may be gone.
func TestCountedRequestIsRepeatedWithinItsWindow(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	ctx := t.Context()
	link := &redistest.Link{}
	c, err := New(s.Client(t, link.Use), Config{})
	require.NoError(t, err)
	defer c.Close()
	latch := c.CountDownLatch("orders")
	_, err = latch.TrySetCount(ctx, 9)
	require.NoError(t, err)
	left, err := latch.CountDown(ctx) // so that the server knows the script
	require.NoError(t, err)
	require.Equal(t, 8, left)

	dropped := link.DropReply(scripts()["latch_down"].Digest())
	left, err = latch.CountDown(ctx)
	<-dropped
	require.NoError(t, err)
	require.Equal(t, 7, left)

	c.transport.Window = 0
	dropped = link.DropReply(scripts()["latch_down"].Digest())
	_, err = latch.CountDown(ctx)
	<-dropped
	require.Error(t, err)
	left, err = latch.Count(ctx)
	require.NoError(t, err)
	require.Equal(t, 6, left)

	_, err = c.Mutex("orders").IsLocked(ctx) // so that the server knows the script
	require.NoError(t, err)
	dropped = link.DropReply(scripts()["inspect"].Digest())
	_, err = c.Mutex("orders").IsLocked(ctx)
	<-dropped
	require.NoError(t, err, "what isn't counted is repeated as the options say")
}

// Permits whose answer came too late are given back. Where the server has forgotten the
// request by then, they may still be taken: the call doesn't say that they are not.
func TestTakenPermitsThatCannotBeGivenBackAreUnknown(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	ctx := t.Context()
	link := &redistest.Link{}
	c, err := New(s.Client(t, func(o *redis.Options) { link.Use(o); o.ReadTimeout = -1 }), Config{})
	require.NoError(t, err)
	defer c.Close()
	c.repeatLife = time.Second
	permits := c.Semaphore("orders")
	_, err = permits.TrySetPermits(ctx, 2)
	require.NoError(t, err)
	require.NoError(t, permits.Acquire(ctx, 1, 0)) // so that the server knows the script
	held, deliver := link.HoldReply(scripts()["semaphore_acquire"].Digest())
	outcome := make(chan error, 1)
	go func() { outcome <- permits.Acquire(ctx, 1, 0) }()
	<-held
	redistest.Await(t, "the marks to end", func() bool {
		return len(rdb.Keys(ctx, permits.keys.mark("*")).Val()) == 0
	})
	deliver()
	err = <-outcome
	require.ErrorContains(t, err, "may still be taken")
	require.NotErrorIs(t, err, ErrNotAcquired)
	taken, err := permits.AcquiredPermits(ctx)
	require.NoError(t, err)
	require.Equal(t, 2, taken)
}

// Permits that a request may have taken are given back also by a server that refuses to do
// so for a moment, as in a failover.
func TestWithdrawalOutlivesARefusalThatPasses(t *testing.T) {
	t.Parallel()
	s, link := redistest.Start(t), &redistest.Link{}
	rdb := s.Client(t, nil)
	ctx := t.Context()
	own := s.Client(t, func(o *redis.Options) { link.Use(o); o.MaxRetries = -1 })
	c, err := New(own, Config{})
	require.NoError(t, err)
	defer c.Close()
	permits := c.Semaphore("orders")
	_, err = permits.TrySetPermits(ctx, 1)
	require.NoError(t, err)
	require.NoError(t, permits.Acquire(ctx, 1, 0)) // so that the server knows the script
	require.NoError(t, permits.Release(ctx, 1))
	taken := make(steps, 3)
	own.AddHook(taken)
	var dropped <-chan struct{}
	taken <- func() error {
		dropped = link.DropReply("evalsha")
		return nil
	}
	taken <- func() error {
		<-dropped
		refuse(t, rdb, true)
		return nil
	}
	taken <- func() error {
		refuse(t, rdb, false)
		return nil
	}
	other, err := New(rdb, Config{}) // whose requests take no step
	require.NoError(t, err)
	defer other.Close()
	require.Error(t, permits.Acquire(ctx, 1, 0))
	redistest.Await(t, "the permit to be back", func() bool {
		n, err := other.Semaphore("orders").AcquiredPermits(t.Context())
		return len(taken) == 0 && err == nil && n == 0
	})
}
