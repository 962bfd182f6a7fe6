package lock

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/lock/internal/require"
	"github.com/lockchaos/lockchaos/lock/internal/transport"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

// gone is how long a caller that gave up may take to return on a busy machine.
const gone = 2 * time.Second

// acquireText is what requests for a mutex have in them: the script is called so, or a first one is a command.
func acquireText() string { return scripts()["acquire"].Digest + "|\r\nset\r\n" }

// within are options that wait for so long.
func within(wait time.Duration, o Options) Options {
	o.Wait = wait
	return o
}

// byGoroutine has a client send no request by the goroutine of its caller.
func byGoroutine(c *Client) {
	rdb, _ := c.rdb.(*redis.Client)
	c.transport = transport.New(struct{ redis.UniversalClient }{rdb}, 0, 0, c.background) // of which a request can't be ended soon
}

// requestFor is a new request for a lock, for a minute.
func requestFor(m *Mutex) transport.Call {
	g := m.grant(Options{Lease: time.Minute})
	return g.kind.acquire(g)
}

// takes asks for the lock "orders" in the background.
func takes(ctx context.Context, c *Client, o Options) (<-chan *Hold, <-chan error) {
	holds, errs := make(chan *Hold, 1), make(chan error, 1)
	go func() {
		h, err := c.Acquire(ctx, "orders", o)
		holds <- h
		errs <- err
	}()
	return holds, errs
}

func exists(t *testing.T, rdb *redis.Client) bool {
	t.Helper()
	n, err := rdb.Exists(t.Context(), "lock:{orders}").Result()
	require.NoError(t, err)
	return n == 1
}

// A caller that gives a request up is gone at once, and so is its grant.
func TestRequestIsGivenUp(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"cancelled", "closed"} {
		t.Run(how, func(t *testing.T) {
			c, link, rdb := linked(t)
			held, deliver := link.HoldReplies(acquireText())
			defer deliver()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			_, errs := takes(ctx, c, Options{Lease: time.Minute})
			<-held
			begin, want := time.Now(), context.Canceled
			if how == "cancelled" {
				cancel()
			} else {
				want = ErrClosed
				go c.Close()
			}
			require.ErrorIs(t, <-errs, want)
			require.True(t, time.Since(begin) < gone)
			deliver()
			c.Close()
			require.False(t, exists(t, rdb), "Close waited until the grant was taken back")
		})
	}
}

