package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// reply is what a request came to.
type reply[T any] struct {
	value T
	err   error
	// copies says that the server may yet see the request, or see it once more: it
	// was sent again though it may have arrived, or its outcome isn't known.
	copies bool
}

// A task sends requests for a caller.
type task interface {
	// send sends them, and keeps what they come to for the caller.
	send(ctx context.Context) error
	// late deals with an error of send, and with an outcome for which the caller no longer
	// waits.
	late(ctx context.Context, err error)
}

// carryOut has a task sent, and returns its error; or the context's error soon after that
// ends, or [ErrClosed] soon after abort is closed: go-redis itself lets go of a request only
// at its own timeouts. So the task has a goroutine of its own, unless the caller would wait
// for it in any case. Close awaits it.
//
// gaveUp says that the task still belongs to its goroutine. The caller may use it otherwise.
func (c *Client) carryOut(ctx context.Context, abort <-chan struct{}, t task) (gaveUp bool, err error) {
	if err := ctx.Err(); err != nil {
		return true, err
	}
	if ctx.Done() == nil && abort == nil && c.enter() { // we wait in any case
		defer c.tasks.Done()
		err := t.send(ctx)
		if err != nil {
			c.tasks.Go(func() { t.late(ctx, err) })
		}
		return false, err
	}
	r, _ := c.inFlights.Get().(*inFlight)
	if r == nil {
		r = &inFlight{answer: make(chan error, 1)}
		r.start = r.run
	}
	r.ctx, r.task, r.tasks = ctx, t, &c.tasks
	r.state.Store(underWay)
	if c.enter() {
		go r.start()
	} else if abort != nil {
		return true, ErrClosed
	} else { // what may still be done after Close
		r.tasks = nil
		go r.start()
	}
	select {
	case err = <-r.answer:
	case <-ctx.Done():
		gaveUp, err = r.giveUp(ctx.Err())
	case <-abort:
		gaveUp, err = r.giveUp(ErrClosed)
	}
	if !gaveUp { // else the goroutine keeps it
		r.ctx, r.task, r.tasks = nil, nil, nil
		c.inFlights.Put(r)
		err = overdue(ctx, err)
	}
	return gaveUp, err
}

// inFlight is a task with a goroutine of its own, and a caller that waits for it.
type inFlight struct {
	ctx    context.Context //nolint:containedctx // it is that of the task
	task   task
	tasks  *sync.WaitGroup // that it is one of; nil after Close
	state  atomic.Int32
	answer chan error // holds one
	start  func()     // r.run, made once
}

// The states of a task that is in flight. The caller and the goroutine each leave the first
// one in one step, so either the caller gets the outcome or the task does.
const (
	underWay = iota
	answered
	givenUp
)

// run is the goroutine. After it has handed the answer out, r is the caller's.
func (r *inFlight) run() {
	ctx, t := r.ctx, r.task
	if r.tasks != nil {
		defer r.tasks.Done()
	}
	err := t.send(ctx)
	received := r.state.CompareAndSwap(underWay, answered)
	if received {
		r.answer <- err
	}
	if err != nil || !received {
		t.late(ctx, err)
	}
}

// giveUp is for a caller that no longer waits. It returns the outcome if there is one.
func (r *inFlight) giveUp(reason error) (gaveUp bool, err error) {
	if r.state.CompareAndSwap(underWay, givenUp) {
		return true, reason
	}
	return false, <-r.answer
}

// await carries out f, which sends requests, and returns what it returns, or an error if the
// caller is to wait no longer: see carryOut.
func await[T any](ctx context.Context, c *Client, abort <-chan struct{}, f func(context.Context) (T, error)) (T, error) {
	t := &function[T]{f: f}
	gaveUp, err := c.carryOut(ctx, abort, t)
	if gaveUp {
		var none T
		return none, err
	}
	return t.value, err
}

// function is a task that needs nothing to be done about an outcome which comes late.
type function[T any] struct {
	f     func(context.Context) (T, error)
	value T
}

func (t *function[T]) send(ctx context.Context) (err error) {
	t.value, err = t.f(ctx)
	return err
}

func (t *function[T]) late(context.Context, error) {}

// overdue adds the context's error to that of a request which had no more time:
// a Redis client that looks at the context's deadline may give up an instant
// before the context does.
func overdue(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	deadline, ok := ctx.Deadline()
	if !ok || time.Now().Before(deadline) || !isTimeout(err) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
}

// run sends one call, wherever its keys live.
func (c *Client) run(ctx context.Context, s call) (any, error) {
	r := c.dispatcher.run(ctx, s)
	return r.value, r.err
}

// sendCalls sends calls, for each of which a caller waits, in one pipeline, and
// what is worth repeating once more: in full if the server doesn't know the script.
func (c *Client) sendCalls(ctx context.Context, calls []*queuedCall) {
	w := c.transport
	begin := time.Now()
	w.send(ctx, calls)
	for tries := 0; ; {
		var again []*queuedCall
		pause := false
		for _, p := range calls {
			switch err := p.reply.err; {
			case err == nil:
				continue
			case isUnknownScript(err) && !p.full:
				p.full = true
			case tries < w.retries && isPassing(err) && (!p.call.counted || time.Since(begin) < w.window):
				pause = true
			default:
				continue
			}
			again = append(again, p)
		}
		if len(again) == 0 {
			return
		}
		if pause {
			tries++
			if !w.pause(ctx, tries, again) {
				return
			}
		}
		calls = again
		w.repeat(ctx, calls, begin)
	}
}

