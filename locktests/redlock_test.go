package locktests

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

// patient is a node timeout that no healthy server exceeds on a busy machine.
const patient = 10 * time.Second

// quorum is a number of independent servers.
type quorum []*redistest.Server

func startQuorum(tb testing.TB, n int) quorum {
	tb.Helper()
	var q quorum
	for range n {
		q = append(q, redistest.Start(tb))
	}
	return q
}

// clients are of pools of their own. A server that is stuck, and isn't resumed,
// holds up the end of a test for their read timeout.
func (q quorum) clients(tb testing.TB, change ...func(i int, o *redis.Options)) []redis.UniversalClient {
	tb.Helper()
	var all []redis.UniversalClient
	for i, s := range q {
		all = append(all, s.Client(tb, func(o *redis.Options) {
			o.ReadTimeout, o.MaxRetries, o.DialerRetries = patient, -1, 1
			for _, f := range change {
				f(i, o)
			}
		}))
	}
	return all
}

func (q quorum) redlock(t *testing.T, c lock.RedlockConfig, change ...func(i int, o *redis.Options)) *lock.Redlock {
	t.Helper()
	r, err := lock.NewRedlock(q.clients(t, change...), c)
	require.NoError(t, err)
	t.Cleanup(r.Close)
	return r
}

// warm lets all servers and connections know what they need, so that a fault
// meets the request that it is for.
func warm(t *testing.T, q quorum, r *lock.Redlock) {
	t.Helper()
	h, err := r.Acquire(t.Context(), "warm", lock.Options{Lease: long})
	require.NoError(t, err)
	redistest.Await(t, "the lock on all servers", func() bool {
		return h.Extend(t.Context(), long) == nil && len(q.on(t)) == len(q)
	})
	require.NoError(t, h.Release(t.Context()))
	q.await(t, 0)
}

// on lists the servers that have a lock.
func (q quorum) on(t *testing.T) []int {
	t.Helper()
	var on []int
	for i, s := range q {
		if len(keysLeft(t, s.Client(t, nil))) > 0 {
			on = append(on, i)
		}
	}
	return on
}

// await waits until so many servers have a lock.
func (q quorum) await(t *testing.T, servers int) {
	t.Helper()
	redistest.Await(t, fmt.Sprintf("a lock on %d servers", servers), func() bool { return len(q.on(t)) == servers })
}

func TestRedlockOfServersThatDoNotSuit(t *testing.T) {
	client := func(addr string) *redis.Client {
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		t.Cleanup(func() { require.NoError(t, rdb.Close()) })
		return rdb
	}
	a, b, c := client("a:1"), client("b:1"), client("c:1")
	ring := redis.NewRing(&redis.RingOptions{})
	cluster := redis.NewClusterClient(&redis.ClusterOptions{})
	failover := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"d:1"}})
	t.Cleanup(func() {
		for _, rdb := range []redis.UniversalClient{ring, cluster, failover} {
			require.NoError(t, rdb.Close())
		}
	})
	tests := []struct {
		name string
		give []redis.UniversalClient
		want string
	}{
		{"none", nil, "no servers"},
		{"one", []redis.UniversalClient{a}, "use New"},
		{"an even number", []redis.UniversalClient{a, b, c, client("d:1")}, "4 servers survive no more failures than 3"},
		{"no client", []redis.UniversalClient{a, b, nil}, "server 3: no Redis client"},
		{"one twice", []redis.UniversalClient{a, b, client("a:1")}, "server a:1 is there twice"}, // redisson §8: it counts lock objects
		{"a ring", []redis.UniversalClient{a, b, ring}, "a ring moves a lock"},
		{"a cluster", []redis.UniversalClient{a, b, cluster}, "a cluster keeps a lock on one"},
		{"a failover client", []redis.UniversalClient{a, b, failover}, "moves on to a replica"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := lock.NewRedlock(tt.give, lock.RedlockConfig{})
			require.ErrorContains(t, err, tt.want)
		})
	}
	_, err := lock.NewRedlock([]redis.UniversalClient{a, b, c}, lock.RedlockConfig{})
	require.NoError(t, err)
	_, err = lock.NewRedlock([]redis.UniversalClient{a, b, c}, lock.RedlockConfig{
		Prefix: "{", Watchdog: 1, Drift: 2, NodeTimeout: 1, RetryDelay: -1,
	})
	for _, want := range []string{"prefix", "watchdog", "drift", "node timeout", "retry delay"} {
		require.ErrorContains(t, err, want)
	}
}

func TestRedlockCheck(t *testing.T) {
	t.Parallel()
	q := startQuorum(t, 3)
	require.NoError(t, q.redlock(t, lock.RedlockConfig{}).Check(t.Context()))

	replica, _ := q[0].Replica(t)
	err := quorum{q[0], q[1], replica}.redlock(t, lock.RedlockConfig{}).Check(t.Context())
	require.ErrorContains(t, err, "is a replica")

	// One server under two names.
	twice := q.clients(t, func(i int, o *redis.Options) {
		if i == 2 {
			o.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) { return q[0].Dial(ctx) }
		}
	})
	r, err := lock.NewRedlock(twice, lock.RedlockConfig{})
	require.NoError(t, err)
	defer r.Close()
	require.ErrorContains(t, r.Check(t.Context()), "its vote would count twice")

	q[1].Kill()
	require.ErrorContains(t, q.redlock(t, lock.RedlockConfig{}).Check(t.Context()), "connect")
	r.Close()
	require.ErrorIs(t, r.Check(t.Context()), lock.ErrClosed)
}

