package transport

import (
	"context"
	"errors"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// minSlots are there to any server: while it works on what came by one, we send
	// by the others. With two, more calls go together and cost a tenth less; but on
	// loopback and two cores, which sleep in between, 4 callers do a fifth less.
	minSlots = 4
	// slotLatency is how much longer a server takes to answer for one more slot.
	slotLatency = 100 * time.Microsecond
	// callWork is about how long a server works on one call.
	callWork = 20 * time.Microsecond
	// latencyWindow is how long the best time counts in which a server answered, at most
	// twice.
	latencyWindow = time.Second
	// maxBatchCalls bounds a pipeline.
	maxBatchCalls = 64
	// maxYields is how often a goroutine that collects a batch yields to callers that may
	// join it; it stops once that took yieldLimit, as where there is other work.
	maxYields  = 4
	yieldLimit = 50 * time.Microsecond
	// slowYield is how long that takes where other work keeps the processors: a
	// caller that yields there waits for a time slice of each. After that, the next
	// skipsAfterSlowYield batches are sent without yielding.
	slowYield           = time.Millisecond
	skipsAfterSlowYield = 64
	// stallTimeout is how long a call waits, at most, while no pipeline is answered.
	stallTimeout = 5 * time.Millisecond
)

var errNoReply = errors.New("no reply")

// A sender sends calls in one pipeline, and gives each its reply.
type sender func(ctx context.Context, calls []*queuedCall)

// A pipeliner sends calls to one server. It has a number of slots, each for one request
// or pipeline at a time. A call that finds a free slot is sent at once, by its own
// goroutine. The others are queued. When a slot becomes free, the first of the queue sends
// all queued calls in one pipeline. So few callers don't wait for each other, and many
// share round trips.
//
// The callers of one batch are likely to send their next calls when it is answered. So the
// next goroutine that takes a slot yields to them, until as many calls are queued, and no
// other slot is taken until then.
//
// The number of slots grows with the shortest time that the server took to answer lately,
// since a server that is far away has nothing to do in between. Slots that are not answered
// for a while are abandoned and replaced: a silent connection doesn't delay queued calls.
// Half of the connections of the Redis client are left to others.
type pipeliner struct {
	max  int
	send sender

	mu         sync.Mutex
	queue      []*queuedCall
	checking   bool // checkSoon has a timer running
	completed  int  // pipelines that were answered
	generation int  // grows when slots are abandoned
	inUse      int  // slots that were taken,
	abandoned  int  // and those of former generations
	silent     bool // what was sent last was not answered

	lastBatch int    // how many calls the last answered batch had
	batching  bool   // the goroutine that took a slot last collects a batch
	skips     int    // so many slots are taken without collecting
	yield     func() // to other goroutines; replaced by tests

	bestSince        time.Time     // when the latest best time began to count
	best, bestBefore time.Duration // how long the server took at best, since then and before
}

// queuedCall is a call that is to be sent.
type queuedCall struct {
	ctx        context.Context //nolint:containedctx // it is that of the call
	call       Call
	sent       *atomic.Bool // set before it is decided whether to send the call; optional
	ready      chan bool    // true: to send the queue; false: the reply is there
	generation int          // of its slot, if it has one
	collects   bool         // a batch, before it is sent
	full       bool         // the server doesn't know the script
	reply      Reply
}

func newPipeliner(limit int, send sender) *pipeliner {
	return &pipeliner{max: limit, send: send, best: math.MaxInt64, bestBefore: math.MaxInt64, yield: runtime.Gosched}
}

// run sends a call in its turn, and returns the reply, or an error if the caller gave it up.
func (l *pipeliner) run(p *queuedCall) Reply {
	l.mu.Lock()
	if l.takeSlot(p) {
		l.mu.Unlock()
		calls := []*queuedCall{p}
		if p.collects {
			calls = l.collect(p)
		}
		l.sendBatch(calls)
		return p.reply
	}
	l.queue = append(l.queue, p)
	l.checkSoon()
	l.mu.Unlock()
	var first bool
	select {
	case first = <-p.ready:
	case <-p.ctx.Done():
		if l.dequeue(p) {
			return Reply{Err: p.ctx.Err()}
		}
		first = <-p.ready
	case <-p.call.Abort:
		if l.dequeue(p) {
			return Reply{Err: ErrClosed}
		}
		first = <-p.ready
	}
	if first {
		l.sendBatch(l.collect(p))
	}
	return p.reply
}

