package lock

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/lock/chance"
)

// A transport sends calls through a client of go-redis. To one server each goes
// once: what go-redis would repeat unseen, we repeat, so that we know of it. A
// cluster client, which looks for the server in between, repeats on its own.
type transport struct {
	rdb         interface{ Pipeline() redis.Pipeliner }
	one         *redis.Client // nil if there are several servers
	retries     int           // of a pipeline, as the options of the client say,
	least, most time.Duration // and the pauses before them
	window      time.Duration // for how long what is counted is repeated

	idle sync.Pool // of *singleAttempt
}

func newTransport(rdb redis.UniversalClient) *transport {
	w := &transport{rdb: rdb, window: repeatWindow}
	if one, ok := rdb.(*redis.Client); ok {
		o := one.Options()
		w.one, w.retries, w.least, w.most = one, o.MaxRetries, o.MinRetryBackoff, o.MaxRetryBackoff
	}
	return w
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

func (w *transport) pipeline() redis.Pipeliner {
	if w.one == nil {
		return w.rdb.Pipeline()
	}
	if p, ok := w.idle.Get().(*singleAttempt); ok {
		return p
	}
	return &singleAttempt{w.rdb.Pipeline()}
}

// send sends calls in one pipeline. So does a call that is alone: go-redis has connections of
// their own for pipelines, which blocking commands of the program don't use up. That costs
// three allocations.
func (w *transport) send(ctx context.Context, calls []*queuedCall) {
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
	_, broken := p.Exec(ctx)
	if p, ok := p.(*singleAttempt); ok {
		w.idle.Put(p)
	}
	for _, c := range calls {
		r := replyTo(c.cmd, w.one != nil, broken, c.call)
		r.copies = r.copies || c.reply.copies
		c.reply, c.cmd = r, nil
	}
}

// repeat sends calls once more, the first of which were sent at begin. What is counted
// gets no connection after the window, and keeps its error then.
func (w *transport) repeat(ctx context.Context, calls []*queuedCall, begin time.Time) {
	var counted, others []*queuedCall
	for _, p := range calls {
		if p.call.counted {
			counted = append(counted, p)
		} else {
			others = append(others, p)
		}
	}
	if len(others) > 0 {
		w.send(ctx, others)
	}
	if len(counted) > 0 && time.Since(begin) < w.window {
		ctx, cancel := context.WithDeadline(ctx, begin.Add(w.window))
		defer cancel()
		w.send(ctx, counted)
	}
}

// defaultTimeout is that of go-redis for reading, and for writing.
const defaultTimeout = 5 * time.Second

// repeatLife is how long a server has to remember what is counted. The last repetition
// has a connection within repeatWindow; greeting the server, writing and reading take four
// timeouts at most, so its answer is there after 30s. If it is not believed, it is
// withdrawn for withdrawLimit, the last time with as many repetitions: after 65s. The rest
// is for a first connection, and for bytes that are on their way.
func (w *transport) repeatLife() time.Duration {
	if w.one == nil {
		return longRepeatLife
	}
	for _, d := range []time.Duration{w.one.Options().ReadTimeout, w.one.Options().WriteTimeout} {
		if d <= 0 || d > defaultTimeout {
			return longRepeatLife
		}
	}
	return shortRepeatLife
}

// pause waits before one of the repetitions, as go-redis does; false if the
// context ends before, or the only call of a pipeline is waited for no longer.
func (w *transport) pause(ctx context.Context, tries int, calls []*queuedCall) bool {
	var abort <-chan struct{}
	if len(calls) == 1 {
		abort = calls[0].call.abort
	}
	if w.least <= 0 {
		return ctx.Err() == nil
	}
	d := w.most
	if span := w.least << tries; span >= w.least {
		d = min(w.least+chance.N(span), w.most)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	case <-abort:
		return false
	}
}

// isBusy reports whether a server answered that it can't do anything at the moment: it
// loads its data, its cluster isn't whole, or the slot of the lock moves to another
// server. It has not carried out what it was asked for.
func isBusy(err error) bool {
	return err != nil && isRefusal(err) && (redis.IsTryAgainError(err) || redis.IsLoadingError(err) || redis.IsClusterDownError(err) ||
		redis.IsMasterDownError(err) || redis.IsMaxClientsError(err) || redis.IsNoReplicasError(err))
}

// pauseAfter is the pause after that many failures in a row and one more.
func pauseAfter(failures int) time.Duration { return 10 * time.Millisecond << min(failures, 6) }

// pause waits after a try that failed, for no longer than left. It returns false if there
// is to be no other try.
func (l *taskGroup) pause(ctx context.Context, failures int, left time.Duration) bool {
	pause := min(pauseAfter(failures), left)
	if pause <= 0 {
		return false
	}
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	case <-l.closing:
		return false
	}
}

// isTimeout reports whether no answer came in time.
func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.As(err, &timeout) && timeout.Timeout()
}

// isUnsent reports whether there was no connection to send by.
func isUnsent(err error) bool {
	var dial *net.OpError
	return errors.As(err, &dial) && dial.Op == "dial" || errors.Is(err, redis.ErrPoolTimeout)
}

// isPassing reports whether the same request may fare better in a moment: when
// go-redis would repeat it.
func isPassing(err error) bool {
	var dial *net.OpError
	var network interface{ Timeout() bool }
	switch {
	case err == nil:
		return false
	case errors.As(err, &dial) && dial.Op == "dial":
		return true
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return false
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, redis.ErrPoolTimeout),
		errors.As(err, &network):
		return true
	}
	return redis.IsMaxClientsError(err) || redis.IsLoadingError(err) || redis.IsReadOnlyError(err) ||
		redis.IsMasterDownError(err) || redis.IsClusterDownError(err) || redis.IsTryAgainError(err) ||
		redis.IsNoReplicasError(err)
}

// passing reports whether a pipeline is worth repeating.
func passing(replies []reply[any], acked error) bool {
	for _, r := range replies {
		if isPassing(r.err) {
			return true
		}
	}
	return isPassing(acked)
}

// scriptCache is which scripts each server is known to know.
type scriptCache struct {
	mu    sync.Mutex
	known map[scriptAt]struct{}
}

type scriptAt struct {
	at     string // the address: a cluster client's nodes come and go
	digest string
}

// address is that of a server; empty if the client looks for it.
func address(rdb redis.UniversalClient) string {
	if one, ok := rdb.(*redis.Client); ok {
		return one.Options().Addr
	}
	return ""
}

func (m *scriptCache) knows(at string, calls []call) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range calls {
		if _, ok := m.known[scriptAt{at, s.script.Hash()}]; !ok {
			return false
		}
	}
	return true
}

// learn remembers the scripts that ran.
func (m *scriptCache) learn(at string, calls []call, replies []reply[any]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, s := range calls {
		if replies[i].err == nil {
			m.known[scriptAt{at, s.script.Hash()}] = struct{}{}
		}
	}
}

// forget forgets all, since a server has.
func (m *scriptCache) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.known)
}
