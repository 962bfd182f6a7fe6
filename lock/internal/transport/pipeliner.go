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
	// slots is how many calls are under way at a time while each goes alone.
	slots = 4
	// stallTimeout is how long a call waits, at most, while no pipeline is answered; and after what time a server
	// that answers is too slow for calls that are sent by the goroutines of their callers.
	stallTimeout = 5 * time.Millisecond
	// maxBatchCalls bounds a pipeline.
	maxBatchCalls = 64
	// maxYields is how often a goroutine that collects a batch yields to callers that may
	// join it; it stops once that took yieldLimit, as where there is other work.
	maxYields  = 4
	yieldLimit = 50 * time.Microsecond

	never time.Duration = math.MaxInt64
)

var errNoReply = errors.New("no reply")

// A pipeliner sends calls to one server. It has a few slots, each for one request or pipeline at a time. A call that finds
// a free slot is sent at once, by its own goroutine. The others are queued, and the first of them sends all of them when
// a slot is free; from then on there is one slot, until a call goes alone again. So few callers don't wait for each other (row
// redlock-3 of docs/benchmarks.md), and many share round trips: row uncontended-16 falls to less than half without this.
//
// The callers of one batch are likely to send their next calls when it is answered. So the
// next goroutine that sends one yields to them, until as many calls are queued: that row falls by a fifth without this.
//
// While no pipeline is answered for a while, the queue gets another slot: where the server is far away, or
// connections are silent. Those that were under way then no longer count, so that one silent connection holds up the
// others once. Half of the connections of the Redis client are left to others.
type pipeliner struct {
	max  int // of slots, each for one pipeline
	send func(ctx context.Context, calls []*queuedCall)

	mu        sync.Mutex
	queue     []*queuedCall
	inUse     int           // slots
	silent    int           // of them, that were under way when none was answered for a while,
	stalled   time.Time     // the last time
	completed int           // pipelines that were answered, or won't be
	checking  bool          // checkSoon has a timer running
	took      time.Duration // until the last pipeline was answered; never, at first and where it wasn't
	tookThen  time.Duration // and the one before
	lastBatch int           // how many calls the last answered batch had
	yield     func()        // to other goroutines; replaced by tests
}

// queuedCall is a call that is to be sent.
type queuedCall struct {
	ctx   context.Context //nolint:containedctx // it is that of the call
	call  Call
	sent  *atomic.Bool // set before it is decided whether to send the call; optional
	ready chan bool    // true: to send the queue; false: the reply is there
	began time.Time    // when it took a slot, if it did
	full  bool         // the server doesn't know the script
	reply Reply
}

func newPipeliner(limit int, send func(ctx context.Context, calls []*queuedCall)) *pipeliner {
	return &pipeliner{max: limit, send: send, took: never, tookThen: never, yield: runtime.Gosched}
}

// run sends a call in its turn, and returns the reply, or an error if the caller gave it up.
func (l *pipeliner) run(p *queuedCall) Reply {
	l.mu.Lock()
	sends := l.hasSlot()
	if sends {
		l.take(p)
	} else {
		l.queue = append(l.queue, p)
		l.checkSoon()
	}
	l.mu.Unlock()
	if !sends {
		var err error
		if sends, err = l.await(p); err != nil {
			return Reply{Err: err}
		}
	}
	if sends {
		l.sendBatch(l.collect(p))
	}
	return p.reply
}

// hasSlot reports whether a slot is free: one of several, but where callers share pipelines, the only one.
func (l *pipeliner) hasSlot() bool {
	answering := l.inUse - l.silent
	return l.inUse < l.max && (answering <= 0 || l.lastBatch <= 1 && answering < slots)
}

// take gives a call a slot.
func (l *pipeliner) take(p *queuedCall) {
	l.inUse++
	p.began = time.Now()
}

