package lock

import (
	"context"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/lock/internal/redistest"
)

// gone is how long a caller that gave up may take to return: a request in a
// hurry, and a busy machine.
const gone = 2*haste + 2*time.Second

// acquireDigest is by what the script of a mutex is called.
func acquireDigest(c *Client) string {
	return c.kinds.mutex.acquire(&grant{object: &c.Mutex("x").object}).script.Hash()
}

// requestFor is a new request for a lock, for a minute.
func requestFor(m *Mutex) call {
	g := m.grant(Options{Lease: time.Minute})
	g.introduce()
	return g.kind.acquire(g)
}

// ready makes the next request one in a hurry.
func ready(t *testing.T, c *Client) {
	t.Helper()
	redistest.Await(t, "a quick answer", func() bool {
		_, err := c.Mutex("warm").IsLocked(t.Context())
		require.NoError(t, err)
		return c.isQuick() && c.hurry.warm()
	})
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

// Whoever gives a request up in a hurry is gone at once, and so is its grant.
func TestHastyRequestIsGivenUp(t *testing.T) {
	for _, how := range []string{"cancelled", "out of time", "closed"} {
		t.Run(how, func(t *testing.T) {
			c, link, rdb := linked(t)
			ready(t, c)
			held, deliver := link.HoldReplies(acquireDigest(c))
			defer deliver()
			ctx, cancel := context.WithCancel(t.Context())
			want := context.Canceled
			over := make(chan struct{})
			if how == "out of time" { // when the test says so
				ctx, want = brief{ctx, over}, context.DeadlineExceeded
			}
			defer cancel()
			_, errs := takes(ctx, c, Options{Lease: time.Minute})
			<-held
			begin := time.Now()
			switch how {
			case "cancelled":
				cancel()
			case "out of time":
				close(over)
			case "closed":
				want = ErrClosed
				go c.Close()
			}
			require.ErrorIs(t, <-errs, want)
			require.Less(t, time.Since(begin), gone)
			deliver()
			c.Close()
			require.False(t, exists(t, rdb), "Close waited until the grant was taken back")
		})
	}
}

// A call that goes with those of somebody else is given up while they are under
// way.
func TestHastyRequestIsGivenUpInAPipelineOfOthers(t *testing.T) {
	for _, how := range []string{"cancelled", "closed"} {
		t.Run(how, func(t *testing.T) {
			release := make(chan struct{})
			sent := make(chan int, 2)
			l := newLanes(1, func(_ context.Context, calls []*posted, _ bool) {
				sent <- len(calls)
				<-release
				for _, p := range calls {
					p.reply = reply[any]{value: "late"}
				}
			})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			abort := make(chan struct{})
			var callers sync.WaitGroup
			defer callers.Wait()
			callers.Go(func() { l.run(t.Context(), callOf("first"), nil) })
			require.Equal(t, 1, <-sent)
			callers.Go(func() { l.run(t.Context(), callOf("leader"), nil) })
			redistest.Await(t, "the leader", func() bool { _, _, queued := l.state(); return queued == 1 })
			replies := make(chan reply[any], 1)
			callers.Go(func() { replies <- l.run(hasty{ctx, abort}, callOf("hasty"), nil) }) //nolint:contextcheck // it is ctx
			redistest.Await(t, "both", func() bool { _, _, queued := l.state(); return queued == 2 })
			release <- struct{}{}
			require.Equal(t, 2, <-sent)
			want := context.Canceled
			if how == "cancelled" {
				cancel()
			} else {
				want = ErrClosed
				close(abort)
			}
			r := <-replies
			close(release)
			require.ErrorIs(t, r.err, want)
			require.True(t, r.copies, "it is under way")
		})
	}
}

// A server that doesn't answer for longer than a hurry lasts is awaited: there is
// one grant in the end, and one release frees it.
func TestHastyRequestIsRepeatedWithPatience(t *testing.T) {
	for _, retries := range []int{-1, 0} {
		s, link := redistest.Start(t), &redistest.Link{}
		c, err := New(s.Client(t, func(o *redis.Options) { o.MaxRetries = retries; link.Use(o) }), Config{})
		require.NoError(t, err)
		defer c.Close()
		rdb := s.Client(t, nil)
		ctx, cancel := context.WithCancel(t.Context()) // without one nobody hurries
		defer cancel()
		ready(t, c)
		warm, err := c.FencedMutex("orders").Acquire(ctx, Options{Lease: time.Minute})
		require.NoError(t, err)
		require.NoError(t, warm.Release(ctx))
		ready(t, c)
		held, deliver := link.HoldReplies(c.kinds.fenced.acquire(&grant{object: &c.FencedMutex("x").object}).script.Hash())
		holds := make(chan *Hold, 1)
		go func() {
			h, err := c.FencedMutex("orders").Acquire(ctx, Options{Lease: time.Minute, Owner: "a"})
			if err != nil {
				t.Error(err)
			}
			holds <- h
		}()
		<-held
		redistest.Await(t, "the end of the hurry", func() bool { return !c.isQuick() })
		deliver()
		h := <-holds
		require.NotNil(t, h)
		require.Equal(t, 1, h.Lease().Holds)
		last, err := rdb.Get(ctx, keysOf("lock", "orders").token()).Int64()
		require.NoError(t, err)
		require.Equal(t, last, h.Lease().Token, "the token of the one grant")
		g, ok := h.keeper.(*grant)
		require.True(t, ok)
		require.True(t, g.copied)
		require.NoError(t, h.Release(ctx))
		require.False(t, exists(t, rdb), "one release frees it")
	}
}

// An error that isn't a lack of time is repeated if the user wants that.
func TestHastyRequestOfABrokenConnection(t *testing.T) {
	for _, retries := range []int{-1, 0} {
		s, link := redistest.Start(t), &redistest.Link{}
		c, err := New(s.Client(t, func(o *redis.Options) { o.MaxRetries = retries; link.Use(o) }), Config{})
		require.NoError(t, err)
		defer c.Close()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		warm, err := c.Acquire(ctx, "warm", Options{Lease: time.Minute})
		require.NoError(t, err)
		require.NoError(t, warm.Release(ctx))
		ready(t, c)
		dropped := link.DropReply(acquireDigest(c))
		h, err := c.Acquire(ctx, "orders", Options{Lease: time.Minute})
		<-dropped
		if retries < 0 {
			require.Error(t, err)
		} else {
			require.NoError(t, err)
			require.NoError(t, h.Release(ctx))
		}
		c.Close()
		require.False(t, exists(t, s.Client(t, nil)))
	}
}

// A pool of one connection, which somebody else keeps: nobody hurries for long to get
// it, and who gives up is gone.
func TestNobodyHurriesForAConnection(t *testing.T) {
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
	ready(t, c)
	popped := make(chan error, 1)
	go func() { popped <- rdb.BLPop(t.Context(), time.Minute, "queue").Err() }()
	redistest.Await(t, "the connection to be taken", func() bool { return !c.hurry.warm() })
	_, errs := takes(ctx, c, Options{Lease: time.Minute})
	redistest.Await(t, "the request", func() bool {
		busy, stuck, _ := c.road.one.state()
		return busy+stuck > 0
	})
	begin := time.Now()
	cancel()
	require.ErrorIs(t, <-errs, context.Canceled)
	require.Less(t, time.Since(begin), gone)
	require.NoError(t, s.Client(t, nil).LPush(t.Context(), "queue", "x").Err())
	require.NoError(t, <-popped)
}

func TestSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &soon{}
		for range 5 { // in a row, and after a pause
			var all []time.Duration
			for range 5 {
				begin, done := time.Now(), s.done(func() bool { return true })
				time.Sleep(haste / 3)
				<-done
				all = append(all, time.Since(begin))
			}
			for _, took := range all {
				require.GreaterOrEqual(t, took, haste)
				require.LessOrEqual(t, took, 2*haste)
			}
			time.Sleep(10 * haste)
			s.mu.Lock()
			require.Nil(t, s.next, "it stands still")
			s.mu.Unlock()
		}
	})
}

