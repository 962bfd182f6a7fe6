// Package transport sends calls of scripts to Redis: alone or in pipelines, once or, after an
// error that may pass, again. It knows of each call whether a copy may be on its way, and
// nothing of locks.
package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/lock/chance"
)

const (
	// defaultPool is how many connections a Redis client has that doesn't say so.
	defaultPool = 10
	// defaultTimeout is that of go-redis for reading, and for writing.
	defaultTimeout = 5 * time.Second
	// movedLimit bounds the search for the server to which a slot has moved, and
	// movedPoll is how often the cluster client is asked for it.
	movedLimit = time.Second
	movedPoll  = 10 * time.Millisecond

	// repeatWindow is for how long a change that has no lease is repeated, and
	// shortRepeatLife how long it is remembered for repetitions then: see
	// [Transport.RepeatLife]. An answer to a request to take permits that comes after half
	// of that is not believed.
	repeatWindow    = 10 * time.Second
	shortRepeatLife = 2 * time.Minute
	// longRepeatLife is that where go-redis repeats requests by itself, or has longer
	// timeouts: longer than it goes on, even if it has to dial each time, and withdraw
	// after it.
	longRepeatLife = 5 * time.Minute
)

// A Transport sends calls through a client of go-redis. To one server each goes
// once: what go-redis would repeat unseen, we repeat, so that we know of it. A
// cluster client, which looks for the server in between, repeats on its own.
type Transport struct {
	rdb         redis.UniversalClient
	one         *redis.Client        // nil if there are several servers
	cluster     *redis.ClusterClient // nil if there is one
	retries     int                  // of a pipeline, as the options of the client say,
	least, most time.Duration        // and the pauses before them
	Window      time.Duration        // for how long what is counted is repeated
	acks        int                  // replicas that Commit awaits,
	ackTimeout  time.Duration        // and for how long

	known *sync.Map // of the scripts that a server knows, by its address and the digest
	idle  sync.Pool // of *singleAttempt

	quick *redis.Client // one with a short timeout, which shares its connections, for while it has no hooks
	hooks hooks

	slots      int // to each server
	single     *pipeliner
	mu         sync.Mutex
	pipeliners map[string]*pipeliner // by address, of a cluster
}

// New returns a Transport by that client. Commit awaits so many replicas for so long.
func New(rdb redis.UniversalClient, acks int, ackTimeout time.Duration) *Transport {
	w := newTransport(rdb, acks, ackTimeout)
	if w.one != nil {
		w.quick, w.hooks = w.one.WithTimeout(directTimeout), hooksOf(w.one)
	}
	return w
}

func newTransport(rdb redis.UniversalClient, acks int, ackTimeout time.Duration) *Transport {
	w := &Transport{
		rdb: rdb, Window: repeatWindow, acks: acks, ackTimeout: ackTimeout, known: &sync.Map{}, pipeliners: map[string]*pipeliner{},
	}
	pool := defaultPool
	switch rdb := rdb.(type) {
	case *redis.Client:
		o := rdb.Options()
		w.one, w.retries, w.least, w.most, pool = rdb, o.MaxRetries, o.MinRetryBackoff, o.MaxRetryBackoff, o.PoolSize
	case *redis.ClusterClient:
		w.cluster, pool = rdb, rdb.Options().PoolSize
	}
	w.slots = max(pool/2, 1)
	w.single = newPipeliner(w.slots, w.exchangeUnacked)
	return w
}

// at is a Transport to one of the servers of a cluster.
func (w *Transport) at(node *redis.Client) *Transport {
	to := newTransport(node, w.acks, w.ackTimeout)
	to.known = w.known
	return to
}

// Run sends a call, together with others where some are made at the same time, and returns the
// reply; or the context's error if that ends before it is sent. sent, which is optional, is set
// before the call is sent.
func (w *Transport) Run(ctx context.Context, s Call, sent *atomic.Bool) Reply {
	return w.pipelinerFor(ctx, s.key()).run(ctx, s, sent)
}

// pipelinerFor is that of the server of a key. If the server is not known, the call
// fails, which may take long and delays no call to a server that is known.
func (w *Transport) pipelinerFor(ctx context.Context, key string) *pipeliner {
	if w.cluster == nil {
		return w.single
	}
	node, err := w.cluster.MasterForKey(ctx, key)
	if err != nil {
		return w.single
	}
	addr := node.Options().Addr
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.pipeliners[addr]
	if l == nil {
		l = newPipeliner(w.slots, w.exchangeUnacked)
		w.pipeliners[addr] = l
	}
	return l
}