// A request whose answer is slow is sent once, and awaited.
func TestSlowAnswerIsAwaited(t *testing.T) {
	t.Parallel()
	c, link, rdb := linked(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	byGoroutine(c)
	require.NoError(t, rdb.ConfigResetStat(ctx).Err())
	held, deliver := link.HoldReply(acquireText())
	defer deliver()
	holds, errs := takes(ctx, c, Options{Lease: time.Minute})
	<-held
	select {
	case err := <-errs:
		t.Fatalf("there is no answer yet, and it ended with %v", err)
	case <-time.After(200 * time.Millisecond): // nothing can be awaited that is not to happen
	}
	stats, err := rdb.Info(ctx, "commandstats").Result()
	require.NoError(t, err)
	require.True(t, strings.Contains(stats, "cmdstat_evalsha:calls=1,"), stats)
	deliver()
	h := <-holds
	require.NoError(t, <-errs)
	require.NoError(t, h.Release(ctx))
}

// A pool of one connection, which another request keeps: a caller that gives up
// waiting for it is gone.
func TestRequestWithoutAConnectionIsGivenUp(t *testing.T) {
	s := redistest.Start(t)
	rdb := s.Client(t, func(o *redis.Options) { o.PoolSize, o.PipelinePoolSize = 1, -1 })
	c, err := New(rdb, Config{})
	require.NoError(t, err)
	defer c.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 10 {
		h, err := c.Acquire(ctx, "orders", Options{Lease: time.Minute})
		require.NoError(t, err)
		require.NoError(t, h.Release(ctx))
	}
	popped := make(chan error, 1)
	go func() { popped <- rdb.BLPop(t.Context(), time.Minute, "queue").Err() }()
	redistest.Await(t, "the connection to be taken", func() bool { return rdb.PoolStats().IdleConns == 0 })
	_, errs := takes(ctx, c, Options{Lease: time.Minute})
	redistest.Await(t, "the request", func() bool {
		pipelines, _ := c.transport.Load()
		return pipelines > 0
	})
	begin := time.Now()
	cancel()
	require.ErrorIs(t, <-errs, context.Canceled)
	require.True(t, time.Since(begin) < gone)
	require.NoError(t, s.Client(t, nil).LPush(t.Context(), "queue", "x").Err())
	require.NoError(t, <-popped)
}

// A program that uses up the pool with commands that block doesn't keep its holds from
// being renewed.
func TestRequestsWithoutAFreeConnection(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t, func(o *redis.Options) { o.PoolSize = 1 })
	renewed := make(chan error, 100)
	c, err := New(rdb, Config{Watchdog: 6 * time.Second, Observer: observing(func(e Event) {
		if e.Kind == Renewed || e.Kind == Extended {
			renewed <- e.Err
		}
	})})
	require.NoError(t, err)
	defer c.Close()
	h, err := c.Acquire(t.Context(), "orders", Options{})
	require.NoError(t, err)
	popped := make(chan error, 1)
	go func() { popped <- rdb.BLPop(t.Context(), time.Minute, "queue").Err() }()
	redistest.Await(t, "the connection to be taken", func() bool { return rdb.PoolStats().IdleConns == 0 })
	require.NoError(t, h.Extend(t.Context(), 6*time.Second))
	require.NoError(t, <-renewed)
	require.NoError(t, <-renewed, "by the watchdog")
	other, err := c.Acquire(t.Context(), "invoices", Options{})
	require.NoError(t, err)
	require.NoError(t, other.Release(t.Context()))
	require.NoError(t, h.Release(t.Context()))
	require.NoError(t, s.Client(t, nil).LPush(t.Context(), "queue", "x").Err())
	require.NoError(t, <-popped)
}

// observing is an observer.
type observing func(e Event)

func (o observing) Observe(e Event) { o(e) }

// What is known of copies: a request that was answered has none, whatever the
// answer; one whose reply was lost, and one that was repeated, may have.
func TestCopiesOfARequest(t *testing.T) {
	t.Parallel()
	s, link := redistest.Start(t), &redistest.Link{}
	rdb := s.Client(t, nil)
	ask := func(retries int) transport.Reply {
		c, err := New(s.Client(t, func(o *redis.Options) { o.MaxRetries = retries; link.Use(o) }), Config{})
		require.NoError(t, err)
		defer c.Close()
		return c.transport.Run(t.Context(), requestFor(c.Mutex("orders")))
	}
	r := ask(0) // the server doesn't know the script
	require.NoError(t, r.Err)
	require.False(t, r.Copies)
	r = ask(0) // it refuses
	require.NoError(t, r.Err)
	require.False(t, r.Copies)

	dropped := link.DropReply("evalsha")
	r = ask(0)
	<-dropped
	require.NoError(t, r.Err)
	require.True(t, r.Copies, "sent again")
	dropped = link.DropReply("evalsha")
	r = ask(-1)
	<-dropped
	require.Error(t, r.Err)
	require.True(t, r.Copies, "not known")

	require.NoError(t, rdb.Set(t.Context(), "lock:{orders}", "", 0).Err())
	require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
	r = ask(-1)
	require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "0").Err())
	require.True(t, transport.IsRefusal(r.Err), "%v", r.Err)
	require.False(t, r.Copies, "it was refused")
}