// Whether one may hurry is asked once for a while, and for as long as the answer is no.
func TestSoonAsksNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, asked, yes := &soon{}, 0, false
		may := func() bool {
			asked++
			return yes
		}
		require.Nil(t, s.done(may))
		require.Nil(t, s.done(may))
		yes = true
		done := s.done(may)
		yes = false
		for range 5 {
			require.NotNil(t, s.done(may))
		}
		require.Equal(t, 3, asked)
		<-done
		require.Nil(t, s.done(may))
		require.Equal(t, 4, asked)
		time.Sleep(10 * haste)
		s.mu.Lock()
		require.Nil(t, s.next, "it stands still")
		s.mu.Unlock()
	})
}

// A request to a server that answers at once needs no goroutine of its own.
func TestPlainRequestHasNoGoroutine(t *testing.T) {
	c, _, _ := linked(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ready(t, c)
	redistest.Await(t, "a run without a goroutine", func() bool { // one may always be slow
		ready(t, c) //nolint:contextcheck // it has the test's
		c.mu.Lock()
		c.dismiss(len(c.idle))
		c.mu.Unlock()
		for i := range 10 {
			h, err := c.Acquire(ctx, strconv.Itoa(i), Options{Lease: time.Minute})
			require.NoError(t, err)
			require.NoError(t, h.Release(ctx))
		}
		return c.resting() == 0
	})
}

// What is known of copies: a request that was answered has none, whatever the
// answer; one whose reply was lost, and one that was repeated, may have.
func TestCopiesOfARequest(t *testing.T) {
	s, link := redistest.Start(t), &redistest.Link{}
	rdb := s.Client(t, nil)
	ask := func(retries int) reply[any] {
		c, err := New(s.Client(t, func(o *redis.Options) { o.MaxRetries = retries; link.Use(o) }), Config{})
		require.NoError(t, err)
		defer c.Close()
		replies, _ := c.commit(t.Context(), requestFor(c.Mutex("orders")))
		require.Len(t, replies, 1)
		return replies[0]
	}
	r := ask(0) // the server doesn't know the script
	require.NoError(t, r.err)
	require.False(t, r.copies)
	r = ask(0) // it refuses
	require.NoError(t, r.err)
	require.False(t, r.copies)

	dropped := link.DropReply("evalsha")
	r = ask(0)
	<-dropped
	require.NoError(t, r.err)
	require.True(t, r.copies, "sent again")
	dropped = link.DropReply("evalsha")
	r = ask(-1)
	<-dropped
	require.Error(t, r.err)
	require.True(t, r.copies, "not known")

	require.NoError(t, rdb.Set(t.Context(), "lock:{orders}", "", 0).Err())
	require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
	r = ask(-1)
	require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "0").Err())
	require.True(t, isRefusal(r.err), "%v", r.err)
	require.False(t, r.copies, "it was refused")
}

