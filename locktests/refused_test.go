package locktests

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

// What can't be meant is refused before anything is sent, and the error says what would be right.
func TestWhatCannotBeMeantIsRefused(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	one := s.Client(t, nil)
	for want, c := range map[string]lock.Config{
		"ack timeout of 1ns: give at least 1ms, or 0 for":   {AckTimeout: 1},
		"batch of -2: give a number, -1 for none, or 0 for": {Batch: -2},
		"token life of 1ms: give at least 1s, or 0 for":     {TokenLife: time.Millisecond},
		"heartbeat of 1ns: give at least":                   {Heartbeat: 1},
	} {
		_, err := lock.New(one, c)
		require.ErrorContains(t, err, want)
	}
	c := open(t, s, lock.Config{Prefix: "a:b:c"})
	h := acquire(t, c, "a", long)
	require.ErrorContains(t, h.Extend(t.Context(), time.Microsecond), "lease of 1µs: give at least 1ms")
	_, err := lock.NewRedlock([]redis.UniversalClient{one, one, one}, lock.RedlockConfig{})
	require.ErrorContains(t, err, "is there twice: its vote would count twice")
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": one.Options().Addr}})
	defer ring.Close()
	_, err = lock.NewRedlock([]redis.UniversalClient{ring, s.Client(t, nil), s.Client(t, nil)}, lock.RedlockConfig{})
	require.ErrorContains(t, err, "server 1: a ring moves a lock to another server")
	require.Equal(t, "event 0", lock.EventKind(0).String())
}

// Who asks what a lock of several parts, or an object that counts, has is told.
func TestWhatAnObjectHasIsTold(t *testing.T) {
	t.Parallel()
	c := open(t, redistest.Start(t), lock.Config{})
	both, err := lock.NewMultiLock(lock.Member{Locker: c, Name: "a"}, lock.Member{Locker: c, Name: "b"})
	require.NoError(t, err)
	h, err := both.Acquire(t.Context(), lock.Options{Lease: long})
	require.NoError(t, err)
	parts := both.Leases(h)
	require.Len(t, parts, 2)
	require.Equal(t, [2]string{"a", "b"}, [2]string{parts[0].Name, parts[1].Name})
	require.Nil(t, both.Leases(nil))
	require.Nil(t, both.Leases(acquire(t, c, "x", long)))

	rw := c.RWMutex("rw", lock.RWOptions{})
	state, err := rw.State(t.Context(), "")
	require.NoError(t, err)
	require.Zero(t, state)
	_, err = rw.Read().Acquire(t.Context(), lock.Options{Lease: long})
	require.NoError(t, err)
	state, err = rw.State(t.Context(), "")
	require.NoError(t, err)
	require.Positive(t, state.TTL)

	latch := c.CountDownLatch("latch")
	set, err := latch.TrySetCount(t.Context(), 2)
	require.NoError(t, err)
	require.True(t, set)
	n, err := latch.Count(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, n)

	permits := c.Semaphore("permits")
	require.NoError(t, permits.SetPermits(t.Context(), 3))
	all, err := permits.Drain(t.Context())
	require.NoError(t, err)
	require.Equal(t, 3, all)
	none, err := permits.Drain(t.Context())
	require.NoError(t, err)
	require.Zero(t, none)
}
