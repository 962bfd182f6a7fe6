package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/lock/internal/transport"
)

const (
	// maxBatch is how many renewals go in one pipeline: enough for the costs of
	// a request not to matter, and few enough to be answered long before the
	// Redis client gives up reading.
	maxBatch = 250
	// maxPipelines is how many pipelines with renewals a server gets at a time,
	// so that others are answered in between when many holds are due at once.
	maxPipelines = 2
)

// A renewer renews the holds of a watchdog. G identifies the grant of one.
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
// pipeline. A renewal that fails is repeated, with growing pauses, until the hold is lost.
//
// A renewal is sent within a quarter of a period from when it is due, and given
// up half a period later. So there is time for a second one before the end.
type watchdog[G any] struct {
	renewer renewer[G]
	life    *taskGroup
	lease   time.Duration
	period  time.Duration          // from one renewal to the next
	poke    chan struct{}          // something is due before run looks again
	slots   map[string]serverSlots // by server; of run alone

	mu       sync.Mutex
	running  bool
	watched  map[*Hold]*watch[G]
	queue    timeHeap[*watch[G]] // of those for which no renewal is in flight, by when they are due
	nextWake time.Time           // when run looks at it again, or sooner; zero: it is about to
}

// watch is one hold that is kept alive.
type watch[G any] struct {
	alarm  alarm // when it is due
	hold   *Hold
	grant  G
	server string        // where there are several
	lease  time.Duration // that a renewal asks for
	period time.Duration // until the first renewal, and that of the watchdog later
	pause  time.Duration // before the next repetition of a failed renewal
	over   bool          // it is not kept alive any more
}

func (w *watch[G]) when() *alarm { return &w.alarm }

// serverSlots are for the pipelines that a server gets at a time.
type serverSlots chan struct{}

func newWatchdog[G any](r renewer[G], l *taskGroup, lease time.Duration) *watchdog[G] {
	period := lease / 3
	return &watchdog[G]{
		renewer: r, life: l, lease: lease, period: period,
		poke: make(chan struct{}, 1), slots: map[string]serverSlots{}, watched: map[*Hold]*watch[G]{},
	}
}

// wait is how long a renewal waits for the answers to others before it is sent.
func (w *watch[G]) wait() time.Duration { return w.period / 4 }

// limit is how long it waits for its own answer.
func (w *watch[G]) limit() time.Duration { return max(w.period/2, 5*time.Millisecond) }

// add begins to keep a hold alive by that lease: the first renewal is due after first, and has
// that period for its repetitions. After Close it does nothing.
func (d *watchdog[G]) add(h *Hold, g G, lease, period, first time.Duration) {
	w := &watch[G]{hold: h, grant: g, lease: lease, period: period}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.watched[h] = w
	d.push(w, time.Now().Add(first))
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
	w.over = true
	d.queue.remove(w)
}

// renewSoon makes a hold due soon, because its end may have moved.
func (d *watchdog[G]) renewSoon(h *Hold) {
	left := time.Until(h.Lease().Expires)
	d.mu.Lock()
	defer d.mu.Unlock()
	if w := d.watched[h]; w != nil && w.alarm.place > 0 {
		d.push(w, time.Now().Add(min(d.period, left/2)))
	}
}

// requeue puts holds back into the queue.
func (d *watchdog[G]) requeue(ws []*watch[G]) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range ws {
		if !w.over {
			d.push(w, w.alarm.at)
		}
	}
}

func (d *watchdog[G]) push(w *watch[G], due time.Time) {
	d.queue.put(w, due)
	if due.Before(d.nextWake) {
		select {
		case d.poke <- struct{}{}:
		default:
		}
	}
}

