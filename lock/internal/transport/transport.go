// Package transport sends calls of scripts to Redis: alone or in pipelines, once or, after an
// error that may pass, again. It knows of each call whether a copy may be on its way, and
// nothing of locks.
package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/lock/chance"
)

const (
	// RetryLimit is for how long a call is repeated at most, so that a mark outlives its repetitions.
	RetryLimit = time.Minute
	// movedLimit is for how long a call is sent to the server that the cluster client knows, which says that the slot has
	// moved, and movedPoll how often.
	movedLimit = time.Second
	movedPoll  = 10 * time.Millisecond
)

// A Transport sends calls through a client of go-redis, each of them once: what go-redis would repeat
// unseen, we repeat, so that we know of it.
type Transport struct {
	rdb         redis.UniversalClient
	cluster     cluster       // nil if it is none
	retries     int           // of a call, as the options of the client say,
	least, most time.Duration // and the pauses before them
	acks        int           // replicas that are awaited for a call that wants it,
	ackTimeout  time.Duration // and for how long
	deadlines   bool          // there is one server, and the deadline of a context ends a request to it
	spawn       func(func())  // runs a goroutine
	pipeliner   *pipeliner    // of what goes to one server
}

// cluster is what a Transport needs of a [redis.ClusterClient], and of what embeds one.
type cluster interface {
	Options() *redis.ClusterOptions
	MasterForKey(ctx context.Context, key string) (*redis.Client, error)
	ReloadState(ctx context.Context)
}

// New returns a Transport by that client. A call that wants it awaits so many replicas for so long. What outlives the wait of a
// caller has a goroutine that spawn runs.
func New(rdb redis.UniversalClient, acks int, ackTimeout time.Duration, spawn func(func())) *Transport {
	w := &Transport{ // of a client that says no options, those are the defaults of go-redis
		rdb: rdb, acks: acks, ackTimeout: ackTimeout, retries: 3, least: 8 * time.Millisecond, most: 512 * time.Millisecond,
		spawn: spawn,
	}
	pool := 10
	switch rdb := rdb.(type) {
	case interface{ Options() *redis.Options }: // a client, or what embeds one
		o := rdb.Options()
		w.retries, w.least, w.most, pool = o.MaxRetries, o.MinRetryBackoff, o.MaxRetryBackoff, o.PoolSize
		w.deadlines = o.ContextTimeoutEnabled
	case cluster:
		o := rdb.Options()
		w.cluster, w.retries, w.least, w.most = rdb, o.MaxRedirects, o.MinRetryBackoff, o.MaxRetryBackoff
	}
	w.pipeliner = newPipeliner(max(pool/2, 1), spawn, func(ctx context.Context, calls []*queuedCall) {
		w.send(ctx, w.rdb.Pipeline(), calls)
	})
	return w
}

// Sharded reports whether keys have slots, which may move.
func (w *Transport) Sharded() bool { return w.cluster != nil }

// Run sends a call, repeats it where go-redis would, and returns the reply; or an error as soon as the context ends or the call
// is aborted, whatever the server does: go-redis lets go of a request only at its own timeouts.
func (w *Transport) Run(ctx context.Context, s Call) (r Reply) {
	begin := time.Now()
	for tries := 0; ; {
		before := r
		var inline bool
		if r, inline, _ = w.tryNow(ctx, s); !inline {
			r = w.once(ctx, s, never)
		}
		r.Copies, r.Sent = r.Copies || before.Copies, r.Sent || before.Sent
		switch {
		case r.Err == nil && r.Unacked == nil: // the checks of an error allocate
			return r
		case inline && IsTimeout(r.Err): // it was given too little time to count
			s.Inline = 0
		case s.Narrow != nil && redis.IsTryAgainError(r.Err):
			acked := s.Acked
			s = *s.Narrow
			s.Acked = acked
		case redis.HasErrorPrefix(r.Err, "NOSCRIPT") && !s.full:
			s.full = true
		case w.cluster != nil && redis.HasErrorPrefix(r.Err, "MOVED") && time.Since(begin) < movedLimit && Sleep(ctx, movedPoll, s.Abort) == nil:
		case tries < w.retries && IsPassing(cmp.Or(r.Err, r.Unacked)) && time.Since(begin) < RetryLimit &&
			Sleep(ctx, chance.Pause(w.least, w.most, tries), s.Abort) == nil:
			tries++
		default:
			deadline, limited := ctx.Deadline() // at which the Redis client looks, and may give up an instant before the context ends
			if limited && !time.Now().Before(deadline) && IsTimeout(r.Err) && !errors.Is(r.Err, context.DeadlineExceeded) {
				r.Err = fmt.Errorf("%w: %w", context.DeadlineExceeded, r.Err)
			}
			return r
		}
	}
}

