package lock

import (
	"context"
	"fmt"
	"time"
)

// A grant is one request for a lock. Its request tells it from all others, so
// that asking, extending and releasing may each be repeated. Once granted, it
// is the keeper of its hold.
type grant struct {
	*object
	owner, request string
	lease          time.Duration
	watched        bool  // kept alive by the watchdog
	waits          bool  // if it is refused at first
	place          int64 // in a queue, as the server said
}

// answer is the server's to one try. The zero answer is a refusal.
type answer struct {
	granted bool
	denied  bool // a refusal that waiting doesn't change
	holds   int
	token   int64
	expires time.Time
	ttl     time.Duration // of a refusal: until the lock runs out
	place   int64         // of a refusal: in the queue, if there is one
	unacked error         // of a grant: too few replicas have it
}

// try asks once. Whatever it returns but a grant leaves nothing behind that
// outlives the lease: an unknown outcome is undone in the background.
func (g *grant) try(ctx context.Context) (answer, error) {
	c := g.client
	a, err := await(ctx, c, c.closing, func(ctx context.Context) (answer, error) {
		a, err := g.ask(ctx)
		if err != nil {
			c.tasks.Go(func() { _ = g.withdraw(ctx) }) // we are a task, so Close still waits
		}
		return a, err
	}, func(a answer, _ error) {
		if a.granted || g.kind.queued {
			_ = g.withdraw(ctx)
		}
	})
	switch {
	case err == nil && a.denied:
		return a, fmt.Errorf("%w: %w", ErrNotAcquired, g.kind.denied)
	case err != nil:
		return a, err
	case !a.granted:
		g.place = a.place // here, since a request that was given up may be answered yet
		return a, nil
	case a.unacked != nil:
		return g.undo(ctx, fmt.Errorf("%w: %w", ErrNotReplicated, a.unacked), a.unacked)
	case !time.Now().Before(a.expires):
		late := fmt.Errorf("granted when the lease of %v was over already", g.lease)
		return g.undo(ctx, fmt.Errorf("%w: %w", ErrNotAcquired, late), late)
	}
	return a, nil
}

// undo takes a grant back that doesn't count, and returns the one error if that
// is confirmed, and the other if it isn't.
func (g *grant) undo(ctx context.Context, undone, reason error) (answer, error) {
	if err := ctx.Err(); err != nil {
		if late := func() { _ = g.withdraw(ctx) }; !g.client.spawn(late) {
			late()
		}
		return answer{}, fmt.Errorf("%w: %w", reason, err)
	}
	_, err := await(ctx, g.client, nil, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, g.withdraw(ctx)
	}, nil)
	if err != nil {
		return answer{}, fmt.Errorf("%w; take the grant back: %w", reason, err)
	}
	return answer{}, undone
}

// ask sends the request.
func (g *grant) ask(ctx context.Context) (answer, error) {
	c := g.client
	sent := time.Now()
	replies, unacked := c.commit(ctx, g.kind.acquire(g))
	if replies[0].err != nil {
		return answer{}, replies[0].err
	}
	fields, _ := replies[0].value.([]any)
	var numbers [3]int64
	for i, f := range fields[:min(len(fields), len(numbers))] {
		numbers[i], _ = f.(int64)
	}
	if len(fields) < 2 {
		return answer{}, fmt.Errorf("strange reply %v", replies[0].value)
	}
	if numbers[0] <= 0 {
		return answer{denied: numbers[0] < 0, ttl: time.Duration(numbers[1]) * time.Millisecond, place: numbers[2]}, nil
	}
	return answer{
		granted: true, holds: int(numbers[1]), token: numbers[2],
		expires: c.expires(sent, g.lease), unacked: unacked,
	}, nil
}

// withdraw makes sure that nothing is left of the request, even if it is still
// on its way.
func (g *grant) withdraw(ctx context.Context) error {
	_, err := g.insist(ctx, true)
	return err
}

// insist releases until an answer arrives. It outlives ctx, and tries for a
// bounded time.
func (g *grant) insist(ctx context.Context, withdraw bool) (released bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), withdrawLimit)
	defer cancel()
	for pause := 10 * time.Millisecond; ; pause *= 2 {
		released, err = g.end(ctx, withdraw)
		if err == nil || isRefusal(err) {
			return released, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return false, err
		case <-g.client.closing:
			return false, err
		}
	}
}

// end sends one request to release.
func (g *grant) end(ctx context.Context, withdraw bool) (released bool, err error) {
	v, err := g.client.run(ctx, g.kind.release(g, withdraw))
	return v == int64(1), err
}

// extended reads the reply to an extension.
func extended(r reply[any], unacked error) error {
	switch {
	case r.err != nil:
		return r.err
	case r.value != int64(1):
		return ErrNotHeld
	default:
		return unacked
	}
}

// leased is the grant as plain data.
func (g *grant) leased(a answer) Lease {
	return Lease{
		Name: g.name, Owner: g.owner, Request: g.request, Holds: a.holds, Token: a.token, Queued: g.place,
		Length: g.lease, Expires: a.expires, Node: g.client.node,
	}
}

func (g *grant) hold(a answer, begin time.Time) *Hold {
	c := g.client
	h := newHold(g.leased(a), g)
	h.onLost = func(l Lease) { c.observe(Lost, l, 0, nil) }
	if g.watched {
		h.unwatch = func() { c.watchdog.remove(h) }
		h.moved = func() { c.watchdog.hurry(h) }
	}
	c.observe(Acquired, h.lease, time.Since(begin), nil)
	h.start()
	if g.watched {
		c.watchdog.add(h, g)
	}
	return h
}

// Extend is for the hold.
func (g *grant) Extend(ctx context.Context, l Lease, d time.Duration) (time.Time, error) {
	c := g.client
	sent := time.Now()
	_, err := await(ctx, c, nil, func(ctx context.Context) (struct{}, error) {
		replies, unacked := c.commit(ctx, g.kind.extend(g, d))
		return struct{}{}, extended(replies[0], unacked)
	}, nil)
	expires := c.expires(sent, d)
	if err != nil {
		return expires, err
	}
	if g.watched && l.Expires.After(expires) {
		expires = l.Expires
	}
	return expires, nil
}

// Release is for the hold.
func (g *grant) Release(ctx context.Context, l Lease) error {
	c := g.client
	begin := time.Now()
	released, err := await(ctx, c, nil, func(ctx context.Context) (bool, error) {
		return g.end(ctx, false)
	}, nil)
	if err == nil && !released {
		err = ErrNotHeld
	}
	c.observe(Released, l, time.Since(begin), err)
	return err
}
