package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// await runs f, which sends requests, as a task of the client, and returns what it
// returns; or the context's error soon after that ends, or [ErrClosed] soon after
// abort is closed: go-redis itself lets go of a request only at its own timeouts. So f
// has a goroutine of its own, unless the caller would wait for it in any case.
//
// An error, and the outcome for which the caller no longer waits, are handed to late, if
// there is one, in a goroutine that Close awaits.
func await[T any](
	ctx context.Context, c *Client, abort <-chan struct{},
	f func(context.Context) (T, error), late func(T, error),
) (T, error) {
	var none T
	if err := ctx.Err(); err != nil {
		return none, err
	}
	if ctx.Done() == nil && abort == nil && c.enter() { // we wait in any case
		defer c.tasks.Done()
		value, err := f(ctx)
		if err != nil && late != nil {
			c.tasks.Go(func() { late(value, err) })
		}
		return value, err
	}
	return awaitIn(ctx, abort, c.spawn, f, late)
}

// awaitIn runs f in a goroutine, if there may be one.
func awaitIn[T any](
	ctx context.Context, abort <-chan struct{}, spawn func(func()) bool,
	f func(context.Context) (T, error), late func(T, error),
) (T, error) {
	var none T
	replies := make(chan reply[T]) // unbuffered: either we get it or late does
	asking, leave := context.WithCancel(ctx)
	defer leave()
	run := func() {
		value, err := f(asking)
		lost := err != nil
		select {
		case replies <- reply[T]{value: value, err: err}:
		case <-asking.Done():
			lost = true
		}
		if lost && late != nil {
			late(value, err)
		}
	}
	if !spawn(run) {
		if abort != nil {
			return none, ErrClosed
		}
		go run() // what may still be done after Close
	}
	var gaveUp error
	select {
	case r := <-replies:
		return r.value, overdue(ctx, r.err)
	case <-ctx.Done():
		gaveUp = ctx.Err()
	case <-abort:
		gaveUp = ErrClosed
	}
	select {
	case r := <-replies:
		return r.value, overdue(ctx, r.err)
	default:
		return none, gaveUp
	}
}

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
	r := c.road.run(ctx, s)
	return r.value, r.err
}

// post sends calls, for each of which a caller waits, in one pipeline, and
// what is worth repeating once more: in full if the server doesn't know the script.
// One alone goes in a pipeline as well, because go-redis has connections of their
// own for pipelines: what is known of a server would differ between the two.
func (c *Client) post(ctx context.Context, calls []*posted) {
	w := c.wire
	begin := time.Now()
	w.send(ctx, calls)
	for tries := 0; ; {
		var again []*posted
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
			if !w.pause(ctx, tries) {
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
		return []reply[any]{c.road.run(ctx, calls[0])}, nil
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
	w := c.wire
	if to != c.rdb {
		w = newWire(to)
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
			if !w.pause(ctx, tries) {
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

func (c *Client) pipeline(ctx context.Context, w *wire, calls []call, full bool) (replies []reply[any], acked error) {
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
		cmds[i] = s.command(ctx, full)
		_ = p.Process(ctx, cmds[i])
	}
	_ = p.BatchProcess(ctx, then...)
	_, broken := p.Exec(ctx)
	replies := make([]reply[any], len(calls))
	for i, cmd := range cmds {
		replies[i] = answered(p, cmd, broken, calls[i])
	}
	return replies
}

// answered is what a command came to.
func answered(p redis.Pipeliner, cmd *redis.Cmd, broken error, s call) reply[any] {
	value, err := cmd.Result()
	if err == nil && value == nil {
		err = broken
	}
	r := reply[any]{value: value, err: explain(err, s)}
	if _, ok := p.(*unrepeated); !ok || mayArrive(err) {
		r.copies = true
	}
	return r
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