// run sends the renewals of all holds.
func (d *watchdog[G]) run() {
	timer := time.NewTimer(d.period)
	defer timer.Stop()
	for {
		due, next := d.due(time.Now())
		for _, batch := range d.renewer.batches(due) {
			l := d.slots[batch[0].server]
			if l == nil {
				l = make(serverSlots, maxPipelines)
				d.slots[batch[0].server] = l
			}
			d.life.tasks.Go(func() { d.send(batch, l) }) // we are a task, so Close still waits
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

// due takes the holds that are due from the queue, and fills the batch with those
// that are nearly so, and says when the next ones will be.
func (d *watchdog[G]) due(now time.Time) (due []*watch[G], next time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	soon := now
	for len(d.queue) > 0 && !d.queue[0].alarm.at.After(soon) {
		w := d.queue[0]
		d.queue.remove(w)
		due = append(due, w)
		if soon = now; len(due)%maxBatch != 0 {
			soon = now.Add(d.period / 10)
		}
	}
	d.nextWake = now.Add(d.period) // no hold that is added until then is due before that
	if len(d.queue) > 0 {
		d.nextWake = d.queue[0].alarm.at
	}
	return due, d.nextWake.Sub(now)
}

// send renews a batch when its turn has come: when the server has answered enough
// of those before it, or at the latest after some time, since a server that is
// slow, or far away, or answers some and not others must not cost a hold.
func (d *watchdog[G]) send(batch []*watch[G], l serverSlots) {
	late := time.NewTimer(batch[0].wait())
	defer late.Stop()
	select {
	case l <- struct{}{}:
		defer func() { <-l }()
	case <-late.C:
	case <-d.life.closing:
		return
	}
	d.renew(batch)
}

// renew sends the renewals of one batch and deals with the answers.
func (d *watchdog[G]) renew(batch []*watch[G]) {
	d.mu.Lock()
	batch = slices.DeleteFunc(batch, func(w *watch[G]) bool { return w.over })
	d.mu.Unlock()
	var grants []G
	live := batch[:0]
	var busy []*watch[G]
	for _, w := range batch {
		l, isBusy, over := w.hold.renewal()
		switch {
		case over:
		case isBusy:
			w.alarm.at = time.Now().Add(w.period / 10)
			busy = append(busy, w)
		default:
			live = append(live, w)
			grants = append(grants, w.grant)
			l.Length = w.lease // a shorter one was handed over
			d.renewer.observe(Renewing, l, 0, nil)
		}
	}
	d.requeue(busy)
	if len(live) == 0 {
		return
	}
	sent := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), live[0].limit())
	defer cancel()
	errs := d.renewer.renew(ctx, grants)
	answered := time.Now()
	for i, w := range live {
		err := errs[i]
		w.alarm.at = sent.Add(d.period)
		switch {
		case err == nil:
			w.pause, w.period = 0, d.period
			if !w.hold.prolong(d.renewer.expires(sent, w.lease), w.lease) {
				err = errTooLate
			}
		case errors.Is(err, ErrNotHeld):
			w.hold.end(true)
		default:
			w.pause = min(max(2*w.pause, w.period/20), w.period/2)
			w.alarm.at = answered.Add(w.pause)
		}
		d.renewer.observe(Renewed, w.hold.Lease(), answered.Sub(sent), err)
	}
	d.requeue(live) // before an extension can want to renew them sooner
	for _, w := range live {
		w.hold.give()
	}
}

// batches splits renewals by server, so that a server that is stuck doesn't
// delay those of the others, and by how much time there is.
func (c *Client) batches(due []*watch[*grant]) [][]*watch[*grant] {
	type likeness struct {
		server string
		period time.Duration
	}
	alike := map[likeness][]*watch[*grant]{}
	cluster, sharded := c.rdb.(*redis.ClusterClient)
	ctx, cancel := context.WithTimeout(context.Background(), c.watchdog.period/2)
	defer cancel()
	for _, w := range due {
		if sharded {
			w.server = "" // those without one share a batch, and fail
			if master, err := cluster.MasterForKey(ctx, w.grant.keys.lock); err == nil {
				w.server = master.Options().Addr
			}
		}
		s := likeness{w.server, w.period}
		alike[s] = append(alike[s], w)
	}
	var batches [][]*watch[*grant]
	for _, ws := range alike {
		batches = append(batches, slices.Collect(slices.Chunk(ws, maxBatch))...)
	}
	return batches
}

// renew sends the renewals of grants on one server.
func (c *Client) renew(ctx context.Context, batch []*grant) []error {
	calls := make([]transport.Call, len(batch))
	for i, g := range batch {
		calls[i] = g.kind.extend(g, g.lease)
	}
	type sent = struct {
		replies []transport.Reply
		unacked error
	}
	answers := make(chan sent, 1)
	c.tasks.Go(func() { // the watchdog is a task, so Close still waits
		replies, unacked := c.transport.Commit(ctx, calls...)
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
			errs[i] = fmt.Errorf("no answer in time: %w", ctx.Err())
		}
	}
	return errs
}
