package lock

import (
	"context"
	"errors"
	"fmt"

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
		return r.value, r.err
	case <-ctx.Done():
		gaveUp = ctx.Err()
	case <-abort:
		gaveUp = ErrClosed
	}
	select {
	case r := <-replies:
		return r.value, r.err
	default:
		close(left)
		return none, gaveUp
	}
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
	to := c.rdb
	cluster, sharded := c.rdb.(*redis.ClusterClient)
	for again := true; ; again = false {
		if sharded && c.config.ReplicaAcks > 0 { // WAIT has no key to be routed by
			node, err := cluster.MasterForKey(ctx, calls[0].keys[0])
			if err != nil {
				return failed(calls, fmt.Errorf("find the master of %s: %w", calls[0].keys[0], err)), nil
			}
			to = node
		}
		replies, acked = c.pipeline(ctx, to, calls, false)
		switch first := worst(replies); {
		case isUnknownScript(first):
			// Each call may be repeated, so all of them are.
			return c.pipeline(ctx, to, calls, true)
		case again && sharded && movedAway(first):
			cluster.ReloadState(ctx)
		default:
			return replies, acked
		}
	}
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

// worst returns the first error that asks for the calls to be sent anew.
func worst(replies []reply[any]) error {
	for _, r := range replies {
		if isUnknownScript(r.err) || movedAway(r.err) {
			return r.err
		}
	}
	return nil
}

func movedAway(err error) bool {
	return redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK")
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
