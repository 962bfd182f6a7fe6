package workload

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/lock/fence"
)

// A Counter is a [Resource] with a guard of package fence, which only those meet who come by [WithTokens] or by [Tickets].
type Counter interface {
	Resource
	// present refuses a token that is smaller than one that the guard saw, and so does writeFenced.
	present(ctx context.Context, token int64) error
	writeFenced(ctx context.Context, c Change, token int64) error
}

// WithTokens is a counter that refuses the stale tokens of grants.
func WithTokens(c Counter) Fenced { return fenced{c} }

type fenced struct{ Counter }

// Present refuses a stale token.
func (f fenced) Present(ctx context.Context, token int64) error {
	return asRefusal(f.present(ctx, token))
}

// Write stores the change unless its token is stale.
func (f fenced) Write(ctx context.Context, c Change) error {
	return asRefusal(f.writeFenced(ctx, c, c.Token))
}

// asRefusal makes a refusal of package fence one of a resource.
func asRefusal(err error) error {
	if errors.Is(err, fence.ErrStale) || errors.Is(err, fence.ErrNotFenced) {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return err
}

// Tickets are tokens that counters themselves give to those who begin a change, and that say nothing of the order of their
// grants: the last one, however late, has the greatest. A write is then refused if another owner has begun a change since. That is
// the check-and-set of Sanfilippo, "Is Redlock safe?", 2016.
type Tickets struct {
	drawn  atomic.Int64 // the latest of all
	latest sync.Map     // of each [begun]
}

// A begun change is that of a resource by an owner.
type begun struct{ resource, owner string }

// Of is a counter that gives tickets, as one owner reaches it.
func (t *Tickets) Of(c Counter, resource, owner string) Resource {
	return checked{c, t, begun{resource, owner}}
}

type checked struct {
	Counter

	tickets *Tickets
	change  begun
}

// Read begins a change: it shows a new ticket before it reads, so that a change that another owner
// began before can't be written any more.
func (c checked) Read(ctx context.Context) (int64, error) {
	ticket := c.tickets.drawn.Add(1)
	c.tickets.latest.Store(c.change, ticket)
	if err := c.present(ctx, ticket); err != nil {
		return 0, asRefusal(err)
	}
	return c.Counter.Read(ctx)
}

// Write stores the change if no other owner has begun one since.
func (c checked) Write(ctx context.Context, change Change) error {
	latest, _ := c.tickets.latest.Load(c.change)
	ticket, _ := latest.(int64) // 0 of one who has not begun
	return asRefusal(c.writeFenced(ctx, change, ticket))
}

// theRegister is what the guard of a [Register] calls it.
const theRegister = "register"

func (r *Register) present(_ context.Context, token int64) error {
	return r.guard.Check(theRegister, token)
}

func (r *Register) writeFenced(ctx context.Context, c Change, token int64) error {
	return r.guard.Do(theRegister, token, func() error { return r.Write(ctx, c) })
}

// A RedisCounter is under a key of a Redis server.
type RedisCounter struct {
	Client *redis.Client
	Guard  *fence.RedisGuard
	Key    string
}

// Read asks for the value.
func (r RedisCounter) Read(ctx context.Context) (int64, error) {
	n, err := r.Client.Get(ctx, r.Key).Int64()
	if errors.Is(err, redis.Nil) {
		return 0, nil
	}
	return n, err
}

// Write sets the value.
func (r RedisCounter) Write(ctx context.Context, c Change) error {
	return r.Client.Set(ctx, r.Key, c.Value, 0).Err()
}

func (r RedisCounter) present(ctx context.Context, token int64) error {
	return r.Guard.Check(ctx, r.Key, token)
}

func (r RedisCounter) writeFenced(ctx context.Context, c Change, token int64) error {
	return r.Guard.Set(ctx, r.Key, c.Value, token)
}
