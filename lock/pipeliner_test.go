package lock

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/lock/internal/require"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

// pipelines notes what a pipeliner sends, and lets it come back when it is told.
type pipelines struct {
	mu      sync.Mutex
	sent    [][]string
	release chan struct{}
}

func (p *pipelines) send(_ context.Context, calls []*queuedCall) {
	var keys []string
	for _, c := range calls {
		keys = append(keys, c.call.key())
		c.reply = reply{value: c.call.key()}
	}
	p.mu.Lock()
	p.sent = append(p.sent, keys)
	p.mu.Unlock()
	<-p.release
}

func (p *pipelines) all() [][]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sent
}

// callOf is a call for a key.
func callOf(key string) call { return on("inspect", []string{key}) }

// ask sends a call for a key in the background.
func ask(ctx context.Context, l *pipeliner, key string) <-chan reply {
	done := make(chan reply, 1)
	go func() {
		done <- l.run(ctx, callOf(key), nil)
	}()
	synctest.Wait()
	return done
}

func TestBatchOfQueuedCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pipelines{release: make(chan struct{})}
		l := newPipeliner(1, p.send)
		first := ask(t.Context(), l, "first")
		ctx, cancel := context.WithCancel(t.Context())
		left := ask(ctx, l, "left")
		var others []<-chan reply
		for i := range maxBatchCalls + 1 {
			others = append(others, ask(t.Context(), l, strconv.Itoa(i)))
		}
		cancel()
		require.ErrorIs(t, (<-left).err, context.Canceled, "while the lane is busy")
		close(p.release)
		require.Equal(t, reply{value: "first"}, <-first)
		for i, other := range others {
			require.Equal(t, reply{value: strconv.Itoa(i)}, <-other)
		}
		sent := p.all()
		require.Len(t, sent, 3)
		require.Len(t, sent[1], maxBatchCalls)
		times := map[string]int{}
		for _, keys := range sent {
			for _, key := range keys {
				times[key]++
			}
		}
		require.Len(t, times, maxBatchCalls+2, "what was left is never sent")
		for key, n := range times {
			require.Equal(t, 1, n, key)
		}
		synctest.Wait()
		busy, stuck, _ := l.state()
		require.Zero(t, busy+stuck)
	})
}

// Where other work keeps the processors, yielding costs a time slice: for a while
// no client does.
func TestNoBatchIsCollectedOnABusyMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _, yields := yielding(2)
		first := ask(t.Context(), l, "first")
		time.Sleep(slowYield + 1)
		yields <- true
		require.NoError(t, (<-first).err)
		for range skipsAfterSlowYield {
			l.lastBatch = 2
			require.NoError(t, (<-ask(t.Context(), l, "alone")).err)
		}
		l.lastBatch = 2
		first = ask(t.Context(), l, "first")
		second := ask(t.Context(), l, "second")
		yields <- true
		require.NoError(t, (<-first).err)
		require.NoError(t, (<-second).err)
	})
}

// yielding is a pipeliner after a pipeline of so many calls; a goroutine that yields waits until
// it is told.
func yielding(together int) (l *pipeliner, p *pipelines, yields chan bool) {
	p = &pipelines{release: make(chan struct{})}
	close(p.release)
	l, yields = newPipeliner(minSlots, p.send), make(chan bool)
	l.best, l.lastBatch = 0, together
	l.yield = func() { <-yields }
	return l, p, yields
}