// Try sends a call once, and waits for the answer no longer than [Call.Inline], whatever the context says: by the goroutine of
// its caller if that may be, else in a pipeline with those of others. It sends nothing, and returns the zero Reply, to several
// servers, by a Redis client that does not heed the deadlines of contexts, to a server that did not answer the last request, or took
// longer than 5 ms for the last two, and behind more calls than such a server answers in time.
//
// One command costs client and server less than a script: rows uncontended-16 and many-keys of docs/benchmarks.md fall by a
// fifth without those in pipelines.
func (w *Transport) Try(ctx context.Context, s Call) Reply {
	r, sent, soon := w.tryNow(ctx, s)
	if !sent && soon {
		r = w.once(ctx, s, s.Inline)
	}
	return r
}

// tryNow is Try by the goroutine of the caller. It sends nothing either where calls share pipelines; soon says whether the answer
// would come in time.
//
// To hand a request to a goroutine and to be woken by it takes as much processor time as the request: row
// uncontended-1 of docs/benchmarks.md falls by a third without this.
func (w *Transport) tryNow(ctx context.Context, s Call) (r Reply, sent, soon bool) {
	if s.Inline == 0 || !w.deadlines || s.Acked && w.acks > 0 || ctx.Err() != nil {
		return Reply{}, false, false
	}
	slot, free, soon := w.pipeliner.takeNow(s.Inline)
	if !free {
		return Reply{}, false, soon
	}
	at := time.Now().Add(s.Inline) // which a dial and the wait for a connection heed as well
	if ends, limited := ctx.Deadline(); !limited || at.Before(ends) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(context.WithoutCancel(ctx), at)
		defer cancel()
	}
	c := w.queued(ctx, s)
	w.pipeliner.sendBy(slot, []*queuedCall{c}) //nolint:contextcheck // what it sends for others has contexts of its own
	return c.answer(), true, true
}

// Final reports whether a call that came to an error is not to be sent again, as the options of the Redis client say.
func (w *Transport) Final(err error) bool { return err != nil && w.retries <= 0 && !IsTimeout(err) }

// once has a call sent once, together with those of others, and awaits the reply for so long.
func (w *Transport) once(ctx context.Context, s Call, patience time.Duration) Reply {
	if err := ctx.Err(); err != nil {
		return Reply{Err: err}
	}
	c := w.queued(ctx, s)
	c.done = make(chan struct{})
	if w.cluster == nil {
		w.pipeliner.enqueue(c) //nolint:contextcheck // see tryNow
	} else {
		w.spawn(func() { w.sendToCluster(c) })
	}
	_, answered, left := Await(ctx, c.done, patience, s.Abort)
	if answered {
		return c.answer()
	}
	if left = cmp.Or(left, os.ErrDeadlineExceeded); !w.pipeliner.leave(c) {
		return Reply{Err: left}
	}
	return Reply{Err: left, Sent: true, Copies: true, UnderWay: c.done}
}