// The replies of one server are lost, or of two, so that the round fails: what they granted is released with
// the rest, though no client knew of it. Redisson's RedLock releases what it believes that it acquired
// (redisson #1606).
func TestRedlockReleasesWhatItDidNotKnowOf(t *testing.T) {
	t.Parallel()
	for _, fails := range []bool{false, true} {
		q := startQuorum(t, 3)
		links := make([]redistest.Link, 3)
		r := q.redlock(t, lock.RedlockConfig{NodeTimeout: time.Second}, func(i int, o *redis.Options) { links[i].Use(o) })
		warm(t, q, r)
		deliver := func() {}
		var struck []<-chan struct{}
		if fails {
			var held <-chan struct{}
			held, deliver = links[0].HoldReply(digest(t, "acquire"))
			struck = append(struck, held)
		}
		struck = append(struck, links[1].DropReply(digest(t, "acquire")))
		h, err := r.Acquire(t.Context(), "orders", lock.Options{Lease: long})
		for _, s := range struck {
			happened(t, s)
		}
		if fails {
			require.Error(t, err)
			deliver()
		} else {
			require.NoError(t, err)
			q.await(t, 3)
			require.NoError(t, h.Release(t.Context()))
		}
		q.await(t, 0)
	}
}

// A server that refused a request which was sent twice is one of three, also once the request is taken back there: two
// others, which don't answer, may have granted the lock.
func TestRedlockRefusalOfARepeatedRequestCountsOnce(t *testing.T) {
	t.Parallel()
	q := startQuorum(t, 3)
	link := &redistest.Link{}
	r := q.redlock(t, lock.RedlockConfig{NodeTimeout: time.Second}, func(i int, o *redis.Options) {
		if i == 0 {
			o.MaxRetries = 1
			link.Use(o)
		}
	})
	warm(t, q, r)
	acquire(t, open(t, q[0], lock.Config{}), "other", long)
	dropped := link.DropReply(digest(t, "acquire"))
	for _, s := range q[1:] {
		defer s.Pause(t)()
	}
	_, err := r.Acquire(t.Context(), "orders", lock.Options{Lease: long})
	happened(t, dropped)
	require.ErrorContains(t, err, "0 said yes and 1 no")
	require.NotErrorIs(t, err, lock.ErrNotAcquired)
}

// endsAt is a context that is found to have ended by the look of that number.
type endsAt struct {
	context.Context //nolint:containedctx // it is one

	end   context.CancelFunc
	looks atomic.Int64
}

func (c *endsAt) Err() error {
	if c.looks.Add(-1) == 0 {
		c.end()
	}
	return c.Context.Err()
}

// A waiter whose context ends is told so at every moment, also when a majority has just refused its round.
func TestRedlockWaitEndsAtAnyMoment(t *testing.T) {
	t.Parallel()
	r := startQuorum(t, 3).redlock(t, lock.RedlockConfig{RetryDelay: time.Millisecond})
	_, err := r.Acquire(t.Context(), "orders", lock.Options{Lease: long})
	require.NoError(t, err)
	for look := range int64(12) {
		inner, end := context.WithCancel(t.Context())
		ctx := &endsAt{Context: inner, end: end}
		ctx.looks.Store(look + 1)
		_, err := r.Acquire(ctx, "orders", lock.Options{Wait: lock.Forever}) // and no context of its own that ends after the wait
		require.ErrorIs(t, err, context.Canceled, "look %d", look+1)
		require.NotErrorIs(t, err, lock.ErrNotAcquired, "look %d", look+1)
	}
}

func TestRedlockClose(t *testing.T) {
	t.Parallel()
	q := startQuorum(t, 3)
	links := make([]redistest.Link, 3)
	r := q.redlock(t, lock.RedlockConfig{NodeTimeout: patient}, func(i int, o *redis.Options) { links[i].Use(o) })
	warm(t, q, r)
	h := acquire(t, r, "a", 0)
	q.await(t, 3)
	var deliver []func()
	var held []<-chan struct{}
	for i := range 2 {
		h, d := links[i].HoldReply(digest(t, "acquire"))
		held, deliver = append(held, h), append(deliver, d)
		t.Cleanup(d)
	}
	inFlight := make(chan error, 1)
	go func() {
		_, err := r.Acquire(t.Context(), "other", lock.Options{Lease: long})
		inFlight <- err
	}()
	for _, h := range held {
		happened(t, h)
	}
	waiter := waiting(t.Context(), t, r, lock.Options{Lease: long, Wait: lock.Forever})
	closed := make(chan struct{})
	go func() { r.Close(); close(closed) }()
	require.ErrorIs(t, <-waiter, lock.ErrClosed)
	require.ErrorIs(t, <-inFlight, lock.ErrClosed)
	for _, d := range deliver {
		d()
	}
	<-closed
	require.False(t, (&belief{hold: h}).isLost())
	require.NoError(t, h.Release(t.Context()), "a hold may still be released")
	require.Empty(t, q.on(t), "Close waited until all was taken back")
	_, err := r.Acquire(t.Context(), "orders", lock.Options{})
	require.ErrorIs(t, err, lock.ErrClosed)
	r.Close()
}