// Commit sends calls that change something, on one connection, and returns the
// reply to each. If replicas must acknowledge it, acked says whether enough of
// them have all of it. All keys belong to one server.
func (w *Transport) Commit(ctx context.Context, calls ...Call) (replies []Reply, acked error) {
	queued := make([]*queuedCall, len(calls))
	for i, s := range calls {
		queued[i] = &queuedCall{ctx: ctx, call: s, reply: Reply{Err: errNoReply}}
	}
	if w.cluster != nil && w.acks > 0 {
		acked = w.commitOnMaster(ctx, queued)
	} else {
		acked = w.exchange(ctx, queued, w.acks)
	}
	for _, c := range queued {
		replies = append(replies, c.reply)
	}
	return replies, acked
}

// CommitOne is Commit for one call, which shares a pipeline with others if no replica is awaited.
func (w *Transport) CommitOne(ctx context.Context, s Call) (r Reply, acked error) {
	if w.acks == 0 {
		return w.Run(ctx, s, nil), nil
	}
	replies, acked := w.Commit(ctx, s)
	return replies[0], acked
}

// commitOnMaster looks for the server: WAIT has no key to be routed by.
func (w *Transport) commitOnMaster(ctx context.Context, calls []*queuedCall) (acked error) {
	var last *redis.Client
	for key := calls[0].call.key(); ; {
		node, err := masterOtherThan(ctx, w.cluster, key, last)
		if err != nil {
			for _, c := range calls {
				if errors.Is(c.reply.Err, errNoReply) {
					c.reply.Err = fmt.Errorf("find the master of %s: %w", key, err)
				}
			}
			return acked
		}
		acked = w.at(node).exchange(ctx, calls, w.acks)
		moved := slices.IndexFunc(calls, func(c *queuedCall) bool { return redis.HasErrorPrefix(c.reply.Err, "MOVED") })
		if moved < 0 {
			return acked
		}
		last, key = node, calls[moved].call.key()
	}
}

// masterOtherThan is the server that serves a key, once the cluster client knows
// of one other than the last, which said that the key has moved.
func masterOtherThan(ctx context.Context, cluster *redis.ClusterClient, key string, last *redis.Client) (*redis.Client, error) {
	node, err := cluster.MasterForKey(ctx, key)
	if last == nil || err != nil {
		return node, err
	}
	ctx, cancel := context.WithTimeout(ctx, movedLimit)
	defer cancel()
	ticker := time.NewTicker(movedPoll)
	defer ticker.Stop()
	for node == last {
		cluster.ReloadState(ctx)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if node, err = cluster.MasterForKey(ctx, key); err != nil {
			return nil, err
		}
	}
	return node, nil
}

func (w *Transport) exchangeUnacked(ctx context.Context, calls []*queuedCall) {
	_ = w.exchange(ctx, calls, 0)
}

// exchange sends calls in one pipeline, and what is worth repeating once more: in full if the
// server doesn't know the script. Where replicas are to acknowledge it, that is all of them, so
// that they acknowledge all together.
func (w *Transport) exchange(ctx context.Context, calls []*queuedCall, acks int) (acked error) {
	begin := time.Now()
	if acks > 0 { // which are awaited even for a script that failed
		for _, c := range calls {
			_, known := w.known.Load(w.scriptAt(c))
			c.full = c.full || !known
		}
	}
	acked = w.send(ctx, calls, acks)
	for tries := 0; ; {
		var again []*queuedCall
		pause := tries < w.retries && IsPassing(acked)
		for _, c := range calls {
			switch err := c.reply.Err; {
			case err == nil:
				continue
			case c.call.Narrow != nil && redis.IsTryAgainError(err):
				c.call, c.words, c.full = *c.call.Narrow, nil, false
			case isUnknownScript(err) && !c.full:
				c.full = true
				if acks > 0 { // the server has forgotten all
					w.known.Clear()
				}
			case tries < w.retries && IsPassing(err) && (!c.call.Counted || time.Since(begin) < w.Window):
				pause = true
			default:
				continue
			}
			again = append(again, c)
		}
		if acks > 0 && (pause || len(again) > 0) {
			again = calls
		}
		if len(again) == 0 {
			return acked
		}
		if pause {
			tries++
			if !w.pause(ctx, tries, again) {
				return acked
			}
		}
		calls = again
		acked = w.repeat(ctx, calls, acks, begin)
	}
}

// repeat sends calls once more, the first of which were sent at begin. What is counted
// gets no connection after the window, and keeps its error then.
func (w *Transport) repeat(ctx context.Context, calls []*queuedCall, acks int, begin time.Time) (acked error) {
	var counted, others []*queuedCall
	for _, c := range calls {
		if c.call.Counted {
			counted = append(counted, c)
		} else {
			others = append(others, c)
		}
	}
	if len(others) > 0 {
		acked = w.send(ctx, others, acks)
	}
	if len(counted) > 0 && time.Since(begin) < w.Window {
		ctx, cancel := context.WithDeadline(ctx, begin.Add(w.Window))
		defer cancel()
		acked = cmp.Or(acked, w.send(ctx, counted, acks))
	}
	return acked
}