// Requests are repeated as often as the options of the Redis client say, and only
// for errors that pass.
func TestRepetitionsAreThoseOfTheOptions(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	require.NoError(t, rdb.ConfigSet(t.Context(), "min-replicas-to-write", "1").Err())
	for retries, want := range map[int]int{-1: 1, 0: 4, 2: 3} {
		sent := &counter{}
		own := s.Client(t, func(o *redis.Options) {
			o.MaxRetries, o.MinRetryBackoff, o.MaxRetryBackoff = retries, time.Millisecond, 2*time.Millisecond
		})
		own.AddHook(sent)
		c, err := New(own, Config{})
		require.NoError(t, err)
		defer c.Close()
		require.NoError(t, rdb.ConfigSet(t.Context(), "min-replicas-to-write", "0").Err())
		h, err := c.Acquire(t.Context(), "known", Options{Lease: time.Minute})
		require.NoError(t, err)
		require.NoError(t, h.Release(t.Context()))
		sent.reset()
		require.NoError(t, rdb.ConfigSet(t.Context(), "min-replicas-to-write", "1").Err())
		r := c.transport.Run(t.Context(), requestFor(c.Mutex("orders")))
		require.ErrorContains(t, r.Err, "NOREPLICAS")
		require.Equal(t, want, sent.count(), "with MaxRetries %d", retries)
		require.False(t, r.Copies)
	}
}

// counter counts pipelines.
type counter struct {
	mu sync.Mutex
	n  int
}

func (c *counter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return single(c, next)
}

func (c *counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.mu.Lock()
		c.n++
		c.mu.Unlock()
		return next(ctx, cmds)
	}
}

func (c *counter) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

func (c *counter) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n = 0
}

// Too few replicas are awaited once, but for the first request, for which the
// server may not know the script.
func TestReplicasAreAwaitedOnce(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	c, err := New(s.Client(t, nil), Config{ReplicaAcks: 1, AckTimeout: 10 * time.Millisecond})
	require.NoError(t, err)
	defer c.Close()
	for want := 2; want > 0; want-- {
		require.NoError(t, rdb.ConfigResetStat(t.Context()).Err())
		_, err = c.Acquire(t.Context(), "orders", Options{Lease: time.Minute})
		require.ErrorIs(t, err, ErrNotReplicated)
		stats, err := rdb.Info(t.Context(), "commandstats").Result()
		require.NoError(t, err)
		require.True(t, strings.Contains(stats, fmt.Sprintf("cmdstat_wait:calls=%d,", want)), stats)
	}
	stats, err := rdb.Info(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	require.False(t, strings.Contains(stats, "cmdstat_eval:"), "the second goes by digest")
}

// A server that was quick and is gone: a caller that gives up doesn't wait until there
// is a connection to it.
func TestRequestToAServerThatIsGone(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"cancelled", "closed"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			dialled := make(chan struct{}, 100)
			var silent atomic.Bool
			c, err := New(s.Client(t, func(o *redis.Options) {
				o.MaxRetries, o.DialerRetries, o.DialTimeout = -1, 1, 4*time.Second
				o.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) {
					if silent.Load() { // it takes no connection, and refuses none
						dialled <- struct{}{}
						<-ctx.Done()
						return nil, ctx.Err()
					}
					return s.Dial(ctx)
				}
			}), Config{})
			require.NoError(t, err)
			defer c.Close()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			for range 2 { // a caller sends by itself then, and dials for no longer than it would wait for an answer
				h, err := c.Acquire(ctx, "orders", Options{Lease: time.Minute})
				require.NoError(t, err)
				require.NoError(t, h.Release(ctx))
			}
			silent.Store(true)
			s.Kill()
			_, errs := takes(ctx, c, Options{Lease: time.Minute})
			<-dialled
			begin := time.Now()
			want := context.Canceled
			if how == "cancelled" {
				cancel()
			} else {
				want = ErrClosed
				go c.Close()
			}
			require.ErrorIs(t, <-errs, want)
			require.True(t, time.Since(begin) < gone)
		})
	}
}
