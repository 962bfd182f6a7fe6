package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// checkLimit bounds the wait for the confirmation of a subscription.
const checkLimit = 5 * time.Second

// Check asks the servers whether they suit, and joins what is wrong: one that evicts keys when its memory is used up, and
// so forgets locks that are held, and a user who may not publish or subscribe, whose waiters poll. It is
// worth calling once at the start. The client also works where Check finds something; that its user may not publish it tells its
// Observer then, once ([Warned]).
func (c *Client) Check(ctx context.Context) error {
	err := c.await(ctx, c.closing, func() error {
		memory := error(nil)
		if cluster, ok := c.rdb.(interface {
			ForEachMaster(context.Context, func(context.Context, *redis.Client) error) error
		}); ok {
			memory = cluster.ForEachMaster(ctx, func(ctx context.Context, server *redis.Client) error { return checkMemory(ctx, server) })
		} else {
			memory = checkMemory(ctx, c.rdb)
		}
		return errors.Join(memory, c.checkMessages(ctx))
	})
	return wrap(err, "check the servers")
}

// checkMemory says whether a server may evict keys.
func checkMemory(ctx context.Context, server redis.Cmdable) error {
	info := server.InfoMap(ctx, "memory")
	if err := info.Err(); err != nil {
		return fmt.Errorf("ask for the memory policy: %w", err)
	}
	if policy := info.Item("Memory", "maxmemory_policy"); info.Item("Memory", "maxmemory") != "0" && policy != "" && policy != "noeviction" {
		return fmt.Errorf("maxmemory-policy is %s: a lock that is held may be evicted, and then granted again; set noeviction", policy)
	}
	return nil
}

// checkMessages says whether the user may publish and subscribe.
func (c *Client) checkMessages(ctx context.Context) error {
	if err := c.rdb.Publish(ctx, c.inbox, "").Err(); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	messages := c.rdb.Subscribe(ctx, c.inbox)
	_, err := messages.ReceiveTimeout(ctx, checkLimit)
	if err = errors.Join(err, messages.Close()); err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	return nil
}

// noteDenied returns the first value of a reply. The last one may say why the user may not publish: waiters then ask more often.
func (c *Client) noteDenied(ctx context.Context, reply any) any {
	values, _ := reply.([]any)
	if len(values) == 0 {
		return reply
	}
	if why, ok := values[len(values)-1].(string); ok && c.denied.CompareAndSwap(false, true) {
		c.tell(ctx, Warned, Lease{}, 0, fmt.Errorf("a release wakes no waiter, so they poll: let the user run PUBLISH on the prefix: %s", why))
	}
	return values[0]
}
