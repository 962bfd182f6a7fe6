package locktests

import (
	"context"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

// withoutChannels makes a client of a user that may not use any channel, as Redis 7
// makes new ones.
func withoutChannels(t *testing.T, s *redistest.Server) *lock.Client {
	t.Helper()
	rdb := s.Client(t, nil)
	require.NoError(t, rdb.Do(t.Context(), "ACL", "SETUSER", "quiet", "on", ">quiet", "~*", "resetchannels", "+@all").Err())
	return newClient(t, s.Client(t, func(o *redis.Options) { o.Username, o.Password = "quiet", "quiet" }), lock.Config{})
}

// A user without channels may use every lock: what can't be published is found by
// asking, and no release fails for it.
func TestUserWithoutChannels(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	eachKind(t, func(t *testing.T, k kind, s *redistest.Server) {
		t.Helper()
		c := withoutChannels(t, s)
		l, h := k.of(c), k.blocked(t, c)
		short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := l.Acquire(short, "orders", lock.Options{Owner: "b", Lease: long, Wait: long})
		require.Error(t, err)
		next := waiting(t.Context(), t, l, lock.Options{Owner: "c", Lease: long, Wait: lock.Forever})
		require.NoError(t, h.Release(t.Context()))
		require.NoError(t, <-next)
	})
	c := withoutChannels(t, redistest.Start(t))
	l := c.CountDownLatch("orders")
	_, err := l.TrySetCount(ctx, 1)
	require.NoError(t, err)
	left, err := l.CountDown(ctx)
	require.NoError(t, err)
	require.Zero(t, left)
}

// A user who may subscribe, and not publish, is told so once, and polls often from then on.
func TestUserWhoMayNotPublish(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	require.NoError(t, rdb.Do(t.Context(), "ACL", "SETUSER", "mute", "on", ">mute", "~*", "&*", "+@all", "-publish").Err())
	mute := func(c lock.Config) *lock.Client {
		return newClient(t, s.Client(t, func(o *redis.Options) { o.Username, o.Password = "mute", "mute" }), c)
	}
	seen := &events{}
	c, other := mute(lock.Config{Observer: seen}), mute(lock.Config{})
	require.ErrorContains(t, c.Check(t.Context()), "publish: ")
	waits := func() bool { // "-" and "+" are no tickets of waiters
		return slices.ContainsFunc(rdb.ZRange(t.Context(), ordersTickets, 0, -1).Val(), func(ticket string) bool { return len(ticket) > 1 })
	}
	for range 2 {
		h := acquire(t, c, "a", long)
		ctx, cancel := context.WithCancel(t.Context())
		gaveUp := waiting(ctx, t, other, lock.Options{Owner: "b", Lease: long, Wait: lock.Forever})
		redistest.Await(t, "the ticket", waits)
		require.NoError(t, h.Release(t.Context())) // which wakes no waiter
		cancel()
		if err := <-gaveUp; err != nil { // it is granted the lock where it asks just then
			require.ErrorIs(t, err, context.Canceled)
		}
		redistest.Await(t, "the withdrawal", func() bool { return !waits() && rdb.Exists(t.Context(), "lock:{orders}").Val() == 0 })
	}
	require.Equal(t, 1, seen.count(lock.Warned))
	for _, e := range seen.list() {
		if e.Kind == lock.Warned {
			require.ErrorContains(t, e.Err, "PUBLISH")
		}
	}

	h := acquire(t, other, "b", long)
	granted := waiting(t.Context(), t, c, lock.Options{Owner: "a", Lease: long, Wait: lock.Forever})
	redistest.Await(t, "the ticket", waits)
	soonerThan(t, rdb, beforePoll, "by polls every 3s it takes longer", func() {
		require.NoError(t, h.Release(t.Context()))
		require.NoError(t, <-granted)
	})
}

// A server that evicts keys may forget a lock that is held.
func TestCheckTellsOfEviction(t *testing.T) {
	s := redistest.Start(t)
	rdb, c := s.Client(t, nil), open(t, s, lock.Config{})
	require.NoError(t, c.Check(t.Context()))
	require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err())
	require.NoError(t, c.Check(t.Context()), "without a limit nothing is evicted")
	require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "1gb").Err())
	require.ErrorContains(t, c.Check(t.Context()), "set noeviction")
}

// A user that may not run a command of a script is told what to allow.
func TestAdviceForAUserWithTooFewCommands(t *testing.T) {
	s := redistest.Start(t)
	require.NoError(t, s.Client(t, nil).Do(t.Context(), "ACL", "SETUSER", "few", "on", ">few", "~*", "&*", "+@all", "-set").Err())
	c := newClient(t, s.Client(t, func(o *redis.Options) { o.Username, o.Password = "few", "few" }), lock.Config{})
	_, err := c.Acquire(t.Context(), "orders", lock.Options{Lease: long})
	require.ErrorContains(t, err, "let the user run")
	calls := regexp.MustCompile(`redis\.p?call\('(\w+)'`)
	for name, source := range lock.Scripts() {
		for _, call := range calls.FindAllStringSubmatch(source, -1) {
			require.Regexp(t, `\b`+call[1]+`\b`, err.Error(), "%s sends it", name)
		}
	}
}