// commit sends calls that change something, on one connection, and returns the
// reply to each. If replicas must acknowledge it, acked says whether enough of
// them have all of it. All keys belong to one server.
func (c *Client) commit(ctx context.Context, calls ...call) (replies []reply[any], acked error) {
	if c.config.ReplicaAcks == 0 && len(calls) == 1 {
		return []reply[any]{c.dispatcher.run(ctx, calls[0])}, nil
	}
	cluster, sharded := c.rdb.(*redis.ClusterClient)
	if !sharded || c.config.ReplicaAcks == 0 {
		return c.send(ctx, c.rdb, calls)
	}
	// WAIT has no key to be routed by, so we look for the server ourselves.
	var last *redis.Client
	for key := calls[0].key(); ; {
		node, err := masterOtherThan(ctx, cluster, key, last)
		if err != nil && replies == nil {
			return failed(calls, fmt.Errorf("find the master of %s: %w", key, err)), nil
		}
		if err != nil {
			return replies, acked
		}
		earlier := replies
		replies, acked = c.send(ctx, node, calls)
		for i, r := range earlier {
			replies[i].copies = replies[i].copies || r.copies
		}
		moved := slices.IndexFunc(replies, func(r reply[any]) bool { return redis.HasErrorPrefix(r.err, "MOVED") })
		if moved < 0 {
			return replies, acked
		}
		last, key = node, calls[moved].key()
	}
}

// send sends calls to one server until each has an answer, as often as its client
// repeats: in full if it doesn't know the scripts. Each call may be repeated, so
// all of them are.
func (c *Client) send(ctx context.Context, to redis.UniversalClient, calls []call) (replies []reply[any], acked error) {
	w := c.transport
	if to != c.rdb {
		w = newTransport(to)
	}
	copies := make([]bool, len(calls))
	// Replicas are awaited even for a script that failed, so that what the server
	// may not know yet goes in full.
	full := c.config.ReplicaAcks > 0 && !c.scripts.knows(address(to), calls)
	for tries := 0; ; {
		replies, acked = c.pipeline(ctx, w, calls, full)
		for i := range replies {
			replies[i].copies = replies[i].copies || copies[i]
		}
		switch broken := passing(replies, acked); {
		case !full && slices.ContainsFunc(replies, func(r reply[any]) bool { return isUnknownScript(r.err) }):
			c.scripts.forget()
			full = true
		case broken && tries < w.retries:
			tries++
			if !w.pause(ctx, tries, nil) {
				return replies, acked
			}
		default:
			if c.config.ReplicaAcks > 0 {
				c.scripts.learn(address(to), calls, replies)
			}
			return replies, acked
		}
		for i, r := range replies {
			copies[i] = copies[i] || mayArrive(r.err)
		}
	}
}

// movedLimit bounds the search for the server to which a slot has moved, and
// movedPoll is how often the cluster client is asked for it.
const (
	movedLimit = time.Second
	movedPoll  = 10 * time.Millisecond
)

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

func (c *Client) pipeline(ctx context.Context, w *transport, calls []call, full bool) (replies []reply[any], acked error) {
	if c.config.ReplicaAcks == 0 {
		return exec(ctx, w.pipeline(), calls, full), nil
	}
	acks := redis.NewCmd(ctx, "WAIT", c.config.ReplicaAcks, c.config.AckTimeout.Milliseconds())
	replies = exec(ctx, w.pipeline(), calls, full, acks)
	switch n, err := acks.Int(); {
	case err != nil:
		acked = fmt.Errorf("await replicas: %w", err)
	case n < c.config.ReplicaAcks:
		acked = fmt.Errorf("%d of %d replicas acknowledged it within %v", n, c.config.ReplicaAcks, c.config.AckTimeout)
	}
	return replies, acked
}

// exec sends calls in one pipeline, and other commands after them.
func exec(ctx context.Context, p redis.Pipeliner, calls []call, full bool, then ...redis.Cmder) []reply[any] {
	cmds := make([]*redis.Cmd, len(calls))
	for i, s := range calls {
		cmds[i] = s.command(ctx, slices.Clone(s.words), full) // the call may be sent again
		_ = p.Process(ctx, cmds[i])
	}
	_ = p.BatchProcess(ctx, then...)
	_, broken := p.Exec(ctx)
	replies := make([]reply[any], len(calls))
	for i, cmd := range cmds {
		_, once := p.(*singleAttempt)
		replies[i] = replyTo(cmd, once, broken, calls[i])
	}
	return replies
}

// replyTo is what a command came to that was sent once, or perhaps more often by go-redis.
// broken is the error of its pipeline.
func replyTo(cmd *redis.Cmd, once bool, broken error, s call) reply[any] {
	value, err := cmd.Result()
	if err == nil && value == nil {
		err = broken
	}
	return reply[any]{value: value, err: explain(err, s), copies: !once || mayArrive(err)}
}

// mayArrive reports whether the server may have carried out what came to that
// error, or may do it yet.
func mayArrive(err error) bool { return err != nil && !isRefusal(err) && !isUnsent(err) }

func failed(calls []call, err error) []reply[any] {
	replies := make([]reply[any], len(calls))
	for i := range replies {
		replies[i].err = err
	}
	return replies
}

// isRefusal reports whether a server answered with an error, so that asking
// once more won't help.
func isRefusal(err error) bool {
	var e redis.Error
	return errors.As(err, &e)
}

// explain adds what can be done about a server's error.
func explain(err error, s call) error {
	if text := advice(err, s.key()); text != "" {
		return fmt.Errorf("%s: %w", text, err)
	}
	return err
}
