package lock

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/lock/internal/require"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

// What was counted is remembered for five minutes, and leaves nothing else behind.
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
		require.True(t, 0 < ttl, key)
		require.True(t, ttl <= 5*time.Minute, key)
	}
}

// What is repeated is counted once: the repetition finds the mark.
func TestRepetitionCountsOnce(t *testing.T) {
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

	dropped := link.DropReply(scripts()["latch_down"].Digest)
	left, err = latch.CountDown(ctx)
	<-dropped
	require.NoError(t, err)
	require.Equal(t, 7, left)

	_, err = c.Mutex("orders").State(ctx) // so that the server knows the script
	require.NoError(t, err)
	dropped = link.DropReply(scripts()["inspect"].Digest)
	_, err = c.Mutex("orders").State(ctx)
	<-dropped
	require.NoError(t, err)
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
	permits := c.Semaphore("orders")
	_, err = permits.TrySetPermits(ctx, 2)
	require.NoError(t, err)
	require.NoError(t, permits.Acquire(ctx, 1, 0)) // so that the server knows the script
	byGoroutine(c)
	held, deliver := link.HoldReply(scripts()["semaphore_acquire"].Digest)
	outcome := make(chan error, 1)
	go func() {
		one := c.objectIn("semaphore", "orders", permitsKind(1, false))
		_, err := one.ask(ctx, Options{Lease: time.Second}, time.Now()) // which take gives more
		outcome <- err
	}()
	<-held
	for _, mark := range rdb.Keys(ctx, permits.keys.mark("*")).Val() {
		require.NoError(t, rdb.Del(ctx, mark).Err()) // as if its time were over
	}
	<-time.After(time.Second)
	deliver()
	err = <-outcome
	require.ErrorContains(t, err, "may still be taken")
	require.False(t, errors.Is(err, ErrNotAcquired))
	state, err := permits.State(ctx)
	require.NoError(t, err)
	require.Equal(t, 2, state.Acquired)
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
		state, err := other.Semaphore("orders").State(t.Context())
		return len(taken) == 0 && err == nil && state.Acquired == 0
	})
}
