package transport

import (
	"context"
	"os"
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
		keys = append(keys, c.key)
		c.reply = Reply{Value: c.key}
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

// testPipeliner is one of so many slots, whose goroutines yield as they are told.
func testPipeliner(limit int, send func(context.Context, []*queuedCall)) *pipeliner {
	return newPipeliner(limit, func(f func()) { go f() }, send)
}

// ask sends a call for a key, and returns its reply.
func ask(ctx context.Context, l *pipeliner, key string) <-chan Reply {
	w, done := Transport{pipeliner: l}, make(chan Reply, 1)
	go func() { done <- w.once(ctx, callOf(key), never) }()
	synctest.Wait()
	return done
}

func TestBatchOfQueuedCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pipelines{release: make(chan struct{})}
		l := testPipeliner(1, p.send)
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

// yielding is a pipeliner of one slot, after a pipeline of so many calls; a goroutine that yields waits until
// it is told.
func yielding(together int) (l *pipeliner, p *pipelines, yields chan bool) {
	p = &pipelines{release: make(chan struct{})}
	close(p.release)
	l, yields = testPipeliner(1, p.send), make(chan bool)
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
		require.Len(t, p.all(), 0, "others may come yet")
		yields <- true
		for _, done := range []<-chan Reply{first, second} {
			require.NoError(t, (<-done).Err, "it waits no longer")
		}
		require.Equal(t, [][]string{{"first", "second"}}, p.all())
		synctest.Wait()
		l.lastBatch = 1
		require.NoError(t, (<-ask(t.Context(), l, "alone")).Err, "nor at all, after one that went alone")
		busy, queued := l.state()
		require.Zero(t, busy+queued)
	})
}

// The context of a call ends while its batch is collected: it isn't sent, and the others are.
func TestBatchLeavesOutCallersThatAreGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p, yields := yielding(2)
		ctx, cancel := context.WithCancel(t.Context())
		first := ask(ctx, l, "first")
		second := ask(t.Context(), l, "second")
		cancel()
		require.Equal(t, Reply{Err: context.Canceled}, <-first)
		yields <- true
		require.NoError(t, (<-second).Err)
		require.Equal(t, [][]string{{"second"}}, p.all())
		synctest.Wait()
		busy, queued := l.state()
		require.Zero(t, busy+queued)
	})
}

// A caller that leaves while its call is under way is told that it was sent, and that its outcome isn't known.
func TestCallerThatLeavesACallUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pipelines{release: make(chan struct{})}
		l := testPipeliner(1, p.send)
		ctx, cancel := context.WithCancel(t.Context())
		left := ask(ctx, l, "left")
		cancel()
		r := <-left
		require.Equal(t, Reply{Err: context.Canceled, Copies: true, Sent: true, UnderWay: r.UnderWay}, r)
		close(p.release)
		<-r.UnderWay
	})
}

// A call that is tried in a pipeline is awaited no longer than it says, and then isn't sent any more if it wasn't. Nothing is
// tried with a server that isn't known to answer soon.
func TestTryInAPipeline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const patience = 25 * time.Millisecond
		p := &pipelines{release: make(chan struct{})}
		l := testPipeliner(1, p.send)
		w := Transport{pipeliner: l, deadlines: true}
		try := func(key string) Reply {
			begin, call := time.Now(), callOf(key)
			call.Inline = patience
			r := w.Try(t.Context(), call)
			require.Equal(t, patience, time.Since(begin))
			return r
		}
		require.Equal(t, Reply{}, w.Try(t.Context(), Call{Keys: []string{"before"}, Inline: patience}), "nothing was answered yet")
		l.took, l.lastBatch = 0, 2
		silent := try("silent")
		require.Equal(t, Reply{Err: os.ErrDeadlineExceeded, Copies: true, Sent: true, UnderWay: silent.UnderWay}, silent)
		require.Equal(t, Reply{Err: os.ErrDeadlineExceeded}, try("behind it"))
		close(p.release)
		<-silent.UnderWay
		synctest.Wait()
		require.Equal(t, [][]string{{"silent"}}, p.all())
		l.took, l.lastBatch = 0, 2
		require.Equal(t, Reply{Value: "after"}, w.Try(t.Context(), Call{Keys: []string{"after"}, Inline: patience}))
	})
}

// Nothing is tried where so many calls are queued that its answer would come too late, though the server answers each
// pipeline soon: its caller would leave the queue, and be the last in it once more.
func TestTryBehindMoreThanIsAnsweredInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const patience = 2 * stallTimeout
		p := &pipelines{release: make(chan struct{})}
		l := testPipeliner(1, p.send)
		w := Transport{pipeliner: l, deadlines: true}
		l.took, l.lastBatch = 0, 2
		before := []<-chan Reply{ask(t.Context(), l, "under way")}
		for range 2*slots*maxBatchCalls - 1 {
			before = append(before, ask(t.Context(), l, "before"))
		}
		require.ErrorIs(t, w.Try(t.Context(), Call{Keys: []string{"in time"}, Inline: patience}).Err, os.ErrDeadlineExceeded)
		before = append(before, ask(t.Context(), l, "one more"))
		begin := time.Now()
		require.Equal(t, Reply{}, w.Try(t.Context(), Call{Keys: []string{"too late"}, Inline: patience}))
		require.Zero(t, time.Since(begin))
		close(p.release)
		for _, done := range before {
			require.NoError(t, (<-done).Err)
		}
	})
}

// A call that waits while nothing is answered gets another slot, up to the limit, with all that are queued; and there
// are as few slots as before when the server answers again.
func TestSlotsThatAreNotAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = slots + 2
		p := &pipelines{release: make(chan struct{})}
		l := testPipeliner(limit, p.send)
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
		l := testPipeliner(slots, func(_ context.Context, calls []*queuedCall) {
			if calls[0].key == "silent" {
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
			l.mu.Lock()
			l.lastBatch = 2
			l.mu.Unlock()
		}
		require.True(t, time.Since(begin) < stallTimeout+50*time.Millisecond)
		busy, _ := l.state()
		require.Equal(t, 1, busy)
		close(answered)
		require.NoError(t, (<-silent).Err)
		synctest.Wait()
		require.Len(t, l.inUse, 0)
	})
}

func (l *pipeliner) state() (busy, queued int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.inUse), len(l.queue)
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