func TestBatchWaitsForCallsThatAreAboutToCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p, yields := yielding(3)
		first := ask(t.Context(), l, "first")
		ctx, cancel := context.WithCancel(t.Context())
		left := ask(ctx, l, "left")
		second := ask(t.Context(), l, "second")
		cancel()
		require.ErrorIs(t, (<-left).err, context.Canceled)
		yields <- true
		synctest.Wait()
		require.Empty(t, p.all(), "the third may come yet")
		third := ask(t.Context(), l, "third")
		require.Empty(t, p.all())
		yields <- true
		for _, done := range []<-chan reply{first, second, third} {
			require.NoError(t, (<-done).err)
		}
		require.Equal(t, [][]string{{"first", "second", "third"}}, p.all())
		synctest.Wait()
		require.Equal(t, 3, l.lastBatch)
		require.False(t, l.batching)
		alone := ask(t.Context(), l, "alone")
		for range maxYields {
			require.Empty(t, alone)
			yields <- true
		}
		require.NoError(t, (<-alone).err, "it waits no longer")
		synctest.Wait()
		require.NoError(t, (<-ask(t.Context(), l, "alone")).err, "nor at all, after one that went alone")
		busy, stuck, _ := l.state()
		require.Zero(t, busy+stuck)
	})
}

// Who lets others run may not run itself for long, where there is other work.
func TestBatchThatTakesTooLongToCollect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p, yields := yielding(3)
		first := ask(t.Context(), l, "first")
		time.Sleep(yieldLimit + 1)
		yields <- true
		require.NoError(t, (<-first).err, "it yields once")
		synctest.Wait()

		l.lastBatch = 3
		first = ask(t.Context(), l, "first")
		second := ask(t.Context(), l, "second")
		third := ask(t.Context(), l, "third")
		time.Sleep(stallTimeout)
		synctest.Wait()
		_, stuck, queued := l.state()
		require.Equal(t, 1, stuck)
		require.Equal(t, 1, queued, "the second gathers now")
		close(yields)
		for _, done := range []<-chan reply{first, second, third} {
			require.NoError(t, (<-done).err)
		}
		times := map[string]int{}
		for _, keys := range p.all()[1:] {
			for _, key := range keys {
				times[key]++
			}
		}
		require.Equal(t, map[string]int{"first": 1, "second": 1, "third": 1}, times)
		synctest.Wait()
		busy, stuck, queued := l.state()
		require.Zero(t, busy+stuck+queued)
		require.False(t, l.batching)
	})
}

// The context of the call that collects a batch ends: the others are sent, and the slot is freed.
func TestBatchWhoseFirstCallerIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p, yields := yielding(2)
		ctx, cancel := context.WithCancel(t.Context())
		first := ask(ctx, l, "first")
		second := ask(t.Context(), l, "second")
		cancel()
		synctest.Wait()
		require.Empty(t, first)
		yields <- true
		require.ErrorIs(t, (<-first).err, context.Canceled)
		require.NoError(t, (<-second).err)
		require.Equal(t, [][]string{{"second"}}, p.all())
		synctest.Wait()
		busy, stuck, _ := l.state()
		require.Zero(t, busy+stuck)
		require.False(t, l.batching)
	})
}

// More calls come than one pipeline takes: the next of them takes a slot at once.
func TestMoreCallsThanOneBatchTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p, yields := yielding(2)
		p.release = make(chan struct{})
		var all []<-chan reply
		for i := range maxBatchCalls + 2 {
			all = append(all, ask(t.Context(), l, strconv.Itoa(i)))
		}
		require.Empty(t, p.all())
		yields <- true
		synctest.Wait()
		yields <- true
		synctest.Wait()
		require.Len(t, p.all(), 2, "on two lanes")
		require.Len(t, p.all()[0], maxBatchCalls)
		require.Equal(t, []string{strconv.Itoa(maxBatchCalls), strconv.Itoa(maxBatchCalls + 1)}, p.all()[1])
		close(p.release)
		for _, done := range all {
			require.NoError(t, (<-done).err)
		}
	})
}