// A request that rides with one in a hurry, which finds no connection, may still
// have been sent before.
func TestColdHurryForgetsNoCopies(t *testing.T) {
	s := redistest.Start(t)
	c, err := New(s.Client(t, nil), Config{})
	require.NoError(t, err)
	defer c.Close()
	m := c.Mutex("orders")
	p := &posted{ctx: t.Context(), call: requestFor(m), reply: reply[any]{copies: true}}
	c.post(t.Context(), []*posted{p}, true)
	require.ErrorIs(t, p.reply.err, errCold)
	require.True(t, p.reply.copies)
	c.post(t.Context(), []*posted{p}, false)
	require.NoError(t, p.reply.err)
	require.True(t, p.reply.copies, "nor does a later one that is answered")
}

// Requests are repeated as often as the options of the Redis client say, and only
// for errors that pass.
func TestRepetitionsAreThoseOfTheOptions(t *testing.T) {
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
		r := c.road.run(t.Context(), requestFor(c.Mutex("orders")))
		require.ErrorContains(t, r.err, "NOREPLICAS")
		require.Equal(t, want, sent.count(), "with MaxRetries %d", retries)
		require.False(t, r.copies)
	}
}

// counter counts pipelines.
type counter struct {
	mu sync.Mutex
	n  int
}

func (c *counter) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (c *counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

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

// Too few replicas are awaited once, also by the first request, for which the
// server may not know the script.
func TestReplicasAreAwaitedOnce(t *testing.T) {
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	c, err := New(s.Client(t, nil), Config{ReplicaAcks: 1, AckTimeout: 10 * time.Millisecond})
	require.NoError(t, err)
	defer c.Close()
	require.Nil(t, c.hurry, "replicas take their time")
	for range 2 {
		require.NoError(t, rdb.ConfigResetStat(t.Context()).Err())
		_, err = c.Acquire(t.Context(), "orders", Options{Lease: time.Minute})
		require.ErrorIs(t, err, ErrNotReplicated)
		stats, err := rdb.Info(t.Context(), "commandstats").Result()
		require.NoError(t, err)
		require.Contains(t, stats, "cmdstat_wait:calls=1,")
	}
	stats, err := rdb.Info(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	require.NotContains(t, stats, "cmdstat_eval:", "the second goes by digest")
}

// A server that was quick and is gone: whoever gives up doesn't wait until there
// is a connection to it.
func TestHastyRequestToAServerThatIsGone(t *testing.T) {
	for _, how := range []string{"cancelled", "closed"} {
		t.Run(how, func(t *testing.T) {
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
			ready(t, c)
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
			require.Less(t, time.Since(begin), gone)
		})
	}
}