// queued is a call that is to be sent.
func (w *Transport) queued(ctx context.Context, s Call) *queuedCall {
	return &queuedCall{
		ctx: ctx, cmd: s.command(ctx), key: s.Keys[0], acked: s.Acked && w.acks > 0,
		reply: Reply{Err: errNoReply, Copies: true, Sent: true}, // as long as there is none, also where a hook panics
	}
}

// sendToCluster sends a call to the server that has its key.
func (w *Transport) sendToCluster(c *queuedCall) {
	defer func() { deliver([]*queuedCall{c}, recover()) }()
	if !c.acked {
		w.send(c.ctx, w.rdb.Pipeline(), []*queuedCall{c})
		return
	}
	// WAIT has no key to be routed by.
	node, err := w.cluster.MasterForKey(c.ctx, c.key)
	if err != nil {
		c.reply = Reply{Err: fmt.Errorf("find the master of %s: %w", c.key, err)}
		return
	}
	if w.send(c.ctx, node.Pipeline(), []*queuedCall{c}); redis.HasErrorPrefix(c.reply.Err, "MOVED") {
		w.cluster.ReloadState(c.ctx)
	}
}

// send sends calls in one pipeline, once, and has replicas acknowledge it if one of them wants that: WAIT
// counts those that have all that was written before. A call that is alone goes by a pipeline too: go-redis has
// connections of their own for these, which blocking commands of the program don't use up.
func (w *Transport) send(ctx context.Context, p redis.Pipeliner, calls []*queuedCall) {
	acked := false
	for _, c := range calls {
		_ = p.Process(ctx, noRetryCmd{c.cmd})
		acked = acked || c.acked
	}
	var wait *redis.Cmd
	if acked {
		wait = redis.NewCmd(ctx, "WAIT", w.acks, w.ackTimeout.Milliseconds())
		_ = p.Process(ctx, noRetryCmd{wait})
	}
	_, broken := p.Exec(ctx)
	for _, c := range calls {
		value, err := c.cmd.Result()
		if err == nil && value == nil {
			err = broken
		}
		c.reply = Reply{Value: value, Sent: true}
		if err != nil { // the checks allocate
			c.reply = Reply{Err: explain(err, c.key), Copies: MayArrive(err), Sent: !IsUnsent(err)}
		}
		if c.acked {
			c.reply.Unacked = w.unacked(wait)
		}
	}
}

// unacked is why too few replicas are known to have what was written, if they are.
func (w *Transport) unacked(wait *redis.Cmd) error {
	n, err := wait.Int()
	switch {
	case err != nil:
		return fmt.Errorf("await replicas: %w", err)
	case n < w.acks:
		return fmt.Errorf("%d of %d replicas acknowledged it within %v", n, w.acks, w.ackTimeout)
	default:
		return nil
	}
}

// noRetryCmd is a command that go-redis doesn't repeat, nor the pipeline it is in.
type noRetryCmd struct{ *redis.Cmd }

// NoRetry is for go-redis.
func (noRetryCmd) NoRetry() bool { return true }

// Load is how many pipelines are under way, and how many calls wait for one, to a single server.
func (w *Transport) Load() (pipelines, queued int) {
	w.pipeliner.mu.Lock()
	defer w.pipeliner.mu.Unlock()
	return len(w.pipeliner.inUse), len(w.pipeliner.queue)
}

// Sleep waits for that time, or returns the context's error, or [ErrClosed] once abort is closed.
func Sleep(ctx context.Context, d time.Duration, abort <-chan struct{}) error {
	_, _, err := Await[struct{}](ctx, nil, d, abort)
	return err
}

// Await waits for that time for a value, and reports whether it came; or returns an error, as Sleep does.
func Await[T any](ctx context.Context, from <-chan T, d time.Duration, abort <-chan struct{}) (value T, came bool, err error) {
	var over <-chan time.Time
	if d < never {
		timer := time.NewTimer(d)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case value = <-from:
		came = true
	case <-over:
	case <-ctx.Done():
		err = ctx.Err()
	case <-abort:
		err = ErrClosed
	}
	return value, came, err
}