// A call that is among those of others when its context ends is not sent, and
// they are.
func TestBatchLeavesOutCallersThatAreGone(t *testing.T) {
	p := &pipelines{release: make(chan struct{})}
	close(p.release)
	l := newPipeliner(1, p.send)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	l.inUse = 1
	calls := []*queuedCall{
		{ctx: over, call: callOf("a")},
		{ctx: t.Context(), call: callOf("b"), ready: make(chan bool, 1)},
		{ctx: over, call: callOf("c"), ready: make(chan bool, 1)},
	}
	l.sendBatch(calls)
	require.Equal(t, [][]string{{"b"}}, p.sent)
	require.ErrorIs(t, calls[0].reply.err, context.Canceled)
	require.Equal(t, reply{value: "b"}, calls[1].reply)
	require.ErrorIs(t, calls[2].reply.err, context.Canceled)
	require.False(t, <-calls[1].ready)
	require.False(t, <-calls[2].ready)
}

// A call that waits while nothing is answered gets another slot, up to the limit; and there
// are as few slots as before when the server answers again.
func TestSlotsThatAreNotAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 3 * minSlots
		p := &pipelines{release: make(chan struct{})}
		l := newPipeliner(limit, p.send)
		l.best = 0 // it answered at once so far
		begin := time.Now()
		var all []<-chan reply
		for i := range 3 * limit {
			all = append(all, ask(t.Context(), l, strconv.Itoa(i)))
			for _, _, queued := l.state(); queued > 0 && len(p.all()) < limit; _, _, queued = l.state() {
				time.Sleep(time.Millisecond)
				synctest.Wait()
			}
		}
		require.Equal(t, (limit/minSlots-1)*stallTimeout, time.Since(begin))
		require.Len(t, p.all(), limit)
		time.Sleep(time.Hour)
		require.Len(t, p.all(), limit, "no more than that")
		close(p.release)
		for _, done := range all {
			require.NoError(t, (<-done).err)
		}
		synctest.Wait()
		busy, stuck, _ := l.state()
		require.Zero(t, busy)
		require.Zero(t, stuck)
	})
}

func (l *pipeliner) state() (busy, stuck, queued int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inUse, l.abandoned, len(l.queue)
}

// A server that is far away has as many slots as it takes time.
func TestSlotsToAServerThatIsFarAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPipeliner(100, func(_ context.Context, calls []*queuedCall) {
			time.Sleep(time.Millisecond)
			for _, c := range calls {
				c.reply = reply{}
			}
		})
		for range 3 { // the first may be slow for other reasons
			<-ask(t.Context(), l, "warm")
		}
		begin := time.Now()
		var all []<-chan reply
		for range 1 + time.Millisecond/slotLatency {
			all = append(all, ask(t.Context(), l, "key"))
		}
		for _, done := range all {
			require.NoError(t, (<-done).err)
		}
		require.Equal(t, time.Millisecond, time.Since(begin), "no call waited for another")
	})
}

func TestDeadlineOfAPipeline(t *testing.T) {
	sooner, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	later, cancelLater := context.WithTimeout(t.Context(), time.Hour)
	defer cancelLater()
	ctx, done := batchContext([]*queuedCall{{ctx: sooner}})
	require.Equal(t, sooner, ctx, "with its values")
	done()
	ctx, done = batchContext([]*queuedCall{{ctx: later}, {ctx: sooner}})
	defer done()
	got, _ := ctx.Deadline()
	want, _ := later.Deadline()
	require.Equal(t, want, got)
	ctx, done = batchContext([]*queuedCall{{ctx: later}, {ctx: t.Context()}})
	defer done()
	_, bounded := ctx.Deadline()
	require.False(t, bounded)
}