// takeSlot takes a slot for a call, if one is free.
func (l *pipeliner) takeSlot(p *queuedCall) bool {
	open := l.max
	if steps := min(l.best, l.bestBefore) / slotLatency; steps < time.Duration(l.max) {
		open = minSlots + int(steps)
	}
	if l.batching || l.inUse >= min(open, l.max-l.abandoned) {
		return false
	}
	l.inUse++
	p.generation, p.collects = l.generation, l.lastBatch > 1 && l.skips == 0
	l.skips = max(l.skips-1, 0)
	l.batching = p.collects
	return true
}

// dequeue takes a call out of the queue, if it is there.
func (l *pipeliner) dequeue(p *queuedCall) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.queue, p)
	if i < 0 {
		return false
	}
	l.queue = slices.Delete(l.queue, i, i+1)
	return true
}

// collect takes the next calls out of the queue, to be sent with the first. If the first
// one collects a batch, it yields before, until the batch is complete.
func (l *pipeliner) collect(first *queuedCall) []*queuedCall {
	begin := time.Now()
	if first.collects {
		for range maxYields {
			if l.yield(); l.isComplete() || time.Since(begin) > yieldLimit {
				break
			}
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(len(l.queue), maxBatchCalls-1)
	calls := append([]*queuedCall{first}, l.queue[:n]...)
	l.queue = slices.Delete(l.queue, 0, n)
	if first.collects && time.Since(begin) > slowYield {
		l.skips = skipsAfterSlowYield
	}
	if first.collects && first.generation == l.generation { // else another call may collect
		l.batching = false
		l.startNext()
	}
	return calls
}

// isComplete reports whether as many calls are queued as were answered together.
func (l *pipeliner) isComplete() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.queue)+1 >= l.lastBatch
}

// sendBatch sends calls by the slot that the first of them has taken, which is that of
// this goroutine, and frees the slot.
func (l *pipeliner) sendBatch(calls []*queuedCall) {
	begin := time.Now()
	for _, p := range calls {
		if p.sent != nil {
			p.sent.Store(true)
		}
	}
	live := calls
	defer func() {
		answered := len(live) > 0 && !slices.ContainsFunc(live, unanswered)
		l.freeSlot(begin, calls[0].generation, len(live), answered)
		for _, p := range calls[1:] {
			p.ready <- false
		}
	}()
	if slices.ContainsFunc(calls, callerGone) {
		live = slices.DeleteFunc(slices.Clone(calls), callerGone)
	}
	if len(live) > 0 {
		ctx, cancel := batchContext(live)
		defer cancel()
		l.send(ctx, live)
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
	for _, p := range calls {
		deadline, ok := p.ctx.Deadline()
		if !ok {
			return context.Background(), func() {}
		}
		if deadline.After(last) {
			last = deadline
		}
	}
	return context.WithDeadline(context.Background(), last)
}

// callerGone reports whether no caller waits for a call any more, and tells it so.
func callerGone(p *queuedCall) bool {
	err := p.ctx.Err()
	if err != nil {
		p.reply.Err = err
	}
	return err != nil
}

// freeSlot gives the slot by which so many calls were sent to the next in the queue.
func (l *pipeliner) freeSlot(begin time.Time, generation, calls int, answered bool) {
	now := time.Now()
	took := max(now.Sub(begin)-time.Duration(calls-1)*callWork, 0)
	l.mu.Lock()
	defer l.mu.Unlock()
	if answered {
		if now.Sub(l.bestSince) > latencyWindow {
			l.bestSince, l.bestBefore, l.best = now, l.best, took
		}
		l.best = min(l.best, took)
	}
	l.silent = !answered
	l.completed++
	l.lastBatch = calls
	if generation == l.generation {
		l.inUse--
	} else {
		l.abandoned--
	}
	l.startNext()
}

func unanswered(p *queuedCall) bool { return p.reply.Err != nil && !IsRefusal(p.reply.Err) }

// startNext gives a slot to the first in the queue, if there are both.
func (l *pipeliner) startNext() {
	if len(l.queue) > 0 && l.takeSlot(l.queue[0]) {
		l.queue[0].ready <- true
		l.queue = slices.Delete(l.queue, 0, 1)
	}
	l.checkSoon()
}

// checkSoon looks at the queue after a while. If no pipeline was answered by then, it
// abandons the slots that are in use and opens others.
func (l *pipeliner) checkSoon() {
	if l.checking || len(l.queue) == 0 || l.abandoned == l.max {
		return
	}
	l.checking = true
	back := l.completed
	time.AfterFunc(stallTimeout, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.checking = false
		if back == l.completed && len(l.queue) > 0 {
			l.generation++
			l.abandoned += l.inUse
			l.inUse, l.batching = 0, false
		}
		l.startNext()
	})
}
