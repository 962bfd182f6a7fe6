package lock

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// maxBatch is how many renewals go in one pipeline.
const maxBatch = 1000

// A renewer is whose holds a watchdog keeps. G is what it renews a hold by.
type renewer[G any] interface {
	// batches splits the holds that are due at one time into those that are
	// renewed together.
	batches(due []*watch[G]) [][]*watch[G]
	// renew asks for the watchdog's lease from now on, and returns what became
	// of each, at the latest when the context ends.
	renew(ctx context.Context, batch []G) []error
	expires(sent time.Time, lease time.Duration) time.Time
	observe(kind EventKind, l Lease, took time.Duration, err error)
}

// watchdog renews the holds of a client that have no lease of their own: each
// every third of the watchdog's lease, and those that are due together in one
// pipeline. A renewal that fails is repeated, with growing pauses, until the
// hold is lost.
type watchdog[G any] struct {
	renewer renewer[G]
	life    *life
	lease   time.Duration
	period  time.Duration // from one renewal to the next
	limit   time.Duration // for the answer to one renewal
	poke    chan struct{} // the first in the queue changed

	mu      sync.Mutex
	running bool
	watched map[*Hold]*watch[G]
	queue   watchQueue[G]
}

// watch is one hold that is kept alive.
type watch[G any] struct {
	hold  *Hold
	grant G
	due   time.Time
	pause time.Duration // before the next repetition of a failed renewal
	index int           // in the queue; -1 while a renewal is in flight
}

func newWatchdog[G any](r renewer[G], l *life, lease time.Duration) *watchdog[G] {
	period := lease / 3
	return &watchdog[G]{
		renewer: r, life: l, lease: lease, period: period, limit: max(period/2, 5*time.Millisecond),
		poke: make(chan struct{}, 1), watched: map[*Hold]*watch[G]{},
	}
}

// add begins to keep a hold alive. After Close it does nothing.
func (d *watchdog[G]) add(h *Hold, g G) {
	w := &watch[G]{hold: h, grant: g, due: time.Now().Add(d.period)}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.watched[h] = w
	d.push(w)
	if !d.running {
		d.running = d.life.spawn(d.run)
	}
}

// remove ends it. A renewal in flight is not awaited: that is done by taking
// the hold's turn.
func (d *watchdog[G]) remove(h *Hold) {
	d.mu.Lock()
	defer d.mu.Unlock()
	w := d.watched[h]
	if w == nil {
		return
	}
	delete(d.watched, h)
	if w.index >= 0 {
		heap.Remove(&d.queue, w.index)
	}
}

// hurry makes a hold due soon, because its end may have moved.
func (d *watchdog[G]) hurry(h *Hold) {
	left := time.Until(h.Lease().Expires)
	d.mu.Lock()
	defer d.mu.Unlock()
	if w := d.watched[h]; w != nil && w.index >= 0 {
		heap.Remove(&d.queue, w.index)
		w.due = time.Now().Add(min(d.period, left/2))
		d.push(w)
	}
}

// again puts a hold back after a renewal.
func (d *watchdog[G]) again(w *watch[G], after time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.watched[w.hold] == w {
		w.due = time.Now().Add(after)
		d.push(w)
	}
}

func (d *watchdog[G]) push(w *watch[G]) {
	heap.Push(&d.queue, w)
	if w.index == 0 {
		select {
		case d.poke <- struct{}{}:
		default:
		}
	}
}

// run is the one clock of all holds.
func (d *watchdog[G]) run() {
	timer := time.NewTimer(d.period)
	defer timer.Stop()
	for {
		due, next := d.due(time.Now())
		for _, batch := range d.renewer.batches(due) {
			d.life.tasks.Go(func() { d.renew(batch) }) // we are a task, so Close still waits
		}
		timer.Reset(next)
		select {
		case <-timer.C:
		case <-d.poke:
		case <-d.life.closing:
			return
		}
	}
}