// One pipeline has a script that the server knows, one that it doesn't know, and
// one that fails.
func TestPipelineOfMixedFortune(t *testing.T) {
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	c, err := New(rdb, Config{})
	require.NoError(t, err)
	defer c.Close()
	ctx := t.Context()
	require.NoError(t, rdb.Set(ctx, "lock:{taken}", "my data", 0).Err())
	require.NoError(t, rdb.ScriptLoad(ctx, Scripts()["inspect"]).Err())
	acquire := func(name string) *queuedCall {
		return &queuedCall{ctx: ctx, call: requestFor(c.Mutex(name))}
	}
	calls := []*queuedCall{
		acquire("a"),
		{ctx: ctx, call: on("inspect", []string{"lock:{b}"})},
		acquire("taken"),
		acquire("c"),
	}
	c.transport.exchangeUnacked(ctx, calls)
	for _, i := range []int{0, 1, 3} {
		require.NoError(t, calls[i].reply.err)
		require.NotNil(t, calls[i].reply.value)
	}
	require.ErrorContains(t, calls[2].reply.err, "use another name")
	for name, held := range map[string]bool{"a": true, "b": false, "c": true} {
		locked, err := c.Mutex(name).IsLocked(ctx)
		require.NoError(t, err)
		require.Equal(t, held, locked, name)
	}
}

// linked is a client on a link that can be disturbed, to a server that knows the
// scripts.
func linked(t *testing.T) (*Client, *redistest.Link, *redis.Client) {
	t.Helper()
	s, link := redistest.Start(t), &redistest.Link{}
	c, err := New(s.Client(t, func(o *redis.Options) { link.Use(o); o.ReadTimeout = time.Minute }), Config{})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	for range 2 {
		h, err := c.Acquire(t.Context(), "warm", Options{Lease: time.Minute})
		require.NoError(t, err)
		require.NoError(t, h.Release(t.Context()))
	}
	return c, link, s.Client(t, nil)
}

// The answers of one connection stay away. Callers that ask by another one get theirs.
// The one that waits is gone at once when it gives up, and so is its grant.
func TestConnectionThatIsSilent(t *testing.T) {
	t.Parallel()
	c, link, rdb := linked(t)
	held, deliver := link.HoldReply(acquireDigest())
	t.Cleanup(deliver)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stuck := make(chan error, 1)
	go func() {
		_, err := c.Acquire(ctx, "stuck", Options{Lease: time.Minute})
		stuck <- err
	}()
	<-held
	var others sync.WaitGroup
	for i := range 100 {
		others.Go(func() {
			h, err := c.Acquire(t.Context(), strconv.Itoa(i), Options{Lease: time.Minute})
			if err == nil {
				err = h.Release(t.Context())
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	others.Wait()
	require.Empty(t, stuck)
	cancel()
	require.ErrorIs(t, <-stuck, context.Canceled, "without the reply")
	require.Equal(t, int64(1), rdb.Exists(t.Context(), "lock:{stuck}").Val())
	deliver()
	redistest.Await(t, "the grant to be withdrawn", func() bool {
		return rdb.Exists(t.Context(), "lock:{stuck}").Val() == 0
	})
}

func TestCloseWhileNothingComesBack(t *testing.T) {
	c, link, rdb := linked(t)
	held, deliver := link.HoldReplies(acquireDigest())
	t.Cleanup(deliver)
	const callers = 50
	errs := make(chan error, callers)
	for range callers {
		go func() {
			_, err := c.Mutex("orders").Lock(t.Context(), Options{Lease: time.Minute, Owner: strconv.Itoa(callers)})
			errs <- err
		}()
	}
	<-held
	closed := make(chan struct{})
	go func() { c.Close(); close(closed) }()
	<-c.closing
	select {
	case <-closed:
		t.Fatal("Close did not wait for what is in flight")
	case <-time.After(20 * time.Millisecond): // nothing can be awaited that is not to happen
	}
	deliver()
	<-closed
	granted := 0
	for range callers {
		if err := <-errs; err != nil {
			require.ErrorIs(t, err, ErrClosed)
		} else {
			granted++
		}
	}
	taken := len(redistest.Fields(t.Context(), t, rdb, "lock:{orders}")) > 0
	require.Equal(t, granted > 0, taken, "what no caller was told of is withdrawn")
}
