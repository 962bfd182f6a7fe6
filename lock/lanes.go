package lock

import (
	"context"
	"errors"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// leastLanes are there to any server: while it works on what came by one, we send
	// by the others. With two, more calls go together and cost a tenth less; but on
	// loopback and two cores, which sleep in between, 4 callers do a fifth less.
	leastLanes = 4
	// laneStep is how much longer a server takes to answer for one more lane.
	laneStep = 100 * time.Microsecond
	// callCost is about what a server works on one call.
	callCost = 20 * time.Microsecond
	// fresh is how long the best time counts in which a server answered, at most
	// twice.
	fresh = time.Second
	// maxCalls bounds a pipeline.
	maxCalls = 64
	// mostYields is how often who has a lane lets others run, who may come along;
	// and no more once that took yieldLimit, as where there is other work.
	mostYields = 4
	yieldLimit = 50 * time.Microsecond
	// crowded is how long that takes where other work keeps the processors: a
	// caller that yields there waits for a time slice of each. After that none
	// does for the next yieldRest lanes that are entered.
	crowded   = time.Millisecond
	yieldRest = 64
	// patience is how long a call waits, at most, while nothing comes back.
	patience = 5 * time.Millisecond
	// defaultPool is how many connections a Redis client has that doesn't say so.
	defaultPool = 10
)

var errNoReply = errors.New("no reply")

// A sender sends calls in one pipeline, and gives each its reply.
type sender func(ctx context.Context, calls []*posted)

// A road is the way to all servers of a deployment: the lanes to each of them.
type road struct {
	cluster *redis.ClusterClient // nil if there is one server
	max     int                  // lanes to each
	send    sender

	one *lanes
	mu  sync.Mutex
	to  map[string]*lanes // by address
}

func newRoad(rdb redis.UniversalClient, send sender) *road {
	pool := defaultPool
	cluster, sharded := rdb.(*redis.ClusterClient)
	if one, ok := rdb.(*redis.Client); ok {
		pool = one.Options().PoolSize
	} else if sharded {
		pool = cluster.Options().PoolSize
	}
	r := &road{cluster: cluster, max: max(pool/2, 1), send: send, to: map[string]*lanes{}}
	r.one = newLanes(r.max, send)
	return r
}

// run sends a call, and returns the reply; or the context's error if that ends
// before it is sent.
func (r *road) run(ctx context.Context, s call) reply[any] {
	return r.runTaken(ctx, s, nil)
}

// runTaken is run, and sets taken before it sends the call, if it ever does.
func (r *road) runTaken(ctx context.Context, s call, taken *atomic.Bool) reply[any] {
	return r.lanes(ctx, s.key()).run(ctx, s, taken)
}

// lanes are those to the server of a key. A server that is not known fails the
// call, which may take long and holds up none for the others.
func (r *road) lanes(ctx context.Context, key string) *lanes {
	if r.cluster == nil {
		return r.one
	}
	node, err := r.cluster.MasterForKey(ctx, key)
	if err != nil {
		return r.one
	}
	addr := node.Options().Addr
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.to[addr]
	if l == nil {
		l = newLanes(r.max, r.send)
		r.to[addr] = l
	}
	return l
}

// lanes send calls to one server. A call that finds a free lane is sent at once,
// by its own goroutine. The others queue up, and the first of them is told when a
// lane is free: it sends all that are there in one pipeline. So few callers don't
// wait for each other, and many share round trips.
//
// Calls that came back together have callers who are about to ask again, most
// likely. So who enters a lane after that lets them run first, until as many are
// there, and no other lane is entered until then.
//
// There are more lanes the longer a server takes to answer at best, since one
// that is far away has nothing to do in between. Lanes from which nothing comes
// back for a while don't count: a connection that is silent doesn't hold up those
// who wait. But half of the connections of the Redis client are left to others.
type lanes struct {
	max   int
	send  sender
	spare sync.Pool // of *posted, with nothing in their turns

	mu    sync.Mutex
	queue []*posted
	due   bool // a look at the queue, for calls that wait too long
	back  int  // how many pipelines have come back
	era   int  // grows when lanes are given up
	busy  int  // lanes that were entered,
	stuck int  // and those of former eras

	together int    // how many calls came back when some last did
	gathers  bool   // who entered a lane last lets others run first
	rests    int    // so many who enter one don't
	yield    func() // lets them

	since        time.Time     // when the latest best time began to count
	best, before time.Duration // how long the server took at best, since then and before
}

// posted is a call that is to be sent.
type posted struct {
	ctx   context.Context //nolint:containedctx // it is that of the call
	call  call
	taken *atomic.Bool // set before the lane looks whether a caller waits, and then sends; nil: no caller asks
	turn  chan bool    // true: to send the queue; false: the reply is there
	era   int          // of its lane, if it leads,
	waits bool         // for others to come along
	full  bool         // the server doesn't know the script
	cmd   *redis.Cmd   // under way
	reply reply[any]
	words []any      // of the call, as they were before the first time that it was sent
	alone [1]*posted // room for a pipeline of one
}

func newLanes(limit int, send sender) *lanes {
	return &lanes{
		max: limit, send: send, best: math.MaxInt64, before: math.MaxInt64, yield: runtime.Gosched,
		spare: sync.Pool{New: func() any { return &posted{turn: make(chan bool, 1)} }},
	}
}

// run sends a call in its turn. Its words are not used again: hooks may change them.
func (l *lanes) run(ctx context.Context, s call, taken *atomic.Bool) reply[any] {
	p, _ := l.spare.Get().(*posted)
	p.ctx, p.call, p.taken, p.reply.err = ctx, s, taken, errNoReply
	r := l.pass(p) //nolint:contextcheck // a call has its own
	clear(p.words)
	*p = posted{turn: p.turn, words: p.words[:0]}
	l.spare.Put(p)
	return r
}