// send sends calls in one pipeline, once. So does a call that is alone: go-redis has connections
// of their own for pipelines, which blocking commands of the program don't use up. That costs
// three allocations.
func (w *Transport) send(ctx context.Context, calls []*queuedCall, acks int) (acked error) {
	for _, c := range calls {
		words := c.call.words
		if len(c.words) == 0 { // hooks may change what is sent, and the call may be sent again
			c.words = append(c.words, words...)
		} else {
			words = slices.Clone(c.words)
		}
		c.cmd = c.call.command(ctx, words, c.full)
	}
	p := w.pipeline()
	for _, c := range calls {
		_ = p.Process(ctx, c.cmd)
	}
	var wait *redis.Cmd
	if acks > 0 {
		wait = redis.NewCmd(ctx, "WAIT", acks, w.ackTimeout.Milliseconds())
		_ = p.BatchProcess(ctx, wait)
	}
	_, broken := p.Exec(ctx)
	if p, ok := p.(*singleAttempt); ok {
		w.idle.Put(p)
	}
	for _, c := range calls {
		value, err := c.cmd.Result()
		if err == nil && value == nil {
			err = broken
		}
		if err == nil && acks > 0 {
			w.known.Store(w.scriptAt(c), true)
		}
		// Perhaps go-redis sent it more often, where there are several servers.
		copies := c.reply.Copies || w.one == nil || MayArrive(err)
		sent := c.reply.Sent || !IsUnsent(err)
		c.reply, c.cmd = Reply{Value: value, Err: explain(err, c.call), Copies: copies, Sent: sent}, nil
	}
	if acks == 0 {
		return nil
	}
	n, err := wait.Int()
	switch {
	case err != nil:
		return fmt.Errorf("await replicas: %w", err)
	case n < acks:
		return fmt.Errorf("%d of %d replicas acknowledged it within %v", n, acks, w.ackTimeout)
	}
	return nil
}

// scriptAt is the script of a call at the server, whose address a cluster's nodes keep.
func (w *Transport) scriptAt(c *queuedCall) string {
	addr := ""
	if w.one != nil {
		addr = w.one.Options().Addr
	}
	return addr + " " + c.call.Script.Digest()
}

// singleAttempt is a pipeline that go-redis sends once.
type singleAttempt struct{ redis.Pipeliner }

func (p *singleAttempt) Process(ctx context.Context, cmd redis.Cmder) error {
	if plain, ok := cmd.(*redis.Cmd); ok {
		cmd = noRetryCmd{plain}
	}
	return p.Pipeliner.Process(ctx, cmd)
}

// noRetryCmd is a command that go-redis doesn't repeat, nor the pipeline it is in.
type noRetryCmd struct{ *redis.Cmd }

// NoRetry is for go-redis.
func (noRetryCmd) NoRetry() bool { return true }

func (w *Transport) pipeline() redis.Pipeliner {
	if w.one == nil {
		return w.rdb.Pipeline()
	}
	if p, ok := w.idle.Get().(*singleAttempt); ok {
		return p
	}
	return &singleAttempt{w.rdb.Pipeline()}
}

// RepeatLife is how long a server has to remember what is counted. The last repetition
// has a connection within repeatWindow; greeting the server, writing and reading take four
// timeouts at most, so its answer is there after 30s. If it is not believed, it is
// withdrawn for withdrawLimit, the last time with as many repetitions: after 65s. The rest
// is for a first connection, and for bytes that are on their way.
func (w *Transport) RepeatLife() time.Duration {
	if w.one == nil || w.acks > 0 {
		return longRepeatLife
	}
	for _, d := range []time.Duration{w.one.Options().ReadTimeout, w.one.Options().WriteTimeout} {
		if d <= 0 || d > defaultTimeout {
			return longRepeatLife
		}
	}
	return shortRepeatLife
}

// Load is how many pipelines are under way, and how many calls wait for one, to a single server.
func (w *Transport) Load() (pipelines, queued int) {
	l := w.single
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inUse + l.abandoned, len(l.queue)
}

// pause waits before one of the repetitions, as go-redis does; false if the
// context ends before, or the only call of a pipeline is waited for no longer.
func (w *Transport) pause(ctx context.Context, tries int, calls []*queuedCall) bool {
	var abort <-chan struct{}
	if len(calls) == 1 {
		abort = calls[0].call.Abort
	}
	if w.least <= 0 {
		return ctx.Err() == nil
	}
	d := w.most
	if span := w.least << tries; span >= w.least {
		d = min(w.least+chance.N(span), w.most)
	}
	return Sleep(ctx, d, abort) == nil
}

// Sleep waits for that time, or returns the context's error, or [ErrClosed] once abort is closed.
func Sleep(ctx context.Context, d time.Duration, abort <-chan struct{}) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-abort:
		return ErrClosed
	}
}