// await waits until a queued call has its reply, or is the one to send the queue.
func (l *pipeliner) await(p *queuedCall) (sends bool, err error) {
	select {
	case sends = <-p.ready:
		return sends, nil
	case <-p.ctx.Done():
		err = p.ctx.Err()
	case <-p.call.Abort:
		err = ErrClosed
	}
	if l.dequeue(p) {
		return false, err
	}
	return <-p.ready, nil
}

// takeAlone takes a slot for a call that is sent alone, if nothing else is under way, nor was when the last call was
// sent, and the server is known to answer soon: the last time, or the time before.
func (l *pipeliner) takeAlone() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if min(l.took, l.tookThen) > stallTimeout || l.lastBatch > 1 || l.inUse > 0 {
		return false
	}
	l.inUse++
	return true
}

// dequeue takes a call out of the queue, if it is there.
func (l *pipeliner) dequeue(p *queuedCall) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.queue, p)
	if i >= 0 {
		l.queue = slices.Delete(l.queue, i, i+1)
	}
	return i >= 0
}

// collect takes the next calls out of the queue, to be sent with the first, and yields before to those that may come.
func (l *pipeliner) collect(first *queuedCall) []*queuedCall {
	begin := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for yields := maxYields; yields > 0 && len(l.queue)+1 < l.lastBatch && time.Since(begin) <= yieldLimit; yields-- {
		l.mu.Unlock()
		l.yield()
		l.mu.Lock()
	}
	n := min(len(l.queue), maxBatchCalls-1)
	calls := append([]*queuedCall{first}, l.queue[:n]...)
	l.queue = slices.Delete(l.queue, 0, n)
	return calls
}

// sendBatch sends calls by the slot that the first of them has taken, which is that of
// this goroutine, and frees the slot.
func (l *pipeliner) sendBatch(calls []*queuedCall) {
	live := calls
	defer func() { // also where a hook panics
		answered := len(live) > 0 && !slices.ContainsFunc(live, unanswered)
		l.freeSlot(calls[0].began, len(live), answered)
		for _, p := range calls[1:] {
			p.ready <- false
		}
	}()
	for _, p := range calls {
		p.noteSent()
	}
	live = slices.DeleteFunc(slices.Clone(calls), callerGone)
	if len(live) > 0 {
		ctx, cancel := batchContext(live)
		defer cancel()
		l.send(ctx, live)
	}
}

func (p *queuedCall) noteSent() {
	if p.sent != nil {
		p.sent.Store(true)
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
		p.reply = Reply{Err: err}
	}
	return err != nil
}

// freeSlot gives the slot by which so many calls were sent to the next in the queue.
func (l *pipeliner) freeSlot(begin time.Time, calls int, answered bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.took, l.tookThen = time.Since(begin), l.took; !answered {
		l.took, l.tookThen = never, never
	}
	l.lastBatch = calls
	l.inUse--
	if begin.Before(l.stalled) {
		l.silent = max(l.silent-1, 0)
	}
	l.completed++
	if len(l.queue) > 0 && l.hasSlot() {
		l.sendNext()
	}
	l.checkSoon()
}

func unanswered(p *queuedCall) bool { return p.reply.Err != nil && !IsRefusal(p.reply.Err) }

// sendNext gives the first in the queue a slot to send it by.
func (l *pipeliner) sendNext() {
	l.take(l.queue[0])
	l.queue[0].ready <- true
	l.queue = slices.Delete(l.queue, 0, 1)
}

// checkSoon gives the first in the queue another slot, if no pipeline is answered for a while.
func (l *pipeliner) checkSoon() {
	if l.checking || len(l.queue) == 0 || l.inUse >= l.max {
		return
	}
	l.checking = true
	back := l.completed
	time.AfterFunc(stallTimeout, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.checking = false
		if back == l.completed && len(l.queue) > 0 && l.inUse < l.max {
			l.silent, l.stalled = l.inUse, time.Now()
			l.sendNext()
		}
		l.checkSoon()
	})
}
