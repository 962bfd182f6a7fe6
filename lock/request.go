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
}

// await runs f, which talks to Redis, and returns what it returns; or the
// context's error as soon as that ends, or [ErrClosed] as soon as abort is
// closed: go-redis itself lets go of a request only at its own timeouts. The
// outcome that nobody waits for any more is handed to late, if there is one, in
// a goroutine that Close awaits.
func await[T any](
	ctx context.Context, c *Client, abort <-chan struct{},
	f func(context.Context) (T, error), late func(T, error),
) (T, error) {
	var none T
	if err := ctx.Err(); err != nil {
		return none, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	replies := make(chan reply[T]) // unbuffered: either we get it or late does
	left := make(chan struct{})
	run := func() {
		value, err := f(ctx)
		select {
		case replies <- reply[T]{value, err}:
		case <-left:
			if late != nil {
				late(value, err)
			}
		}
	}
	if !c.spawn(run) {
		if abort != nil {
			return none, ErrClosed
		}
		return f(ctx) // what may still be done after Close
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
		close(left)
		return none, gaveUp
	}
}

// overdue adds the context's error to that of a request which had no more time:
// a Redis client that looks at the context's deadline may give up an instant
// before the context does.
func overdue(ctx context.Context, err error) error {
	var timeout interface{ Timeout() bool }
	deadline, ok := ctx.Deadline()
	if !ok || time.Now().Before(deadline) || !errors.As(err, &timeout) || !timeout.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
}

// run sends one call, wherever its keys live.
func (c *Client) run(ctx context.Context, s call) (any, error) {
	value, err := s.script.Run(ctx, c.rdb, s.keys, s.args...).Result()
	return value, explain(err, s)
}

// commit sends calls that change something, on one connection, and returns the
// reply to each. If replicas must acknowledge it, acked says whether enough of
// them have all of it. All keys belong to one server.
func (c *Client) commit(ctx context.Context, calls ...call) (replies []reply[any], acked error) {
	if c.config.ReplicaAcks == 0 && len(calls) == 1 {
		value, err := c.run(ctx, calls[0])
		return []reply[any]{{value, err}}, nil
	}
	cluster, sharded := c.rdb.(*redis.ClusterClient)
	if !sharded || c.config.ReplicaAcks == 0 {
		return c.send(ctx, c.rdb, calls)
	}
	// WAIT has no key to be routed by, so we look for the server ourselves.
	var last *redis.Client
	for key := calls[0].keys[0]; ; {
		node, err := masterOtherThan(ctx, cluster, key, last)
		if err != nil && replies == nil {
			return failed(calls, fmt.Errorf("find the master of %s: %w", key, err)), nil
		}
		if err != nil {
			return replies, acked
		}
		replies, acked = c.send(ctx, node, calls)
		moved := slices.IndexFunc(replies, func(r reply[any]) bool { return redis.HasErrorPrefix(r.err, "MOVED") })
		if moved < 0 {
			return replies, acked
		}
		last, key = node, calls[moved].keys[0]
	}
}

// send sends calls to one server, in full if it doesn't know the scripts. Each
// call may be repeated, so all of them are.
func (c *Client) send(ctx context.Context, to redis.Cmdable, calls []call) (replies []reply[any], acked error) {
	replies, acked = c.pipeline(ctx, to, calls, false)
	if slices.ContainsFunc(replies, func(r reply[any]) bool { return isUnknownScript(r.err) }) {
		return c.pipeline(ctx, to, calls, true)
	}
	return replies, acked
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

func (c *Client) pipeline(ctx context.Context, to redis.Cmdable, calls []call, full bool) (replies []reply[any], acked error) {
	p := to.Pipeline()
	cmds := make([]*redis.Cmd, len(calls))
	for i, s := range calls {
		cmds[i] = s.queue(ctx, p, full)
	}
	var acks *redis.Cmd
	if c.config.ReplicaAcks > 0 {
		acks = p.Do(ctx, "WAIT", c.config.ReplicaAcks, c.config.AckTimeout.Milliseconds())
	}
	_, broken := p.Exec(ctx)
	replies = make([]reply[any], len(calls))
	for i, cmd := range cmds {
		value, err := cmd.Result()
		if err == nil && value == nil {
			err = broken
		}
		replies[i] = reply[any]{value, explain(err, calls[i])}
	}
	if acks != nil {
		switch n, err := acks.Int(); {
		case err != nil:
			acked = fmt.Errorf("await replicas: %w", err)
		case n < c.config.ReplicaAcks:
			acked = fmt.Errorf("%d of %d replicas acknowledged it within %v", n, c.config.ReplicaAcks, c.config.AckTimeout)
		}
	}
	return replies, acked
}

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
	if text := advice(err, s.keys[0]); text != "" {
		return fmt.Errorf("%s: %w", text, err)
	}
	return err
}