// due takes the holds that are due from the queue, and those that are nearly
// so, and says when the next ones will be.
func (d *watchdog[G]) due(now time.Time) (due []*watch[G], next time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.queue) > 0 && !d.queue[0].due.After(now) {
		for soon := now.Add(d.period / 10); len(d.queue) > 0 && d.queue[0].due.Before(soon); {
			w, _ := heap.Pop(&d.queue).(*watch[G])
			due = append(due, w)
		}
	}
	if len(d.queue) == 0 {
		return due, d.period
	}
	return due, d.queue[0].due.Sub(now)
}

// renew sends the renewals of one batch and deals with the answers.
func (d *watchdog[G]) renew(batch []*watch[G]) {
	var grants []G
	live := batch[:0]
	for _, w := range batch {
		d.mu.Lock()
		watched := d.watched[w.hold] == w
		d.mu.Unlock()
		if !watched {
			continue
		}
		l, busy, over := w.hold.renewal()
		if over {
			continue
		}
		if busy {
			d.again(w, d.period/10)
			continue
		}
		live = append(live, w)
		grants = append(grants, w.grant)
		d.renewer.observe(Renewing, l, 0, nil)
	}
	if len(live) == 0 {
		return
	}
	sent := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), d.limit)
	defer cancel()
	errs := d.renewer.renew(ctx, grants)
	took := time.Since(sent)
	expires := d.renewer.expires(sent, d.lease)
	for i, w := range live {
		err := errs[i]
		switch {
		case err == nil:
			w.hold.prolong(expires, false)
			w.pause = 0
		case errors.Is(err, ErrNotHeld):
			w.hold.end(true)
		}
		d.renewer.observe(Renewed, w.hold.Lease(), took, err)
		w.hold.give()
		next := d.period - time.Since(sent)
		if err != nil {
			w.pause = min(max(2*w.pause, d.period/20), d.period/2)
			next = w.pause
		}
		d.again(w, next)
	}
}

// batches splits renewals by server, so that a server that is stuck doesn't
// delay those of the others.
func (c *Client) batches(due []*watch[*grant]) [][]*watch[*grant] {
	byServer := map[*redis.Client][]*watch[*grant]{}
	cluster, sharded := c.rdb.(*redis.ClusterClient)
	ctx, cancel := context.WithTimeout(context.Background(), c.watchdog.limit)
	defer cancel()
	for _, w := range due {
		var server *redis.Client
		if sharded {
			server, _ = cluster.MasterForKey(ctx, w.grant.keys.lock) // those without one share a batch, and fail
		}
		byServer[server] = append(byServer[server], w)
	}
	var batches [][]*watch[*grant]
	for _, ws := range byServer {
		batches = append(batches, slices.Collect(slices.Chunk(ws, maxBatch))...)
	}
	return batches
}

// renew sends the renewals of grants on one server.
func (c *Client) renew(ctx context.Context, batch []*grant) []error {
	calls := make([]call, len(batch))
	for i, g := range batch {
		calls[i] = g.kind.extend(g, c.config.Watchdog)
	}
	type sent = struct {
		replies []reply[any]
		unacked error
	}
	answers := make(chan sent, 1)
	c.tasks.Go(func() { // the watchdog is a task, so Close still waits
		replies, unacked := c.commit(ctx, calls...)
		answers <- sent{replies, unacked}
	})
	errs := make([]error, len(calls))
	select {
	case s := <-answers:
		for i, r := range s.replies {
			errs[i] = extended(r, s.unacked)
		}
	case <-ctx.Done():
		for i := range errs {
			errs[i] = fmt.Errorf("no answer within %v: %w", c.watchdog.limit, ctx.Err())
		}
	}
	return errs
}

// watchQueue is a heap of the holds by when they are due.
type watchQueue[G any] []*watch[G]

func (q watchQueue[G]) Len() int           { return len(q) }
func (q watchQueue[G]) Less(i, j int) bool { return q[i].due.Before(q[j].due) }
func (q watchQueue[G]) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

// Push is for container/heap.
func (q *watchQueue[G]) Push(x any) {
	w, _ := x.(*watch[G])
	w.index = len(*q)
	*q = append(*q, w)
}

// Pop is for container/heap.
func (q *watchQueue[G]) Pop() any {
	last := len(*q) - 1
	w := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	w.index = -1
	return w
}