// pass waits for the reply to a call, or returns an error if the caller gave it up.
func (l *lanes) pass(p *posted) reply[any] {
	l.mu.Lock()
	if l.enter(p) {
		l.mu.Unlock()
		calls := append(p.alone[:0], p)
		if p.waits {
			calls = l.gather(p)
		}
		l.lead(calls)
		return p.reply
	}
	l.queue = append(l.queue, p)
	l.lookSoon()
	l.mu.Unlock()
	var first bool
	select {
	case first = <-p.turn:
	case <-p.ctx.Done():
		if l.quit(p) {
			return reply[any]{err: p.ctx.Err()}
		}
		first = <-p.turn
	case <-p.call.abort:
		if l.quit(p) {
			return reply[any]{err: ErrClosed}
		}
		first = <-p.turn
	}
	if first {
		l.lead(l.gather(p))
	}
	return p.reply
}

// enter takes a lane for a call that leads, if one is free.
func (l *lanes) enter(p *posted) bool {
	open := l.max
	if steps := min(l.best, l.before) / laneStep; steps < time.Duration(l.max) {
		open = leastLanes + int(steps)
	}
	if l.gathers || l.busy >= min(open, l.max-l.stuck) {
		return false
	}
	l.busy++
	p.era, p.waits = l.era, l.together > 1 && l.rests == 0
	l.rests = max(l.rests-1, 0)
	l.gathers = p.waits
	return true
}

// quit takes a call out of the queue, if it is there.
func (l *lanes) quit(p *posted) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.queue, p)
	if i < 0 {
		return false
	}
	l.queue = slices.Delete(l.queue, i, i+1)
	return true
}

// gather takes the next calls out of the queue, to go with the first; once those
// are there that are about to come, if that waits for them.
func (l *lanes) gather(first *posted) []*posted {
	begin := time.Now()
	if first.waits {
		for range mostYields {
			if l.yield(); l.complete() || time.Since(begin) > yieldLimit {
				break
			}
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(len(l.queue), maxCalls-1)
	calls := append([]*posted{first}, l.queue[:n]...)
	l.queue = slices.Delete(l.queue, 0, n)
	if first.waits && time.Since(begin) > crowded {
		l.rests = yieldRest
	}
	if first.waits && first.era == l.era { // else another call may gather
		l.gathers = false
		l.next()
	}
	return calls
}

// complete reports whether as many calls are there as came back together.
func (l *lanes) complete() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.queue)+1 >= l.together
}

// lead sends calls on the lane that the first of them has entered, which is that
// of this goroutine, and leaves the lane.
func (l *lanes) lead(calls []*posted) {
	begin := time.Now()
	for _, p := range calls {
		if p.taken != nil {
			p.taken.Store(true)
		}
	}
	live := calls
	defer func() {
		l.leave(begin, calls[0].era, live)
		for _, p := range calls[1:] {
			p.turn <- false
		}
	}()
	if slices.ContainsFunc(calls, ended) {
		live = slices.DeleteFunc(slices.Clone(calls), ended)
	}
	if len(live) > 0 {
		ctx, cancel := together(live)
		defer cancel()
		l.send(ctx, live)
	}
}

// together is a context for calls: that of one alone, or one with the values of the
// first that ends when all of theirs would have come to their deadlines, if all have one.
func together(calls []*posted) (context.Context, context.CancelFunc) {
	if len(calls) == 1 {
		return calls[0].ctx, func() {}
	}
	var last time.Time
	for _, p := range calls {
		deadline, ok := p.ctx.Deadline()
		if !ok {
			return context.WithoutCancel(calls[0].ctx), func() {}
		}
		if deadline.After(last) {
			last = deadline
		}
	}
	return context.WithDeadline(context.WithoutCancel(calls[0].ctx), last)
}

// ended reports whether no caller waits for a call any more, and tells it so.
func ended(p *posted) bool {
	err := p.ctx.Err()
	if err != nil {
		p.reply.err = err
	}
	return err != nil
}

// leave leaves a lane, on which calls were sent, to the next in the queue.
func (l *lanes) leave(begin time.Time, era int, calls []*posted) {
	now := time.Now()
	took := max(now.Sub(begin)-time.Duration(len(calls)-1)*callCost, 0)
	answered := len(calls) > 0 && !slices.ContainsFunc(calls, unanswered)
	l.mu.Lock()
	defer l.mu.Unlock()
	if answered {
		if now.Sub(l.since) > fresh {
			l.since, l.before, l.best = now, l.best, took
		}
		l.best = min(l.best, took)
	}
	l.back++
	l.together = len(calls)
	if era == l.era {
		l.busy--
	} else {
		l.stuck--
	}
	l.next()
}

func unanswered(p *posted) bool { return p.reply.err != nil && !isRefusal(p.reply.err) }

// next gives a lane to the first in the queue, if there are both.
func (l *lanes) next() {
	if len(l.queue) > 0 && l.enter(l.queue[0]) {
		l.queue[0].turn <- true
		l.queue = slices.Delete(l.queue, 0, 1)
	}
	l.lookSoon()
}

// lookSoon looks at the queue after a while. If nothing came back by then, it
// gives up the lanes that are under way and opens others.
func (l *lanes) lookSoon() {
	if l.due || len(l.queue) == 0 || l.stuck == l.max {
		return
	}
	l.due = true
	back := l.back
	time.AfterFunc(patience, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.due = false
		if back == l.back && len(l.queue) > 0 {
			l.era++
			l.stuck += l.busy
			l.busy, l.gathers = 0, false
		}
		l.next()
	})
}
