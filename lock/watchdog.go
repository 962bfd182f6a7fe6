package lock

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// maxBatch is how many renewals go in one pipeline.
const maxBatch = 1000

// watchdog renews the holds of a client that have no lease of their own: each
// every third of the watchdog's lease, and those that are due together in one
// pipeline. A renewal that fails is repeated, with growing pauses, until the
// hold is lost.
type watchdog struct {
	client *Client
	period time.Duration // from one renewal to the next
	limit  time.Duration // for the answer to one renewal
	poke   chan struct{} // the first in the queue changed

	mu      sync.Mutex
	running bool
	watched map[*Hold]*watch
	queue   watchQueue
}

// watch is one hold that is kept alive.
type watch struct {
	hold  *Hold
	grant *grant
	due   time.Time
	pause time.Duration // before the next repetition of a failed renewal
	index int           // in the queue; -1 while a renewal is in flight
}

func newWatchdog(c *Client) *watchdog {
	period := c.config.Watchdog / 3
	return &watchdog{
		client: c, period: period, limit: max(period/2, 5*time.Millisecond),
		poke: make(chan struct{}, 1), watched: map[*Hold]*watch{},
	}
}

// add begins to keep a hold alive. After Close it does nothing.
func (d *watchdog) add(h *Hold, g *grant) {
	w := &watch{hold: h, grant: g, due: time.Now().Add(d.period)}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.watched[h] = w
	d.push(w)
	if !d.running {
		d.running = d.client.spawn(d.run)
	}
}

// remove ends it. A renewal in flight is not awaited: that is done by taking
// the hold's turn.
func (d *watchdog) remove(h *Hold) {
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
func (d *watchdog) hurry(h *Hold) {
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
func (d *watchdog) again(w *watch, after time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.watched[w.hold] == w {
		w.due = time.Now().Add(after)
		d.push(w)
	}
}

func (d *watchdog) push(w *watch) {
	heap.Push(&d.queue, w)
	if w.index == 0 {
		select {
		case d.poke <- struct{}{}:
		default:
		}
	}
}

// run is the one clock of all holds.
func (d *watchdog) run() {
	timer := time.NewTimer(d.period)
	defer timer.Stop()
	for {
		due, next := d.due(time.Now())
		for _, batch := range d.batches(due) {
			d.client.tasks.Go(func() { d.renew(batch) }) // we are a task, so Close still waits
		}
		timer.Reset(next)
		select {
		case <-timer.C:
		case <-d.poke:
		case <-d.client.closing:
			return
		}
	}
}

// due takes the holds that are due from the queue, and those that are nearly
// so, and says when the next ones will be.
func (d *watchdog) due(now time.Time) (due []*watch, next time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.queue) > 0 && !d.queue[0].due.After(now) {
		for soon := now.Add(d.period / 10); len(d.queue) > 0 && d.queue[0].due.Before(soon); {
			w, _ := heap.Pop(&d.queue).(*watch)
			due = append(due, w)
		}
	}
	if len(d.queue) == 0 {
		return due, d.period
	}
	return due, d.queue[0].due.Sub(now)
}

// batches splits renewals by server, so that a server that is stuck doesn't
// delay those of the others.
func (d *watchdog) batches(due []*watch) [][]*watch {
	byServer := map[*redis.Client][]*watch{}
	cluster, sharded := d.client.rdb.(*redis.ClusterClient)
	ctx, cancel := context.WithTimeout(context.Background(), d.limit)
	defer cancel()
	for _, w := range due {
		var server *redis.Client
		if sharded {
			server, _ = cluster.MasterForKey(ctx, w.grant.keys.lock) // those without one share a batch, and fail
		}
		byServer[server] = append(byServer[server], w)
	}
	var batches [][]*watch
	for _, ws := range byServer {
		for len(ws) > maxBatch {
			batches = append(batches, ws[:maxBatch])
			ws = ws[maxBatch:]
		}
		batches = append(batches, ws)
	}
	return batches
}

// renew sends the renewals of one batch and deals with the answers.
func (d *watchdog) renew(batch []*watch) {
	c := d.client
	var calls []call
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
		calls = append(calls, w.grant.extension(c.config.Watchdog))
		c.observe(Renewing, l, 0, nil)
	}
	if len(live) == 0 {
		return
	}
	sent := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), d.limit)
	defer cancel()
	errs := d.send(ctx, calls)
	took := time.Since(sent)
	expires := c.expires(sent, c.config.Watchdog)
	for i, w := range live {
		err := errs[i]
		switch {
		case err == nil:
			w.hold.prolong(expires, false)
			w.pause = 0
		case errors.Is(err, ErrNotHeld):
			w.hold.end(true)
		}
		c.observe(Renewed, w.hold.Lease(), took, err)
		w.hold.give()
		next := d.period - time.Since(sent)
		if err != nil {
			w.pause = min(max(2*w.pause, d.period/20), d.period/2)
			next = w.pause
		}
		d.again(w, next)
	}
}

// send returns the outcome of each call, at the latest when the context ends.
func (d *watchdog) send(ctx context.Context, calls []call) []error {
	type sent = struct {
		replies []reply[any]
		unacked error
	}
	answers := make(chan sent, 1)
	d.client.tasks.Go(func() {
		replies, unacked := d.client.commit(ctx, calls...)
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
			errs[i] = fmt.Errorf("no answer within %v: %w", d.limit, ctx.Err())
		}
	}
	return errs
}

// watchQueue is a heap of the holds by when they are due.
type watchQueue []*watch

func (q watchQueue) Len() int           { return len(q) }
func (q watchQueue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }
func (q watchQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

// Push is for container/heap.
func (q *watchQueue) Push(x any) {
	w, _ := x.(*watch)
	w.index = len(*q)
	*q = append(*q, w)
}

// Pop is for container/heap.
func (q *watchQueue) Pop() any {
	last := len(*q) - 1
	w := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	w.index = -1
	return w
}
