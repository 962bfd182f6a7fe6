package transport

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockchaos/lockchaos/lock/internal/require"
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
		c.reply = Reply{Value: c.call.key()}
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
func callOf(key string) Call { return Call{Keys: []string{key}} }

func queued(ctx context.Context, key string) *queuedCall {
	return &queuedCall{ctx: ctx, call: callOf(key), ready: make(chan bool, 1), reply: Reply{Err: errNoReply}}
}

// ask sends a call for a key in the background.
func ask(ctx context.Context, l *pipeliner, key string) <-chan Reply {
	done := make(chan Reply, 1)
	go func() {
		done <- l.run(queued(ctx, key)) //nolint:contextcheck // a call has its own
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
		var others []<-chan Reply
		for i := range maxBatchCalls + 1 {
			others = append(others, ask(t.Context(), l, strconv.Itoa(i)))
		}
		cancel()
		require.ErrorIs(t, (<-left).Err, context.Canceled, "while the slot is taken")
		close(p.release)
		require.Equal(t, Reply{Value: "first"}, <-first)
		for i, other := range others {
			require.Equal(t, Reply{Value: strconv.Itoa(i)}, <-other)
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
		busy, queued := l.state()
		require.Zero(t, busy+queued)
	})
}

// yielding is a pipeliner after a pipeline of so many calls; a goroutine that yields waits until
// it is told.
func yielding(together int) (l *pipeliner, p *pipelines, yields chan bool) {
	p = &pipelines{release: make(chan struct{})}
	close(p.release)
	l, yields = newPipeliner(slots, p.send), make(chan bool)
	l.lastBatch = together
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
		require.ErrorIs(t, (<-left).Err, context.Canceled)
		yields <- true
		synctest.Wait()
		require.Len(t, p.all(), 0, "the third may come yet")
		third := ask(t.Context(), l, "third")
		require.Len(t, p.all(), 0)
		yields <- true
		for _, done := range []<-chan Reply{first, second, third} {
			require.NoError(t, (<-done).Err)
		}
		require.Equal(t, [][]string{{"first", "second", "third"}}, p.all())
		synctest.Wait()
		require.Equal(t, 3, l.lastBatch)
		alone := ask(t.Context(), l, "alone")
		for range maxYields {
			require.Len(t, alone, 0)
			yields <- true
		}
		require.NoError(t, (<-alone).Err, "it waits no longer")
		synctest.Wait()
		require.NoError(t, (<-ask(t.Context(), l, "alone")).Err, "nor at all, after one that went alone")
		busy, queued := l.state()
		require.Zero(t, busy+queued)
	})
}

// Who lets others run may not run itself for long, where there is other work.
func TestBatchThatTakesTooLongToCollect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p, yields := yielding(3)
		first := ask(t.Context(), l, "first")
		time.Sleep(yieldLimit + 1)
		yields <- true
		require.NoError(t, (<-first).Err, "it yields once")
		synctest.Wait()
		require.Equal(t, [][]string{{"first"}}, p.all())
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
		require.Len(t, first, 0)
		yields <- true
		require.ErrorIs(t, (<-first).Err, context.Canceled)
		require.NoError(t, (<-second).Err)
		require.Equal(t, [][]string{{"second"}}, p.all())
		synctest.Wait()
		busy, queued := l.state()
		require.Zero(t, busy+queued)
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
	require.ErrorIs(t, calls[0].reply.Err, context.Canceled)
	require.Equal(t, Reply{Value: "b"}, calls[1].reply)
	require.ErrorIs(t, calls[2].reply.Err, context.Canceled)
	require.False(t, <-calls[1].ready)
	require.False(t, <-calls[2].ready)
}

// A call that waits while nothing is answered gets another slot, up to the limit, with all that are queued; and there
// are as few slots as before when the server answers again.
func TestSlotsThatAreNotAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = slots + 2
		p := &pipelines{release: make(chan struct{})}
		l := newPipeliner(limit, p.send)
		begin := time.Now()
		var all []<-chan Reply
		for i := range limit + 3 {
			all = append(all, ask(t.Context(), l, strconv.Itoa(i)))
			for _, queued := l.state(); queued > 0 && len(p.all()) < limit; _, queued = l.state() {
				time.Sleep(time.Millisecond)
				synctest.Wait()
			}
		}
		require.Equal(t, stallTimeout, time.Since(begin), "what was sent before counts no longer")
		require.Len(t, p.all(), limit)
		time.Sleep(time.Hour)
		require.Len(t, p.all(), limit, "no more than that")
		close(p.release)
		for _, done := range all {
			require.NoError(t, (<-done).Err)
		}
		synctest.Wait()
		busy, queued := l.state()
		require.Zero(t, busy+queued)
	})
}

// A connection is silent: it holds up those that share pipelines once, and then they have one at a time by others.
func TestSilentPipelineHoldsUpTheOthersOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answered := make(chan struct{})
		l := newPipeliner(slots, func(_ context.Context, calls []*queuedCall) {
			if calls[0].call.key() == "silent" {
				<-answered
			}
			for _, c := range calls {
				c.reply = Reply{}
			}
			time.Sleep(time.Millisecond)
		})
		l.lastBatch = 2
		silent := ask(t.Context(), l, "silent")
		begin := time.Now()
		for range 20 {
			a, b := ask(t.Context(), l, "a"), ask(t.Context(), l, "b")
			require.NoError(t, (<-a).Err)
			require.NoError(t, (<-b).Err)
			l.lastBatch = 2
		}
		require.True(t, time.Since(begin) < stallTimeout+50*time.Millisecond)
		busy, _ := l.state()
		require.Equal(t, 1, busy)
		close(answered)
		require.NoError(t, (<-silent).Err)
		synctest.Wait()
		require.Zero(t, l.silent+l.inUse)
	})
}

func (l *pipeliner) state() (busy, queued int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inUse, len(l.queue)
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
