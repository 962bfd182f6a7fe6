package transport

import (
	"context"
	"errors"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// slots is how many requests or pipelines are under way at a time: with one, the client and the server wait for each
	// other, and row uncontended-16 of docs/benchmarks.md falls by a fifth.
	slots = 3
	// stallTimeout is after what time a pipeline counts no longer, and a server that answers is too slow for calls that are
	// sent by the goroutines of their callers.
	stallTimeout = 5 * time.Millisecond
	// maxBatchCalls bounds a pipeline.
	maxBatchCalls = 64

	never time.Duration = math.MaxInt64
)

var errNoReply = errors.New("no reply")

// A pipeliner sends calls to one server. It has a few slots, each for one request or pipeline at a time. While each call
// goes alone, it is sent by the goroutine of its caller. Any other is queued, and a goroutine that has a slot sends all that
// are. So many callers share round trips: row uncontended-16 of docs/benchmarks.md takes a third less of processor time so,
// and has more than twice the throughput where other programs use the processors as well.
//
// The callers of one batch are likely to send their next calls when it is answered. So the goroutine yields to them once.
//
// A pipeline that isn't answered for a while no longer counts: where the server is far away, or a connection is silent, which so
// holds up the others once. Half of the connections of the Redis client are left to others.
type pipeliner struct {
	max   int // of slots, each for one pipeline
	send  func(ctx context.Context, calls []*queuedCall)
	spawn func(func()) // runs a goroutine
	yield func()       // to other goroutines; replaced by tests

	mu        sync.Mutex
	queue     []*queuedCall
	inUse     []time.Time   // slots, each by when it was taken
	checking  bool          // a timer of sendSoon is running
	took      time.Duration // until the last pipeline was answered; never, at first and where it wasn't
	tookThen  time.Duration // and the one before
	lastBatch int           // how many calls the last answered pipeline had
}

// queuedCall is a call that is to be sent.
type queuedCall struct {
	ctx      context.Context //nolint:containedctx // it is that of the call
	cmd      *redis.Cmd
	key      string        // of the lock
	acked    bool          // replicas are awaited that have the outcome
	done     chan struct{} // closed when there is a reply
	reply    Reply
	panicked any // what a hook of the Redis client panicked with
}

// answer is the reply of the server, for the caller.
func (c *queuedCall) answer() Reply {
	if c.panicked != nil {
		panic(c.panicked)
	}
	return c.reply
}

// deliver tells the callers that there are replies, and the first of them what a hook panicked with, if one did.
func deliver(calls []*queuedCall, panicked any) {
	for _, c := range calls {
		if c.panicked, panicked = panicked, nil; c.done != nil {
			close(c.done)
		}
	}
}

func newPipeliner(limit int, spawn func(func()), send func(ctx context.Context, calls []*queuedCall)) *pipeliner {
	return &pipeliner{max: limit, spawn: spawn, send: send, took: never, tookThen: never, yield: runtime.Gosched}
}

// take takes a slot if one is free.
func (l *pipeliner) take() (at time.Time, ok bool) {
	now, answering := time.Now(), 0
	for _, since := range l.inUse {
		if now.Sub(since) < stallTimeout {
			answering++
		}
	}
	ok = len(l.inUse) < l.max && answering < slots
	if ok {
		l.inUse = append(l.inUse, now)
	}
	return now, ok
}

// takeNow takes a slot for a call that the goroutine of its caller sends, if each call goes alone and soon is true: the server is
// known to answer soon, the last time or the time before, and so would answer the call within its patience, behind those that are queued.
func (l *pipeliner) takeNow(patience time.Duration) (at time.Time, ok, soon bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	soon = min(l.took, l.tookThen) <= stallTimeout && stallTimeout*time.Duration(1+len(l.queue)/(slots*maxBatchCalls)) <= patience
	if soon && l.lastBatch <= 1 && len(l.queue) == 0 {
		at, ok = l.take()
	}
	return at, ok, soon
}

// enqueue has a call sent by another goroutine.
func (l *pipeliner) enqueue(c *queuedCall) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = append(l.queue, c)
	l.sendSoon()
}

// sendSoon has the queue sent: at once if a slot is free, else by the next that is, or by another one once those in use are
// silent.
func (l *pipeliner) sendSoon() {
	if len(l.queue) == 0 {
		return
	}
	if at, ok := l.take(); ok {
		l.spawn(func() { l.sendBy(at, l.collect()) })
		return
	}
	if l.checking || len(l.inUse) >= l.max {
		return
	}
	l.checking = true
	time.AfterFunc(stallTimeout, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.checking = false
		l.sendSoon()
	})
}

// leave takes a call that no caller waits for out of the queue, if it is there. Else it was sent.
func (l *pipeliner) leave(c *queuedCall) (sent bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	queued := len(l.queue)
	l.queue = slices.DeleteFunc(l.queue, func(other *queuedCall) bool { return other == c })
	return len(l.queue) == queued
}

// collect takes the next calls out of the queue, and yields before to those that may come.
func (l *pipeliner) collect() (calls []*queuedCall) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lastBatch > 1 && len(l.queue) < l.lastBatch {
		l.mu.Unlock()
		l.yield()
		l.mu.Lock()
	}
	n := min(len(l.queue), maxBatchCalls)
	calls = slices.Clone(l.queue[:n])
	l.queue = slices.Delete(l.queue, 0, n)
	return calls
}

// sendBy sends calls in one pipeline by a slot that was taken then, delivers their replies, and frees the slot.
func (l *pipeliner) sendBy(at time.Time, calls []*queuedCall) {
	defer func() { // also where a hook panics
		deliver(calls, recover())
		l.mu.Lock()
		defer l.mu.Unlock()
		i := slices.Index(l.inUse, at)
		l.inUse = slices.Delete(l.inUse, i, i+1)
		if len(calls) > 0 {
			l.lastBatch, l.took, l.tookThen = len(calls), time.Since(at), l.took
		}
		if slices.ContainsFunc(calls, func(c *queuedCall) bool { return c.reply.Err != nil && !IsRefusal(c.reply.Err) }) {
			l.took, l.tookThen = never, never
		}
		l.sendSoon()
	}()
	if len(calls) > 0 { // their callers have not all left
		ctx, cancel := batchContext(calls)
		defer cancel()
		l.send(ctx, calls)
	}
}

// batchContext is a context for calls: that of one alone, or one that ends when all of theirs
// would have come to their deadlines, if all have one. It has the values of none of them, since
// a hook that traces requests would count all calls as those of one caller.
func batchContext(calls []*queuedCall) (context.Context, context.CancelFunc) {
	if len(calls) == 1 {
		return calls[0].ctx, func() {}
	}
	var last time.Time
	for _, c := range calls {
		deadline, ok := c.ctx.Deadline()
		if !ok {
			return context.Background(), func() {}
		}
		if deadline.After(last) {
			last = deadline
		}
	}
	return context.WithDeadline(context.Background(), last)
}
